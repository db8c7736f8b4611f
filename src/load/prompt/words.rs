//! The built-in words, and lengths estimated by them.

use std::sync::LazyLock;

use super::Count;
use crate::domain::prompt::Message;

/// Ordinary short English words. Most tokenizers make one token of each with its leading space.
pub(crate) const WORDS: [&str; 64] = [
    "about",
    "after",
    "again",
    "air",
    "animal",
    "answer",
    "back",
    "begin",
    "book",
    "boy",
    "call",
    "change",
    "city",
    "close",
    "country",
    "day",
    "different",
    "door",
    "earth",
    "end",
    "example",
    "eye",
    "face",
    "family",
    "far",
    "father",
    "find",
    "food",
    "form",
    "friend",
    "good",
    "group",
    "grow",
    "hand",
    "head",
    "help",
    "home",
    "house",
    "idea",
    "land",
    "large",
    "learn",
    "letter",
    "life",
    "light",
    "line",
    "list",
    "long",
    "main",
    "mother",
    "mountain",
    "move",
    "music",
    "name",
    "night",
    "number",
    "paper",
    "part",
    "people",
    "place",
    "plant",
    "river",
    "school",
    "sea",
];

/// The words as pieces of a text, each with the space in front of it.
static PIECES: LazyLock<Vec<String>> = LazyLock::new(|| WORDS.iter().map(|word| format!(" {word}")).collect());

/// Lengths without a tokenizer: a request is taken to have `overhead + ratio * words` tokens, rounded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Words {
    overhead: f64,
    ratio: f64,
}

impl Words {
    /// The estimate that was learnt from what the server counted. What is no number, or not above 0 as a ratio, is taken as
    /// if nothing had been learnt.
    #[must_use]
    pub fn new(overhead: f64, ratio: f64) -> Self {
        let sound = overhead.is_finite() && overhead >= 0.0 && ratio.is_finite() && ratio > 0.0;
        if sound { Self { overhead, ratio } } else { Self::default() }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and the cast saturates")]
    fn tokens(self, overhead: f64, words: usize) -> u32 {
        let words = f64::from(u32::try_from(words).unwrap_or(u32::MAX));
        self.ratio.mul_add(words, overhead).round() as u32
    }
}

impl Default for Words {
    /// A word is a token, and nothing is added.
    fn default() -> Self {
        Self { overhead: 0.0, ratio: 1.0 }
    }
}

impl Count for Words {
    fn chat(&self, messages: &[Message]) -> u32 {
        self.tokens(self.overhead, messages.iter().map(|message| message.text.split_whitespace().count()).sum())
    }

    fn completion(&self, text: &str) -> u32 {
        self.tokens(self.overhead, text.split_whitespace().count())
    }

    fn plain(&self, text: &str) -> u32 {
        self.tokens(0.0, text.split_whitespace().count())
    }

    fn pieces(&self) -> &[String] {
        &PIECES
    }

    fn identity(&self) -> String {
        format!("words({:?},{:?})", self.overhead, self.ratio)
    }

    fn is_exact(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_linear_in_the_words() {
        let words = Words::new(8.0, 1.5);
        assert_eq!((words.chat(&[Message::user("a b"), Message::user("c")]), words.plain("a b\n c")), (13, 5));
        assert_eq!(words.completion(""), 8);
    }

    #[test]
    fn nonsense_is_not_learnt() {
        for (overhead, ratio) in [(f64::NAN, 1.0), (0.0, 0.0), (-1.0, 1.0), (0.0, f64::INFINITY), (0.0, -2.0)] {
            assert_eq!(Words::new(overhead, ratio), Words::default());
        }
    }

    #[test]
    fn no_two_words_are_alike() {
        let distinct: std::collections::BTreeSet<_> = WORDS.iter().collect();
        assert_eq!(distinct.len(), WORDS.len());
    }
}
