//! A histogram with fixed bounds that is shared without a lock.
//!
//! Counts are kept per bucket and summed when read, so that the last bucket and the count are one number and cannot
//! disagree. A record is two atomic additions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a histogram's numbers stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Nanoseconds, shown as seconds.
    Time,
    /// Things, shown as they are.
    Things,
}

/// Counts by upper bound, the bound included. Only rises.
#[derive(Debug)]
pub(crate) struct Histogram {
    unit: Unit,
    bounds: Vec<u64>,
    /// One more than there are bounds: what is above the last.
    buckets: Vec<AtomicU64>,
    sum: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    /// Upper bound and how many are not above it; the last bound is infinite.
    pub(crate) cumulative: Vec<(f64, u64)>,
    /// In seconds, or in things.
    pub(crate) sum: f64,
}

const NANOS: f64 = 1e9;

impl Histogram {
    /// A histogram of times.
    pub(crate) fn of_times(bounds_secs: &[f64]) -> Self {
        let nanos = |secs: &f64| nanos(Duration::try_from_secs_f64(*secs).unwrap_or(Duration::MAX));
        Self::new(Unit::Time, bounds_secs.iter().map(nanos).collect())
    }

    /// A histogram of numbers of things.
    pub(crate) fn of_things(bounds: &[u64]) -> Self {
        Self::new(Unit::Things, bounds.to_vec())
    }

    fn new(unit: Unit, bounds: Vec<u64>) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { unit, bounds, buckets, sum: AtomicU64::new(0) }
    }

    pub(crate) fn record(&self, time: Duration) {
        self.add(nanos(time), 1);
    }

    /// The same time for `times` observations.
    pub(crate) fn record_times(&self, time: Duration, times: u32) {
        self.add(nanos(time), u64::from(times));
    }

    pub(crate) fn record_number(&self, number: u64) {
        self.add(number, 1);
    }

    fn add(&self, value: u64, times: u64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(times, Ordering::Relaxed);
        }
        self.sum.fetch_add(value.saturating_mul(times), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Reading {
        let bounds = self.bounds.iter().map(|bound| self.shown(*bound)).chain([f64::INFINITY]);
        let mut count = 0;
        let cumulative = bounds.zip(&self.buckets).map(|(bound, bucket)| {
            count += bucket.load(Ordering::Relaxed);
            (bound, count)
        });
        Reading { cumulative: cumulative.collect(), sum: self.shown(self.sum.load(Ordering::Relaxed)) }
    }

    /// Rounded to the double nearest to a time's decimal text, so that a bound shows as it was written.
    fn shown(&self, value: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "2^53 nanoseconds are 104 days")]
        let value = value as f64;
        match self.unit {
            Unit::Time => value / NANOS,
            Unit::Things => value,
        }
    }
}

impl Reading {
    /// Both together; they have the same bounds.
    pub(crate) fn plus(mut self, other: &Self) -> Self {
        for ((_, count), (_, more)) in self.cumulative.iter_mut().zip(&other.cumulative) {
            *count += more;
        }
        self.sum += other.sum;
        self
    }

    pub(crate) fn count(&self) -> u64 {
        self.cumulative.last().map_or(0, |(_, count)| *count)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_in_its_bucket_and_what_is_above_all_is_in_the_last() {
        let histogram = Histogram::of_times(&[0.001, 0.06, 2560.0]);
        for micros in [0, 1000, 1001, 60_000, 3_000_000_000] {
            histogram.record(Duration::from_micros(micros));
        }
        let reading = histogram.read();
        assert_eq!(reading.cumulative, [(0.001, 2), (0.06, 4), (2560.0, 4), (f64::INFINITY, 5)]);
        assert_eq!((reading.count(), reading.sum), (5, 3_000.062_001));
    }

    #[test]
    fn one_time_may_count_several_times() {
        let histogram = Histogram::of_times(&[1.0]);
        histogram.record_times(Duration::from_millis(500), 4);
        assert_eq!((histogram.read().count(), histogram.read().sum), (4, 2.0));
        let things = Histogram::of_things(&[1, 2, 5]);
        things.record_number(3);
        assert_eq!(things.read().cumulative, [(1.0, 0), (2.0, 0), (5.0, 1), (f64::INFINITY, 1)]);
    }
}
