use std::cell::Cell;
use std::path::Path;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::domain::prompt::{Message, Role};
use crate::tokens::Tokenizer;

fn open(family: &str) -> Tokenizer {
    Tokenizer::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tokenizers").join(family)).unwrap()
}

/// Fits, and returns how many counts it took as well.
fn counting(
    count: &dyn Fn(&str) -> u32,
    front: &str,
    pieces: &mut dyn FnMut() -> String,
    back: &str,
    target: u32,
) -> (Fitted, u32) {
    let counts = Cell::new(0);
    let counted = |text: &str| {
        counts.set(counts.get() + 1);
        count(text)
    };
    let fitted = fit(&counted, front, pieces, back, target);
    assert_eq!(count(&fitted.text), fitted.counted, "what is said of the text is so");
    assert!(fitted.text.starts_with(front) && fitted.text.ends_with(back));
    (fitted, counts.get())
}

fn words(text: &str) -> u32 {
    u32::try_from(text.split_whitespace().count()).unwrap()
}

#[test]
fn random_text_of_three_families_has_exactly_the_length_asked_for() {
    for family in ["byte-level-bpe", "unigram", "wordpiece"] {
        let tokenizer = open(family);
        let chat = |text: &str| tokenizer.count_chat(&[Message { role: Role::User, text: text.to_owned() }]).unwrap();
        let text = |text: &str| tokenizer.count_text(text);
        for seed in 0..6 {
            for target in [96, 97, 128, 255, 256, 1000, 4096] {
                for (name, count) in [("chat", &chat as &dyn Fn(&str) -> u32), ("text", &text)] {
                    let mut random = ChaCha8Rng::seed_from_u64(seed);
                    let ordinary = tokenizer.ordinary();
                    let mut pieces = || ordinary[random.random_range(0..ordinary.len())].clone();
                    let (fitted, counts) = counting(count, "s4lt:", &mut pieces, "\nSay it again.", target);
                    // WordPiece's template writes a lone message twice, so that a word more is two tokens more.
                    let apart = u32::from(family == "wordpiece" && name == "chat");
                    let off = fitted.counted.abs_diff(target);
                    assert!(off <= apart, "{family}, {name}, seed {seed}: {} for {target}", fitted.counted);
                    assert!(counts <= 30, "{family}, {name}, seed {seed}, {target}: {counts} counts");
                }
            }
        }
    }
}

#[test]
fn a_long_text_takes_few_counts() {
    let tokenizer = open("byte-level-bpe");
    let count = |text: &str| tokenizer.count_plain(text);
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let ordinary = tokenizer.ordinary();
    let mut pieces = || ordinary[random.random_range(0..ordinary.len())].clone();
    let (fitted, counts) = counting(&count, "a", &mut pieces, "", 32_768);
    assert_eq!(fitted.counted, 32_768);
    assert!(counts <= 16, "{counts} counts");
}

#[test]
fn lines_of_text_are_cut_and_filled_to_the_length() {
    for family in ["byte-level-bpe", "unigram", "wordpiece"] {
        let tokenizer = open(family);
        let count = |text: &str| tokenizer.count_text(text);
        for target in 40..160 {
            let mut line = 0;
            let mut lines = || {
                line += 1;
                format!("Line {line} of a text whose lines are long, and \u{6771}\u{4eac}, with \u{1f600} in it.\n")
            };
            let (fitted, _) = counting(&count, "", &mut lines, "end", target);
            assert_eq!(fitted.counted, target, "{family}");
        }
    }
}

#[test]
fn the_same_arguments_give_the_same_text() {
    let make = || {
        let mut index = 0;
        let mut pieces = || {
            index += 1;
            format!(" w{index}")
        };
        fit(&words, "front", &mut pieces, " back", 500)
    };
    assert_eq!(make(), make());
    assert_eq!(make().counted, 500);
}

#[test]
fn a_target_below_front_and_back_gives_both_as_they_are() {
    let mut none = || -> String { panic!("no piece is needed") };
    for target in [0, 1, 4] {
        let (fitted, counts) = counting(&words, "one two", &mut none, " three four", target);
        assert_eq!((fitted.text.as_str(), fitted.counted, counts), ("one two three four", 4, 1));
    }
}

#[test]
fn a_length_that_cannot_be_reached_gives_the_nearest() {
    // Counts in threes: 100 cannot be had.
    let threes = |text: &str| words(text) * 3;
    let (fitted, counts) = counting(&threes, "", &mut || " w".to_owned(), "", 100);
    assert_eq!(fitted.counted, 99);
    assert!(counts <= MAX_COUNTS);
}

#[test]
fn a_hostile_count_or_source_of_pieces_ends() {
    let calls = Cell::new(0_u32);
    let alternating = |_: &str| {
        calls.set(calls.get() + 1);
        if calls.get().is_multiple_of(2) { u32::MAX } else { 0 }
    };
    let noise = |text: &str| u32::try_from(text.len()).unwrap().wrapping_mul(2_654_435_761) >> 12;
    let counts: [&dyn Fn(&str) -> u32; 5] = [&|_| 0, &|_| 7, &|_| u32::MAX, &alternating, &noise];
    for (index, count) in counts.into_iter().enumerate() {
        for piece in ["", " ", "\u{1f600}", " a long piece of many words"] {
            for target in [0, 1, 10, 10_000] {
                let fitted = fit(count, "f", &mut || piece.to_owned(), "b", target);
                let most = 64 * 10_000 + 64 * 10_000 + 100;
                assert!(fitted.text.len() <= most, "count {index}, {piece:?}, {target}: {}", fitted.text.len());
            }
        }
    }
}

#[test]
fn no_count_is_taken_beyond_the_limit() {
    for tokens in 1..12 {
        // A word of this many tokens, borders that merge every third letter.
        let count = |text: &str| words(text) * tokens + u32::try_from(text.len() % 3).unwrap();
        for target in [20, 333, 5000] {
            let (_, counts) = counting(&count, "f", &mut || " some words of a line".to_owned(), "b", target);
            assert!(counts <= MAX_COUNTS, "{counts}");
        }
    }
}
