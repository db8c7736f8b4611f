use std::num::NonZeroU32;

use super::*;
use crate::config::sections::Share;
use crate::load::schedule::plan::Shard;

fn tokens(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

fn bounds(min: u32, max: u32) -> Bounds {
    Bounds { min: tokens(min), max: tokens(max) }
}

/// Lengths of the first so many places, in their order of size.
fn drawn(length: &Length, n: u64) -> Vec<u32> {
    let of = |index| Draw::new(5, Scope::Load("l"), Purpose::InputLength, (index, 0)).length(length);
    let mut all: Vec<_> = (0..n).map(of).collect();
    all.sort_unstable();
    all
}

/// Mean and the quantiles 0.1, 0.5, 0.9.
fn figures(length: &Length) -> [f64; 4] {
    let all = drawn(length, 20_000);
    let sum: f64 = all.iter().copied().map(f64::from).sum();
    let quantile = |at: usize| f64::from(all[all.len() * at / 10]);
    [sum / 20_000.0, quantile(1), quantile(5), quantile(9)]
}

/// Within `share` of what is wanted.
fn assert_near(length: &Length, want: [f64; 4], share: f64) {
    let got = figures(length);
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() <= share * want, "{length}: {got} is not {want}");
    }
    // The plan counts with the formula.
    assert!((length.mean() - got[0]).abs() <= share * got[0], "{length}: {} is not {}", length.mean(), got[0]);
}

#[test]
fn each_distribution_has_the_mean_and_the_quantiles_of_its_formula() {
    const Z90: f64 = 1.281_551_565_5;
    assert_near(&Length::Fixed(tokens(7)), [7.0; 4], 0.0);
    assert_near(&Length::Uniform(bounds(100, 300)), [200.0, 120.0, 200.0, 280.0], 0.02);
    let wide = bounds(1, 1_000_000);
    let spread = 64.0 * Z90;
    let normal = Length::Normal { mean: 256.0, sd: 64.0, bounds: wide };
    assert_near(&normal, [256.0, 256.0 - spread, 256.0, 256.0 + spread], 0.02);
    let (sigma, median) = (0.5_f64, 300.0);
    let factor = (sigma * Z90).exp();
    let log_normal = Length::LogNormal { median, sigma, bounds: wide };
    assert_near(&log_normal, [median * (sigma * sigma / 2.0).exp(), median / factor, median, median * factor], 0.03);
    let share = |weight, length| Share { weight, length };
    let mixture =
        Length::Mixture(vec![share(3.0, Length::Fixed(tokens(100))), share(1.0, Length::Uniform(bounds(1000, 2000)))]);
    assert_near(&mixture, [450.0, 100.0, 100.0, 1600.0], 0.03);
}

#[test]
fn what_is_outside_of_the_bounds_is_put_on_them() {
    let length = Length::Normal { mean: 100.0, sd: 50.0, bounds: bounds(80, 130) };
    let all = drawn(&length, 20_000);
    let share = |of: u32| all.iter().filter(|drawn| **drawn == of).count();
    assert_eq!((all[0], all[all.len() - 1]), (80, 130));
    // P(z < -0.39) and P(z > 0.59), the bounds being rounded to.
    assert!((6800..7150).contains(&share(80)) && (5350..5750).contains(&share(130)), "{} {}", share(80), share(130));
    let mean = all.iter().copied().map(f64::from).sum::<f64>() / 20_000.0;
    assert!((length.mean() - mean).abs() < 0.5, "{} {mean}", length.mean());
    // So wide that the formula has to see a bell a hundredth of it.
    let wide = Length::LogNormal { median: 3000.0, sigma: 0.2, bounds: bounds(1, 1_000_000) };
    assert!((wide.mean() / 3060.6 - 1.0).abs() < 0.002, "{}", wide.mean());
}

#[test]
fn a_length_is_the_same_on_every_machine() {
    // Written down once: a change here is a change of every baseline.
    let log_normal = Length::LogNormal { median: 300.0, sigma: 0.5, bounds: bounds(1, 4096) };
    let of =
        |length: &Length, n: u64| Draw::new(1000, Scope::Load("chat"), Purpose::InputLength, (n, 0)).length(length);
    let lengths: Vec<_> = (0..6).map(|n| of(&log_normal, n)).collect();
    let normal = Length::Normal { mean: 256.0, sd: 64.0, bounds: bounds(1, 4096) };
    let normals: Vec<_> = (0..6).map(|n| of(&normal, n)).collect();
    let uniform: Vec<_> = (0..6).map(|n| of(&Length::Uniform(bounds(1, 1000)), n)).collect();
    assert_eq!(
        (lengths, normals, uniform),
        (vec![178, 457, 976, 726, 204, 430], vec![189, 310, 407, 369, 207, 302], vec![577, 698, 34, 60, 495, 737])
    );
}

#[test]
fn everything_that_tells_places_apart_is_in_the_seed() {
    let stream = |load: &str, index, part| {
        let shard = Shard::new(index, tokens(7)).unwrap();
        Stream { load: load.to_owned(), shard, part }
    };
    let base = stream("a", 0, Part::Measured);
    let one = |seed, stream: &Stream, purpose, place| digest(seed, Scope::Stream(stream), purpose, place);
    let mut all = vec![
        one(1, &base, Purpose::Salt, (0, 0)),
        one(2, &base, Purpose::Salt, (0, 0)),
        one(1, &base, Purpose::Question, (0, 0)),
        one(1, &base, Purpose::Salt, (1, 0)),
        one(1, &base, Purpose::Salt, (0, 1)),
        one(1, &stream("b", 0, Part::Measured), Purpose::Salt, (0, 0)),
        one(1, &stream("a", 1, Part::Measured), Purpose::Salt, (0, 0)),
        one(1, &stream("a", 0, Part::WarmUp), Purpose::Salt, (0, 0)),
        one(1, &stream("a", 0, Part::Level(0)), Purpose::Salt, (0, 0)),
        one(1, &stream("a", 0, Part::Level(1)), Purpose::Salt, (0, 0)),
        one(1, &Stream { shard: Shard::WHOLE, ..base.clone() }, Purpose::Salt, (0, 0)),
        digest(1, Scope::Load("a"), Purpose::Salt, (0, 0)),
    ];
    let n = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), n);
}

#[test]
fn the_salt_has_thirteen_words_and_each_of_its_bits_counts() {
    let mut digest = [0; 32];
    assert_eq!(salt(digest).collect::<Vec<_>>(), [0; 13]);
    for bit in 0..78 {
        digest = [0; 32];
        digest[15 - bit / 8] = 1 << (bit % 8);
        let words: Vec<_> = salt(digest).collect();
        assert_eq!((words[bit / 6], words.iter().filter(|word| **word != 0).count()), (1 << (bit % 6), 1), "{bit}");
    }
}
