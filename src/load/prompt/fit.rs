//! A text of a certain length.

/// A text, and what it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fitted {
    /// The text.
    pub(super) text: String,
    /// Its length: the target, or the nearest that was reached.
    pub(super) counted: u32,
}

/// Most counts of one text. Bisection over a million pieces takes 20, and a counter in which lengths do not rise with the
/// text would go on for ever.
const MOST_COUNTS: u32 = 64;

/// Most pieces of a text, whatever the counter says of them.
const MOST_PIECES: usize = 4_000_000;

/// Text made of `front`, as many `pieces` as are needed, then `back`, whose `count` is `target`, or the nearest to it that
/// was found; `front` and `back` alone where they are longer.
pub(super) fn fit(
    count: &dyn Fn(&str) -> u32,
    front: &str,
    pieces: &mut dyn FnMut() -> String,
    back: &str,
    target: u32,
) -> Fitted {
    let mut made: Vec<String> = Vec::new();
    let mut text_of = |n: usize| {
        while made.len() < n {
            made.push(pieces());
        }
        let middle = made.iter().take(n).map(String::as_str);
        [front].into_iter().chain(middle).chain([back]).collect::<String>()
    };
    let text = text_of(0);
    let base = count(&text);
    let mut best = Fitted { text, counted: base };
    // So many pieces are too few, and so many too many.
    let (mut few, mut many) = (0, None);
    let mut n = usize::try_from(target.saturating_sub(base)).unwrap_or(MOST_PIECES).min(MOST_PIECES);
    for _ in 0..MOST_COUNTS {
        if best.counted == target || n <= few || many.is_some_and(|many| n >= many) {
            break;
        }
        let text = text_of(n);
        let counted = count(&text);
        if counted.abs_diff(target) < best.counted.abs_diff(target) {
            best = Fitted { text, counted };
        }
        if counted > target {
            many = Some(n);
        } else {
            few = n;
        }
        n = next(n, counted.saturating_sub(base), target.saturating_sub(base), few, many);
    }
    best
}

/// How many pieces to try after `n` of them counted `counted` of the `wanted`: by proportion, else halfway.
fn next(n: usize, counted: u32, wanted: u32, few: usize, many: Option<usize>) -> usize {
    let scaled = u128::try_from(n).unwrap_or_default() * u128::from(wanted) / u128::from(counted.max(1));
    let scaled = usize::try_from(scaled).unwrap_or(usize::MAX).max(few + 1).min(MOST_PIECES);
    match many {
        None => scaled.min(few.saturating_mul(2).saturating_add(64)).min(MOST_PIECES),
        Some(many) if scaled < many => scaled,
        Some(many) => usize::midpoint(few, many),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::prompt::{Count, Words};

    fn pieces() -> impl FnMut() -> String {
        let mut n = 0;
        move || {
            n += 1;
            format!(" p{n}")
        }
    }

    #[test]
    fn a_length_that_can_be_reached_is_reached() {
        for (overhead, ratio) in [(0.0, 1.0), (11.0, 1.0), (8.0, 0.5), (3.0, 0.9)] {
            let words = Words::new(overhead, ratio);
            for target in [30, 31, 100, 257, 5000] {
                let fitted = fit(&|text| words.completion(text), "a b c", &mut pieces(), "\nd e", target);
                assert_eq!((fitted.counted, words.completion(&fitted.text)), (target, target), "{overhead} {ratio}");
                assert!(fitted.text.starts_with("a b c") && fitted.text.ends_with("\nd e"));
            }
        }
    }

    #[test]
    fn the_nearest_is_taken_where_there_is_none() {
        // Three tokens a word: 100 cannot be reached, 99 can.
        let words = Words::new(0.0, 3.0);
        assert_eq!(fit(&|text| words.plain(text), "", &mut pieces(), "", 100).counted, 99);
        assert_eq!(fit(&|text| words.plain(text), "", &mut pieces(), "", 101).counted, 102);
    }

    #[test]
    fn front_and_back_are_kept_where_they_are_longer() {
        let fitted = fit(&|text| Words::default().plain(text), "a b c", &mut pieces(), " d", 2);
        assert_eq!(fitted, Fitted { text: "a b c d".to_owned(), counted: 4 });
    }

    #[test]
    fn a_counter_that_counts_nothing_ends_it() {
        let asked = std::cell::Cell::new(0);
        let count = |_: &str| {
            asked.set(asked.get() + 1);
            0
        };
        fit(&count, "", &mut pieces(), "", 40);
        assert!(asked.get() <= MOST_COUNTS + 1, "{}", asked.get());
        // And one that is different each time.
        let wild = std::cell::Cell::new(7_u32);
        fit(&|_| wild.replace(wild.get().wrapping_mul(1_103_515_245)) % 4000, "", &mut pieces(), "", 500);
    }
}
