//! What a prompt of an exact length costs: `fit` over random pieces of a vocabulary, per prompt.
//!
//! The vocabulary is the small byte-level one of the tests (1,200 entries); a large one has longer tokens, so as many
//! tokens are about three times as many bytes. `count` is a single count of a text of that length, the floor.
//!
//!     cargo bench --bench prompts

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::path::Path;

use divan::Bencher;
use divan::counter::ItemsCount;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use steadyload::tokens::{Fitted, Tokenizer, fit};

const LENGTHS: [u32; 3] = [256, 4096, 32_768];

fn main() {
    divan::main();
}

fn tokenizer() -> Tokenizer {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tokenizers/byte-level-bpe");
    let tokenizer = Tokenizer::open(&folder).unwrap();
    assert!(!tokenizer.ordinary().is_empty());
    tokenizer
}

fn fitted(tokenizer: &Tokenizer, seed: u64, target: u32) -> Fitted {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let ordinary = tokenizer.ordinary();
    let mut piece = || ordinary.get(random.random_range(0..ordinary.len())).unwrap().clone();
    fit(&|text| tokenizer.count_plain(text), "front", &mut piece, "", target)
}

#[divan::bench(args = LENGTHS, sample_count = 20)]
fn fit_random(bencher: Bencher<'_, '_>, target: u32) {
    let tokenizer = tokenizer();
    let mut seed = 0;
    bencher
        .counter(ItemsCount::new(1_u32))
        .with_inputs(|| {
            seed += 1;
            seed
        })
        .bench_local_values(|seed| fitted(&tokenizer, seed, target));
}

#[divan::bench(args = LENGTHS, sample_count = 20)]
fn count(bencher: Bencher<'_, '_>, target: u32) {
    let tokenizer = tokenizer();
    let text = fitted(&tokenizer, 0, target).text;
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| tokenizer.count_plain(&text));
}
