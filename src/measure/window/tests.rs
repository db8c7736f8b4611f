//! Windows against everything that went into them, over more than a day.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, LogNormal};

use super::gauge::Quantile;
use super::*;
use crate::measure::hdr::Bucket;

const START: u64 = 1_800_000_000;

#[expect(clippy::print_stdout, reason = "a failing test shows its seed")]
fn rng(seed: u64) -> ChaCha8Rng {
    println!("seed {seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

fn tally(metric: Metric, latencies: &[Duration]) -> Tally {
    let mut tally = Tally::default();
    latencies.iter().for_each(|latency| tally.record(metric, *latency, 1));
    tally
}

/// A minute's latencies, with stalls, zeros and empty minutes among them.
fn latencies(rng: &mut ChaCha8Rng) -> Vec<Duration> {
    let usual = LogNormal::new(-1.5, 0.5).unwrap();
    let n = if rng.random_bool(0.1) { 0 } else { rng.random_range(0..40) };
    let mut latency = |_| match rng.random_range(0..100) {
        0 => Duration::ZERO,
        1 => Duration::from_secs(rng.random_range(1..700)),
        _ => Duration::from_secs_f64(usual.sample(rng)),
    };
    (0..n).map(&mut latency).collect()
}

fn counts_of<'a>(minutes: impl IntoIterator<Item = &'a Vec<Duration>>) -> Counts {
    let mut counts = Counts::default();
    minutes.into_iter().flatten().for_each(|latency| counts.record(*latency, 1));
    counts
}

#[test]
fn a_window_is_one_histogram_over_its_minutes_for_more_than_a_day() {
    let mut rng = rng(51);
    let mut windows = Windows::default();
    let mut minutes: Vec<(Vec<Duration>, u64, bool)> = Vec::new();
    for minute in 0..RING + 150 {
        let latencies = latencies(&mut rng);
        // A minute arrives in several deltas.
        for part in latencies.chunks(7) {
            windows.absorb(&tally(Metric::Ttft, part));
        }
        let (covered, tainted) = (rng.random_range(0..=60_000), rng.random_bool(0.05));
        windows.close(START + 60 * (minute as u64 + 1), Duration::from_millis(covered), tainted);
        minutes.push((latencies, covered, tainted));
        if minute % 97 > 0 && minute < RING + 145 && minute > 62 {
            continue;
        }
        let gauges = windows.gauges();
        for length in Length::ALL {
            let newest = &minutes[minutes.len().saturating_sub(length.minutes())..];
            let expected = counts_of(newest.iter().map(|(latencies, ..)| latencies));
            assert_eq!(windows.counts(length, Metric::Ttft), &expected, "{length:?} at {minute}");
            assert_eq!(windows.counts(length, Metric::Tpot).total(), 0);
            let gauge = gauges.window(length);
            assert_eq!(
                gauge.covered.as_millis(),
                u128::from(newest.iter().map(|(_, covered, _)| covered).sum::<u64>())
            );
            assert_eq!(gauge.tainted_minutes as usize, newest.iter().filter(|(.., tainted)| *tainted).count());
            assert_eq!(gauge.metric(Metric::Ttft).samples, expected.total());
            assert!(gauge.metric(Metric::Tpot).quantile(Quantile::P50).is_none());
        }
    }
    assert_eq!(windows.minutes().len(), RING);
}

#[test]
fn a_quantile_of_merged_minutes_is_that_of_the_sorted_list_within_one_bucket() {
    let mut rng = rng(52);
    let mut windows = Windows::default();
    let mut all = Vec::new();
    for minute in 1..=60 {
        let latencies: Vec<_> = (0..20).flat_map(|_| latencies(&mut rng)).collect();
        windows.absorb(&tally(Metric::E2el, &latencies));
        windows.close(START + 60 * minute, MINUTE, false);
        all.extend(latencies);
    }
    all.sort_unstable();
    let at_rank = |rank: f64| all.get(format!("{:.0}", rank.ceil()).parse::<usize>().unwrap() - 1).copied();
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let n = all.len() as f64;
    let gauge = *windows.gauges().window(Length::Hour).metric(Metric::E2el);
    for (quantile, p) in Quantile::ALL.into_iter().zip([0.5, 0.9, 0.95, 0.99]) {
        let estimate = gauge.quantile(quantile).unwrap();
        let half = 1.96 * (p * (1.0 - p) / n).sqrt();
        let ends = [Some(estimate.value), estimate.lower, estimate.upper];
        for (value, rank) in ends.into_iter().zip([n * p, n * (p - half), n * (p + half)]) {
            assert_eq!(value.map(Bucket::of), at_rank(rank).map(Bucket::of), "{p} at rank {rank}");
        }
        assert!(estimate.lower.unwrap() <= estimate.value && estimate.value <= estimate.upper.unwrap());
    }
}

#[test]
fn the_open_minute_is_not_in_a_window() {
    let mut windows = Windows::default();
    windows.absorb(&tally(Metric::Ttft, &[Duration::from_millis(10)]));
    assert_eq!(windows.gauges().window(Length::Day).metric(Metric::Ttft).samples, 0);
    assert_eq!(windows.open().counts(Metric::Ttft).total(), 1);
    windows.close(START, MINUTE, false);
    assert_eq!(windows.gauges().window(Length::FiveMinutes).metric(Metric::Ttft).samples, 1);
    assert_eq!(windows.open(), &Tally::default());
}

#[test]
fn a_closed_minute_keeps_its_censored_requests_and_its_flag() {
    let mut windows = Windows::default();
    let mut slow = tally(Metric::Ttft, &[Duration::from_millis(10)]);
    slow.censor(Metric::Ttft, 1);
    windows.absorb(&slow);
    windows.absorb(&slow);
    let minute = windows.close(START + 60, Duration::from_secs(42), true);
    assert_eq!((minute.start_unix(), minute.covered(), minute.is_tainted()), (START, Duration::from_secs(42), true));
    assert_eq!((minute.metric(Metric::Ttft).samples(), minute.metric(Metric::Ttft).censored_high()), (2, 2));
    let gauges = windows.gauges();
    assert_eq!(gauges.window(Length::Hour).metric(Metric::Ttft).samples, 2, "shown, though tainted");
    assert_eq!(gauges.window(Length::Hour).tainted_minutes, 1);
}

#[test]
fn saved_minutes_make_the_same_windows_after_a_restart() {
    let mut rng = rng(53);
    let mut before = Windows::default();
    let mut log = Vec::new();
    for minute in 1..=100 {
        before.absorb(&tally(Metric::Tpot, &latencies(&mut rng)));
        log.push(before.close(START + 60 * minute, MINUTE, minute % 9 == 0).encode());
    }
    let mut after = Windows::default();
    log.iter().for_each(|bytes| after.push(Arc::new(SubWindow::decode(bytes).unwrap())));
    assert_eq!(after.gauges(), before.gauges());
    assert!(after.minutes().eq(before.minutes()));
}

#[test]
fn minutes_that_nobody_saw_are_empty_and_uncovered() {
    let mut windows = Windows::default();
    let close = |windows: &mut Windows, minute: u64| {
        windows.absorb(&tally(Metric::Ttft, &[Duration::from_millis(minute)]));
        windows.close(START + 60 * minute, MINUTE, false);
    };
    close(&mut windows, 1);
    close(&mut windows, 5);
    let covered: Vec<_> = windows.minutes().map(|minute| minute.covered().as_secs()).collect();
    assert_eq!(covered, [60, 0, 0, 0, 60]);
    let starts: Vec<_> = windows.minutes().map(|minute| (minute.start_unix() - START) / 60).collect();
    assert_eq!(starts, [0, 1, 2, 3, 4]);
    assert_eq!(windows.gauges().window(Length::FiveMinutes).metric(Metric::Ttft).samples, 2);
    close(&mut windows, 6);
    assert_eq!(windows.gauges().window(Length::FiveMinutes).metric(Metric::Ttft).samples, 2);
    // The wall clock stepped back: the sequence goes on, minute by minute.
    close(&mut windows, 3);
    assert_eq!(windows.minutes().len(), 7);
    // A jump of years is a day of nothing, not an endless loop.
    windows.close(u64::MAX, MINUTE, false);
    assert_eq!(windows.minutes().len(), RING);
    assert_eq!(windows.gauges().window(Length::Day).covered, MINUTE);
}

const MINUTES: usize = 20;

#[test]
fn a_load_costs_the_memory_that_the_header_says() {
    let mut rng = rng(54);
    let (first, gap) = (LogNormal::new(-1.0, 0.5).unwrap(), LogNormal::new(-4.0, 0.3).unwrap());
    let mut windows = Windows::default();
    for minute in 0..MINUTES {
        let mut tally = Tally::default();
        for _ in 0..600 {
            let at = Duration::from_secs_f64(first.sample(&mut rng));
            let mean = Duration::from_secs_f64(gap.sample(&mut rng));
            for metric in [Metric::Ttft, Metric::Ttfo, Metric::CorrectedTtft] {
                tally.record(metric, at, 1);
            }
            for metric in [Metric::E2el, Metric::CorrectedE2el] {
                tally.record(metric, at + mean * 99, 1);
            }
            tally.record(Metric::Tpot, mean, 1);
            for _ in 0..99 {
                let gap = Duration::from_secs_f64(gap.sample(&mut rng));
                tally.record(Metric::Icl, gap, 1);
                tally.record(Metric::Itl, gap, 1);
            }
            tally.record(Metric::LargestGap, mean * 2, 1);
        }
        windows.absorb(&tally);
        windows.close(START + 60 * minute as u64, MINUTE, false);
    }
    let ring: usize = windows.minutes().map(|minute| minute.heap_bytes()).sum();
    let per_minute = |metric: Metric| {
        let bytes = |minute: &Arc<SubWindow>| {
            minute.metric(metric).pairs().map(|(_, n)| if n < 128 { 2 } else { 3 }).sum::<usize>()
        };
        windows.minutes().map(bytes).sum::<usize>() / MINUTES
    };
    let (ttft, icl) = (per_minute(Metric::Ttft), per_minute(Metric::Icl));
    let sums: usize = windows.sums.iter().flat_map(|sum| &sum.counts).map(Counts::heap_bytes).sum();
    let day = ring / MINUTES * RING;
    let idle = (size_of::<SubWindow>() + size_of::<Arc<SubWindow>>() + 2 * size_of::<usize>()) * RING;
    assert!((1000..1150).contains(&ttft) && (5000..5500).contains(&icl), "{ttft} and {icl} bytes a minute");
    assert!(sums + windows.open.heap_bytes() < 1_600_000, "{sums} and {} bytes", windows.open.heap_bytes());
    assert!((24_000_000..26_500_000).contains(&day) && idle < 500_000, "{day} or {idle} bytes a day");
}

#[test]
fn names_are_those_of_the_labels() {
    assert_eq!(Length::ALL.map(Length::name), ["5m", "30m", "1h", "24h"]);
    assert_eq!(Quantile::ALL.map(Quantile::name), ["0.5", "0.9", "0.95", "0.99"]);
    assert!(Metric::SHOWN.iter().all(|metric| Metric::ALL.contains(metric)));
    assert!(Metric::ALL.iter().enumerate().all(|(at, metric)| *metric as usize == at));
}
