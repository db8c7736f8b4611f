use std::path::Path;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::domain::prompt::{Message, Role};
use crate::load::prompt::words;
use crate::tokens::Tokenizer;

/// As many of the words that prompts are made of.
const WORDS: usize = 24;

/// A server with this tokenizer, asked for so many words.
fn served(tokenizer: &Tokenizer, words: u32, seed: u64) -> u32 {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let words: Vec<_> = (0..words).map(|_| words::WORDS[random.random_range(0..WORDS)]).collect();
    tokenizer.count_chat(&[Message { role: Role::User, text: words.join(" ") }]).unwrap()
}

#[test]
fn six_counts_teach_three_tokenizers_to_within_two_percent_but_unigram_only_from_1000_tokens() {
    // The words are not all one token in vocabularies as small as these, so a short prompt scatters by more than 2 %: the
    // mean of 64 is held to it, and each single one at the long lengths only.
    for family in ["byte-level-bpe", "unigram", "wordpiece"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tokenizers").join(family);
        let tokenizer = Tokenizer::open(&folder).unwrap();
        let mut calibration = Calibration::new();
        for (seed, words) in (0..).zip(PROBES) {
            calibration.learn(words, served(&tokenizer, words, seed));
        }
        assert!(calibration.is_settled(), "{family}: {calibration:?}");
        for target in [64_u32, 128, 256, 1024, 4096, 8192] {
            let words = calibration.words_for(target);
            let counts: Vec<_> = (0..64).map(|seed| f64::from(served(&tokenizer, words, 1000 + seed))).collect();
            let target = f64::from(target);
            let mean = counts.iter().sum::<f64>() / 64.0;
            // Not reached: six scattered counts leave the overhead of Unigram off by 8 tokens, which is 13 % of 64.
            let missed = family == "unigram" && target < 1000.0;
            let allowed = if missed { 0.15 } else { 0.02 };
            assert!((mean - target).abs() <= allowed * target, "{family}, {target}: {mean} for {words} words");
            let worst = counts.iter().map(|count| (count - target).abs() / target).fold(0.0, f64::max);
            let scatters = target < 1000.0 || (family == "unigram" && target < 8000.0);
            // The first word has no blank in front of it, and may be three tokens for that.
            assert!(scatters || worst <= f64::max(0.02, 3.0 / target), "{family}, {target}: one is off by {worst}");
        }
    }
}

#[test]
fn an_exact_line_is_found_exactly() {
    for (overhead, ratio) in [(0, 1), (9, 1), (38, 3), (2000, 2)] {
        let mut calibration = Calibration::new();
        for words in PROBES {
            calibration.learn(words, overhead + ratio * words);
        }
        assert!(calibration.is_settled());
        for words in [1, 10, 333, 8000] {
            assert_eq!(calibration.words_for(overhead + ratio * words), words, "{overhead} + {ratio} a word");
            assert_eq!(calibration.tokens_for(words), overhead + ratio * words);
        }
    }
}

#[test]
fn once_settled_nothing_changes_it() {
    let mut calibration = Calibration::new();
    for words in PROBES {
        calibration.learn(words, 5 + words);
    }
    let before = calibration.clone();
    for words in [1, 100, 5000] {
        calibration.learn(words, words * 3);
    }
    assert_eq!(calibration, before);
}

#[test]
fn a_quarter_of_absurd_counts_does_not_move_it() {
    let mut calibration = Calibration::new();
    for (index, words) in PROBES.into_iter().chain(PROBES).enumerate() {
        let counted = if index % 4 == 1 { words * 9 } else { 20 + words };
        calibration.learn(words, counted);
        if calibration.is_settled() {
            break;
        }
    }
    assert!(calibration.is_settled(), "{calibration:?}");
    assert_eq!(calibration.words_for(1020), 1000);
}

#[test]
fn impossible_counts_are_left_out_and_nothing_panics() {
    let mut calibration = Calibration::new();
    for (words, counted) in [(0, 0), (0, 50), (100, 0), (100, u32::MAX), (u32::MAX, 1), (1000, 3), (10, 900_000)] {
        calibration.learn(words, counted);
    }
    assert_eq!(calibration, Calibration::new());
    let mut random = ChaCha8Rng::seed_from_u64(9);
    for _ in 0..2000 {
        calibration.learn(
            random.random::<u32>() >> random.random_range(0..32),
            random.random::<u32>() >> random.random_range(0..32),
        );
        assert!(
            calibration.words_for(256) >= 1 && calibration.words_for(u32::MAX) >= 1 && calibration.words_for(0) == 1
        );
    }
}

#[test]
fn one_length_alone_corrects_the_estimate_and_does_not_settle_it() {
    let mut calibration = Calibration::new();
    for _ in 0..20 {
        calibration.learn(200, 600);
    }
    assert!(!calibration.is_settled());
    assert_eq!(calibration.words_for(600), 200);
}

#[test]
fn a_server_that_agrees_late_is_learnt_yet() {
    let mut calibration = Calibration::new();
    for (words, counted) in [(10, 150), (20, 30), (30, 260), (40, 70)] {
        calibration.learn(words, counted);
    }
    for words in PROBES.into_iter().cycle().take(18) {
        calibration.learn(words, 12 + 2 * words);
    }
    assert!(calibration.is_settled());
    assert_eq!(calibration.words_for(412), 200);
}
