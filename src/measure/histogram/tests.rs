//! Indices against a slow oracle; the classic and the native form against the values themselves.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;

const LAST_INDEX: i32 = 24 * 32;

/// The definition read aloud: the first bucket whose upper bound is not below the value.
fn oracle(value: f64, bounds: &[f64]) -> Option<i32> {
    let at = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len() - 1);
    (at > 0).then(|| FIRST_INDEX - 1 + i32::try_from(at).unwrap())
}

fn bounds() -> Vec<f64> {
    (FIRST_INDEX - 1..=LAST_INDEX).map(upper_bound).collect()
}

fn index(value: f64) -> Option<i32> {
    Place::of(value).unwrap().index()
}

fn filled(values: &[f64]) -> Histogram {
    let mut histogram = Histogram::default();
    values.iter().for_each(|value| histogram.record(*value, 1));
    histogram
}

/// Log-uniform over eight decades, with some zeros and some bounds.
#[expect(clippy::print_stdout, reason = "a failing test shows its seed")]
fn values(seed: u64, n: usize) -> Vec<f64> {
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut value = |_| match rng.random_range(0..20) {
        0 => 0.0,
        1..4 => upper_bound(rng.random_range(-320..320)),
        _ => 10_f64.powf(rng.random_range(-5.0..3.0)),
    };
    (0..n).map(&mut value).collect()
}

#[test]
fn bounds_are_the_powers_they_claim_to_be() {
    for index in FIRST_INDEX - 1..=LAST_INDEX {
        let (bound, power) = (upper_bound(index), (f64::from(index) / 32.0).exp2());
        assert!((power.next_down()..=power.next_up()).contains(&bound), "{index}: {bound} is not {power}");
    }
    // As client_golang has them, for the octave that ends at 1.
    for (index, bound) in [(-32, 0.5), (-31, 0.510_948_574_327_058_3), (-24, 0.594_603_557_501_360_5), (0, 1.0)] {
        assert!(upper_bound(index).to_bits() == f64::to_bits(bound), "{index}");
    }
}

#[test]
fn the_index_is_exact_at_every_bound_and_one_ulp_beside_it() {
    let bounds = bounds();
    for bound in &bounds {
        for value in [bound.next_down(), *bound, bound.next_up()] {
            assert_eq!(index(value), oracle(value, &bounds), "{value:e}");
        }
    }
}

#[test]
fn the_index_of_any_value_is_the_oracle_s() {
    let bounds = bounds();
    for value in values(11, 20_000) {
        assert_eq!(index(value), oracle(value, &bounds), "{value:e}");
    }
}

#[test]
fn values_beyond_the_range_are_counted_at_its_ends() {
    for small in [0.0, f64::MIN_POSITIVE, 1e-310, 1e-9, zero_threshold()] {
        assert_eq!(index(small), None, "{small:e}");
    }
    for large in [1.7e7, 1e30, f64::MAX] {
        assert_eq!(index(large), Some(LAST_INDEX), "{large:e}");
    }
}

#[test]
fn what_is_no_measurement_is_not_counted() {
    let histogram = filled(&[-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -f64::MIN_POSITIVE]);
    assert_eq!((histogram.count(), histogram.buckets().count()), (0, 0));
    assert_eq!(filled(&[-0.0]).zero_count(), 1);
}

#[test]
fn classic_counts_are_the_values_at_or_below_each_bound() {
    let values = values(12, 3000);
    let histogram = filled(&values);
    for classic in [
        ClassicBounds::eighths(0.005, 120.0),
        ClassicBounds::powers_of_two(0.001, 600.0),
        ClassicBounds::nearest(&[0.001, 0.005, 0.01, 0.5, 2.5, 40.0]),
    ] {
        let expected: Vec<u64> = classic
            .upper_bounds()
            .map(|bound| u64::try_from(values.iter().filter(|value| **value <= bound).count()).unwrap())
            .collect();
        assert_eq!(histogram.classic(&classic), expected);
    }
    assert_eq!(histogram.count(), 3000);
}

#[test]
fn classic_bounds_enclose_the_range_that_is_asked_for() {
    let all = |bounds: ClassicBounds| bounds.upper_bounds().collect::<Vec<_>>();
    let ttft = all(ClassicBounds::eighths(0.005, 120.0));
    assert_eq!(ttft.len(), 119);
    assert!(ttft[0] <= 0.005 && ttft[1] > 0.005 && ttft[118] >= 120.0 && ttft[117] < 120.0);
    assert_eq!(all(ClassicBounds::powers_of_two(1.0, 8.0)), [1.0, 2.0, 4.0, 8.0]);
    assert_eq!(all(ClassicBounds::powers_of_two(0.9, 8.1)), [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]);
    let nearest = all(ClassicBounds::nearest(&[0.1, 0.01, 0.010_01, -1.0, f64::NAN, 1.0]));
    assert_eq!(nearest.len(), 3);
    for (bound, asked) in nearest.iter().zip([0.01_f64, 0.1, 1.0]) {
        assert!((bound / asked).ln().abs() <= 2_f64.ln() / 64.0 + 1e-12, "{bound} for {asked}");
    }
}

