//! Making a text of an exact number of tokens, whatever counts them.
//!
//! Three stages, each of few counts, and every count is of the whole text, since what stands at the border of two pieces may
//! be merged or torn. Bulk: pieces are added and taken away by how many tokens a piece has had so far, which comes near within
//! four or five counts at any length. Cut: a last piece that is too long is cut between words, or letters. Fill: short words
//! make up the rest. [`MAX_COUNTS`] bounds all of it together; the nearest text seen wins, the shorter of two equally near.
//!
//! The text is a function of the arguments and of what `pieces` gives; the same ones give the same text.

/// Counts that one text may take. Most take five to ten: a count is what costs, 10 ms or so for 32,768 tokens.
const MAX_COUNTS: u32 = 48;

/// Counts after which the bulk stage gives way to the finer ones.
const MAX_BULK: u32 = 16;

/// Bytes of text for each token wanted, at most: pieces that never make a token end here. The longest tokens of
/// real vocabularies are some hundred bytes, and the mean is below five.
const MAX_BYTES_PER_TOKEN: usize = 64;

/// Pieces for each token wanted, at most: for those that are empty or merge with all others.
const MAX_PIECES_PER_TOKEN: usize = 8;

/// What makes up the rest, by turns: with a blank in front, behind (for a back that begins with a letter), and signs that
/// no letter merges with. Most vocabularies have these as one token each; a row of one and the same would be merged by some.
const FILLERS: [&[&str]; 4] = [
    &[" a", " b", " c", " d", " e", " f"],
    &["a ", "b ", "c ", "d ", "e ", "f "],
    &[" .", " ,", " ;"],
    &[" 1", " 2", " 3"],
];

/// A text and what it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// The whole text: front, pieces and fillers, back.
    pub text: String,
    /// What `count` says of `text`. Not the target where none could be made that has it.
    pub counted: u32,
}

/// Text made of `front`, as many `pieces` as are needed, and `back`, whose `count` is `target`.
///
/// `front` and `back` alone when they reach or exceed the target; where no try is exact, the nearest. The text
/// has at most 64 bytes a token of `target` besides `front`, `back` and one piece: the caller bounds `target`.
pub fn fit(
    count: &dyn Fn(&str) -> u32,
    front: &str,
    pieces: &mut dyn FnMut() -> String,
    back: &str,
    target: u32,
) -> Fitted {
    let mut search = Search { count, front, back, target, left: MAX_COUNTS, best: None };
    let base = search.measure("");
    if base < target {
        let near = bulk(&mut search, pieces, base);
        let body = search.cut(near);
        search.fill(&body);
    }
    search.best.map_or_else(
        || Fitted { text: [front, back].concat(), counted: base },
        |(body, counted)| Fitted { text: [front, &body, back].concat(), counted },
    )
}

/// Where the bulk stage ended: a body that does not exceed the target, and the piece that would make it do so.
struct Near {
    body: String,
    next: String,
}

struct Search<'a> {
    count: &'a dyn Fn(&str) -> u32,
    front: &'a str,
    back: &'a str,
    target: u32,
    left: u32,
    /// Nearest so far: what stands between front and back, and what the whole counts.
    best: Option<(String, u32)>,
}

