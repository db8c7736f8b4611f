//! The layout against the `hdrhistogram` crate, ranks against a sorted list.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;

fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// Log-uniform from 1 µs to 20 min.
#[expect(clippy::print_stdout, reason = "a failing test shows its seed")]
fn durations(seed: u64, n: usize) -> Vec<Duration> {
    println!("seed {seed}");
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..n).map(|_| Duration::from_secs_f64(10_f64.powf(rng.random_range(-6.0..3.08)))).collect()
}

fn counted(durations: &[Duration]) -> Counts {
    let mut counts = Counts::default();
    durations.iter().for_each(|duration| counts.record(*duration, 1));
    counts
}

#[test]
fn buckets_are_those_of_hdrhistogram() {
    let hdr = hdrhistogram::Histogram::<u32>::new_with_bounds(1, HIGHEST_MICROS, 3).unwrap();
    for duration in durations(21, 50_000).into_iter().chain((0..5000).map(micros)) {
        let bucket = Bucket::of(duration);
        let value = u64::try_from(duration.as_micros()).unwrap().min(HIGHEST_MICROS);
        assert_eq!(bucket.lower_micros(), hdr.lowest_equivalent(value), "{duration:?}");
        assert_eq!(bucket.lower_micros() + bucket.width_micros(), hdr.next_non_equivalent(value), "{duration:?}");
    }
}

#[test]
fn every_bucket_begins_where_the_one_before_ends() {
    let mut next = 0;
    for number in 0..BUCKETS as u64 {
        let bucket = Bucket::from_number(number).unwrap();
        assert_eq!(bucket.lower_micros(), next, "{number}");
        assert_eq!((Bucket::of(bucket.lower()), Bucket::of(bucket.middle())), (bucket, bucket), "{number}");
        assert!(number < FINE || bucket.width_micros() * 1024 <= bucket.lower_micros());
        next += bucket.width_micros();
    }
    assert_eq!(Bucket::from_number(BUCKETS as u64), None);
    assert_eq!(BUCKETS, 20_601);
}

#[test]
fn durations_beyond_ten_minutes_are_in_the_last_bucket() {
    let last = Bucket::from_number(BUCKETS as u64 - 1).unwrap();
    assert_eq!([HIGHEST, HIGHEST * 2, Duration::MAX].map(Bucket::of), [last; 3]);
}

#[test]
fn a_rank_is_that_of_a_sorted_list_within_its_bucket() {
    let mut sorted = durations(22, 2000);
    let counts = counted(&sorted);
    sorted.sort_unstable();
    for rank in 1..=2000 {
        assert_eq!(counts.at_rank(rank), Some(Bucket::of(sorted[usize::try_from(rank).unwrap() - 1])), "{rank}");
    }
    assert_eq!(counts.at_ranks([2001, 0, 2000, 1]).map(|bucket| bucket.is_some()), [false, false, true, true]);
    assert_eq!(Counts::default().at_rank(1), None);
}

#[test]
fn ranks_agree_with_hdrhistogram() {
    let durations = durations(23, 5000);
    let counts = counted(&durations);
    let mut hdr = hdrhistogram::Histogram::<u32>::new_with_bounds(1, HIGHEST_MICROS, 3).unwrap();
    for duration in &durations {
        hdr.record(u64::try_from(duration.as_micros()).unwrap().min(HIGHEST_MICROS)).unwrap();
    }
    for (q, rank) in [(0.5, 2500), (0.9, 4500), (0.95, 4750), (0.99, 4950), (0.999, 4995)] {
        let bucket = counts.at_rank(rank).unwrap();
        assert_eq!(bucket.lower_micros(), hdr.lowest_equivalent(hdr.value_at_quantile(q)), "{q}");
    }
}

#[test]
fn adding_and_subtracting_leaves_what_was_there() {
    let (kept, gone) = (durations(24, 500), durations(25, 500));
    let mut counts = counted(&kept);
    counts.merge(&counted(&gone));
    assert_eq!(counts.total(), 1000);
    for (bucket, n) in counted(&gone).iter() {
        counts.subtract(bucket, n);
    }
    assert_eq!(counts, counted(&kept));
    counts.clear();
    assert_eq!((counts.total(), counts.iter().count()), (0, 0));
}

#[test]
fn memory_is_what_the_header_says() {
    // Three octaves, 100 to 800 ms.
    let mut three_octaves = Counts::default();
    (100_000..800_000).step_by(50).for_each(|at| three_octaves.record(micros(at), 1));
    assert!(three_octaves.pages.len() * 512 <= 27_000, "{}", three_octaves.pages.len());
    let mut all = Counts::default();
    (0..BUCKETS as u64).filter_map(Bucket::from_number).for_each(|bucket| all.add(bucket, 1));
    assert!(all.pages.len() * 512 <= 166_000, "{}", all.pages.len());
    assert_eq!(size_of::<Counts>(), 680);
}