/// Reads the spans and deltas back, as a scraper does.
fn read_back(native: &Native) -> Vec<(i32, i64)> {
    let (mut at, mut count) = (0, 0);
    let mut deltas = native.deltas.iter();
    let mut buckets = Vec::new();
    for span in &native.spans {
        at += span.offset;
        for _ in 0..span.length {
            count += deltas.next().unwrap();
            buckets.push((at, count));
            at += 1;
        }
    }
    assert_eq!(deltas.next(), None);
    buckets
}

#[test]
fn the_native_form_says_what_the_buckets_say() {
    let histogram = filled(&values(13, 200));
    let native = histogram.native(MAX_NATIVE_BUCKETS);
    assert_eq!((native.schema, native.zero_count), (SCHEMA, histogram.zero_count()));
    let expected: Vec<_> = histogram.buckets().map(|(index, n)| (index, i64::try_from(n).unwrap())).collect();
    assert_eq!(read_back(&native), expected);
    assert_eq!(Histogram::default().native(MAX_NATIVE_BUCKETS).spans, []);
}

#[test]
fn too_many_native_buckets_halve_the_resolution_and_lose_no_count() {
    let values = values(14, 50_000);
    let histogram = filled(&values);
    assert!(histogram.buckets().count() > 600);
    for most in [300, 100, 10] {
        let native = histogram.native(most);
        let buckets = read_back(&native);
        assert!(buckets.len() <= most && native.schema < SCHEMA, "{most}");
        // Every bucket (base^(i-1), base^i] holds the values that lie in it.
        let base_log2 = (-f64::from(native.schema)).exp2();
        for (index, n) in buckets {
            let bound = |index: i32| (f64::from(index) * base_log2 * 32.0).round();
            let holds = |value: &f64| {
                self::index(*value).is_some_and(|at| f64::from(at) > bound(index - 1) && f64::from(at) <= bound(index))
            };
            assert_eq!(n, i64::try_from(values.iter().filter(|value| holds(value)).count()).unwrap());
        }
    }
}

#[test]
fn merging_parts_gives_the_whole() {
    let values = values(15, 4000);
    let mut rng = ChaCha8Rng::seed_from_u64(16);
    let mut parts = [Histogram::default(), Histogram::default(), Histogram::default()];
    for value in &values {
        parts[rng.random_range(0..3)].record(*value, 1);
    }
    let mut merged = Histogram::default();
    for part in &parts {
        merged.merge(part);
        merged.merge(&Histogram::default());
    }
    let whole = filled(&values);
    assert!(merged.buckets().eq(whole.buckets()));
    assert_eq!((merged.count(), merged.zero_count()), (whole.count(), whole.zero_count()));
    assert!((merged.sum() / values.iter().sum::<f64>() - 1.0).abs() < 1e-12);
}

#[test]
fn one_record_of_n_is_n_records_of_one() {
    let (mut once, mut often) = (Histogram::default(), Histogram::default());
    once.record(0.25, 7);
    (0..7).for_each(|_| often.record(0.25, 1));
    assert!(once.buckets().eq(often.buckets()) && (once.sum() - often.sum()).abs() < 1e-12);
}

#[test]
fn a_percentile_is_within_1_1_percent_of_the_value_of_its_rank() {
    let mut all: Vec<f64> = values(11, 5000).into_iter().filter(|value| *value > zero_threshold()).collect();
    let histogram = filled(&all);
    all.sort_by(f64::total_cmp);
    for percent in 1..=100_u8 {
        let exact = all[(all.len() * usize::from(percent)).div_ceil(100) - 1];
        let told = histogram.percentile(percent).unwrap();
        assert!((told / exact - 1.0).abs() < 0.011, "P{percent}: {told} for {exact}");
    }
    assert_eq!(Histogram::default().percentile(50), None);
    assert_eq!(filled(&[0.0]).percentile(99), Some(zero_threshold()));
    assert_eq!(filled(&[0.25]).percentile(50), filled(&[0.25]).percentile(99));
}

#[test]
fn what_came_since_is_what_was_recorded_since() {
    let (before, after) = (values(12, 300), values(13, 300));
    let earlier = filled(&before);
    let mut now = earlier.clone();
    now.merge(&filled(&after));
    let (since, alone) = (now.since(&earlier), filled(&after));
    assert_eq!((since.count(), since.zero_count()), (alone.count(), alone.zero_count()));
    assert!(since.buckets().eq(alone.buckets()));
    assert!((since.sum() - alone.sum()).abs() < 1e-9 * now.sum());
    // A block that was empty, and one that has grown downwards in the meantime.
    assert!(earlier.since(&Histogram::default()).buckets().eq(earlier.buckets()));
    let mut grown = filled(&[1.0]);
    let old = grown.clone();
    grown.record(0.001, 2);
    assert!(grown.since(&old).buckets().eq(filled(&[0.001, 0.001]).buckets()));
}