impl Search<'_> {
    fn measure(&mut self, body: &str) -> u32 {
        self.left = self.left.saturating_sub(1);
        let counted = (self.count)(&[self.front, body, self.back].concat());
        let far = |counted: u32| (counted.abs_diff(self.target), counted);
        if self.best.as_ref().is_none_or(|(_, best)| far(counted) < far(*best)) {
            self.best = Some((body.to_owned(), counted));
        }
        counted
    }

    fn is_over(&self) -> bool {
        self.left == 0 || self.best.as_ref().is_some_and(|(_, counted)| *counted == self.target)
    }

    /// The body with as much of the next piece as does not exceed the target.
    fn cut(&mut self, near: Near) -> String {
        let Near { body, next } = near;
        let words: Vec<usize> =
            next.match_indices(char::is_whitespace).map(|(at, _)| at).filter(|at| *at > 0).collect();
        let ends = if words.is_empty() { next.char_indices().map(|(at, _)| at).skip(1).collect() } else { words };
        let with = |end: usize| next.get(..end).map(|part| [body.as_str(), part].concat()).unwrap_or_default();
        let (mut low, mut high) = (0, ends.len());
        let mut longest = body.clone();
        while low < high && !self.is_over() {
            let middle = low.midpoint(high);
            let tried = with(ends.get(middle).copied().unwrap_or_default());
            if self.measure(&tried) <= self.target {
                longest = tried;
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        longest
    }

    /// Makes up what is missing with short words, first as many as tokens are missing, then by the difference.
    fn fill(&mut self, body: &str) {
        for fillers in FILLERS {
            if self.is_over() {
                return;
            }
            let mut words = self.target.saturating_sub(self.measure(body)).max(1);
            let mut tried = Vec::new();
            while !self.is_over() && !tried.contains(&words) && tried.len() < 5 {
                tried.push(words);
                let fill: String = fillers.iter().copied().cycle().zip(0..words).map(|(word, _)| word).collect();
                let counted = self.measure(&[body, &fill].concat());
                words = words.saturating_add(self.target.saturating_sub(counted));
                words = words.saturating_sub(counted.saturating_sub(self.target));
                if words > self.target {
                    break;
                }
            }
        }
    }
}

/// Adds and takes away pieces until the next one would exceed the target.
fn bulk(search: &mut Search<'_>, pieces: &mut dyn FnMut() -> String, base: u32) -> Near {
    let target = usize::try_from(search.target).unwrap_or(usize::MAX);
    let (limit, most) = (target.saturating_mul(MAX_BYTES_PER_TOKEN), target.saturating_mul(MAX_PIECES_PER_TOKEN));
    // The pieces, and the length of the text behind each.
    let (mut text, mut ends) = (String::new(), vec![0]);
    // The longest known not to exceed the target, and the shortest known to exceed it.
    let (mut under, mut over): (usize, Option<usize>) = (0, None);
    let (mut at, mut counted) = (0_usize, base);
    for _ in 0..MAX_BULK {
        if counted <= search.target {
            under = under.max(at);
        } else {
            over = Some(over.map_or(at, |over| over.min(at)));
        }
        if search.is_over() || over.is_some_and(|over| over <= under + 1) {
            break;
        }
        let goal = step(at, counted, base, search.target);
        // Never where it has been: between the two bounds, or beyond the lower one.
        at = over.map_or(goal.max(under + 1), |over| goal.clamp(under + 1, over - 1));
        while ends.len() <= at && ends.len() <= most && text.len() < limit {
            text.push_str(&pieces());
            ends.push(text.len());
        }
        if at >= ends.len() {
            at = ends.len() - 1;
            if at <= under {
                break;
            }
        }
        counted = search.measure(part(&text, 0, ends.get(at).copied()));
    }
    let (from, to) = (ends.get(under).copied().unwrap_or_default(), ends.get(under + 1).copied());
    let next = to.map_or("", |to| part(&text, from, Some(to)));
    Near { body: part(&text, 0, Some(from)).to_owned(), next: next.to_owned() }
}

/// How many pieces to try next: what is missing by the tokens a piece has had so far. At the beginning one each.
fn step(at: usize, counted: u32, base: u32, target: u32) -> usize {
    let (have, want) = (u64::from(counted.saturating_sub(base)), u64::from(target.saturating_sub(base)));
    let pieces = u64::try_from(at).unwrap_or(u64::MAX);
    // Before anything is known, a part of it: lines may have ten tokens, and cutting back costs a count of a long text.
    let goal = match (pieces.saturating_mul(want), have) {
        (0, _) => want.div_ceil(16),
        // Pieces that have not made a token so far: many more of them.
        (_, 0) => pieces.saturating_mul(16),
        (scaled, have) => scaled / have,
    };
    usize::try_from(goal.min(pieces.saturating_add(1).saturating_mul(64).max(want))).unwrap_or(usize::MAX)
}

/// A part of a text between two places that are known to be borders of pieces.
fn part(text: &str, from: usize, to: Option<usize>) -> &str {
    to.and_then(|to| text.get(from..to)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
