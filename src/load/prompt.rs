//! What is sent. So far one source: words drawn from a built-in list.
//!
//! A prompt is a pure function of (seed, index, lengths): the same configuration sends the same bytes on any machine.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::config::sections::Workload;
use crate::domain::prompt::Prompt;

/// Ordinary short English words. Most tokenizers make one token of each with its leading space.
const WORDS: [&str; 64] = [
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

/// Asks for a short answer, so that a server which does not honour `ignore_eos` shows it by stopping early.
const CLOSING: &str = "\n\nReply with the single word: yes.";

/// The prompt with this index: `input_tokens` words, then a request for a short answer.
///
/// The length is in words, not in tokens of the model; the first word differs between indices more often than not, and the
/// index itself stands in front, so that no two prompts share a prefix.
#[must_use]
pub fn words(workload: &Workload, index: u64) -> Prompt {
    let mut seed = [0; 32];
    for (place, byte) in seed.iter_mut().zip(workload.seed.to_le_bytes().into_iter().chain(index.to_le_bytes())) {
        *place = byte;
    }
    let mut rng = ChaCha8Rng::from_seed(seed);
    let mut text = format!("{index}:");
    for _ in 0..workload.input_tokens.get() {
        text.push(' ');
        text.push_str(WORDS[rng.random_range(0..WORDS.len())]);
    }
    text.push_str(CLOSING);
    Prompt { text, output_tokens: workload.output_tokens.get() }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn workload(seed: u64, input: u32) -> Workload {
        let tokens = |n| NonZeroU32::new(n).unwrap();
        Workload { input_tokens: tokens(input), output_tokens: tokens(9), seed }
    }

    #[test]
    fn a_prompt_is_a_function_of_seed_and_index() {
        assert_eq!(words(&workload(1, 20), 7), words(&workload(1, 20), 7));
        assert_ne!(words(&workload(1, 20), 7), words(&workload(2, 20), 7));
        assert_ne!(words(&workload(1, 20), 7), words(&workload(1, 20), 8));
    }

    #[test]
    fn the_bytes_of_a_prompt_are_the_same_on_every_machine() {
        // Written down once: a change here is a change of every baseline.
        assert_eq!(
            words(&workload(1000, 4), 0).text,
            "0: mountain begin father mountain\n\nReply with the single word: yes."
        );
    }

    #[test]
    fn it_has_as_many_words_as_asked_for() {
        let prompt = words(&workload(3, 250), 1);
        assert_eq!(prompt.text.strip_suffix(CLOSING).unwrap().split_whitespace().count(), 251);
        assert_eq!(prompt.output_tokens, 9);
    }
}
