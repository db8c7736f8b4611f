//! What a window shows: quantiles with their intervals, and how many values stand behind them.

use std::time::Duration;

use crate::measure::hdr::{Bucket, Counts};
use crate::measure::window::{Length, Metric};

/// A quantile that windows show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quantile {
    /// 0.5, the median.
    P50,
    /// 0.9.
    P90,
    /// 0.95.
    P95,
    /// 0.99.
    P99,
}

impl Quantile {
    /// How many there are.
    pub const COUNT: usize = 4;

    /// Every quantile, the smallest first.
    pub const ALL: [Self; Self::COUNT] = [Self::P50, Self::P90, Self::P95, Self::P99];

    /// The label value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::P50 => "0.5",
            Self::P90 => "0.9",
            Self::P95 => "0.95",
            Self::P99 => "0.99",
        }
    }

    const fn percent(self) -> u32 {
        match self {
            Self::P50 => 50,
            Self::P90 => 90,
            Self::P95 => 95,
            Self::P99 => 99,
        }
    }
}

/// A quantile and its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// The middle of the HDR bucket in which the value of rank `ceil(n p)` lies.
    pub value: Duration,
    /// Lower end of the interval. `None` when the values are too few to have one.
    pub lower: Option<Duration>,
    /// Upper end of the interval. `None` when the values are too few to have one: for the P99, fewer than 381.
    pub upper: Option<Duration>,
}

/// One metric over one window. Without values there is no estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetricGauge {
    /// How many values stand behind the quantiles.
    pub samples: u64,
    quantiles: [Option<Estimate>; Quantile::COUNT],
}

impl MetricGauge {
    /// The quantile; `None` for an empty window, never zero.
    #[must_use]
    pub fn quantile(&self, quantile: Quantile) -> Option<Estimate> {
        self.quantiles[quantile as usize]
    }

    /// Works out all quantiles in one pass over the counts.
    ///
    /// The interval is the binomial one in its normal approximation, which assumes independent values: ranks
    /// `ceil(n (p ± 1.96 sqrt(p (1-p) / n)))`. A rank below 1 or above n is outside of the sample, and that end is absent.
    #[must_use]
    pub fn new(counts: &Counts) -> Self {
        let n = counts.total();
        let ranks = Quantile::ALL.map(|quantile| ranks(n, quantile));
        let found = counts.at_ranks::<{ 3 * Quantile::COUNT }>(std::array::from_fn(|at| ranks[at / 3][at % 3]));
        let middle = |at: usize| found[at].map(Bucket::middle);
        let quantiles = std::array::from_fn(|at| {
            let value = middle(3 * at + 1)?;
            Some(Estimate { value, lower: middle(3 * at), upper: middle(3 * at + 2) })
        });
        Self { samples: n, quantiles }
    }
}

/// Ranks of the lower end, the value and the upper end; 0 where the lower end is below the sample.
fn ranks(n: u64, quantile: Quantile) -> [u64; 3] {
    let value = (u128::from(n) * u128::from(quantile.percent())).div_ceil(100);
    let value = u64::try_from(value).unwrap_or(n);
    #[expect(clippy::cast_precision_loss, reason = "the interval is an approximation already")]
    let count = n as f64;
    let p = f64::from(quantile.percent()) / 100.0;
    let half = 1.96 * (count * p * (1.0 - p)).sqrt();
    // `as` saturates: below 0 is 0, which is no rank.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let rank = |at: f64| at.ceil() as u64;
    [rank(count * p - half), value, rank(count * p + half)]
}

/// One window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowGauge {
    /// Time under load in it: of a young daemon's 24 h window only what it has lived.
    pub covered: Duration,
    /// How many of its minutes are tainted.
    pub tainted_minutes: u32,
    metrics: [MetricGauge; Metric::COUNT],
}

impl WindowGauge {
    /// Of the counts of each metric, in the order of [`Metric::ALL`].
    #[must_use]
    pub fn new(covered: Duration, tainted_minutes: u32, counts: [&Counts; Metric::COUNT]) -> Self {
        Self { covered, tainted_minutes, metrics: counts.map(MetricGauge::new) }
    }

    /// One metric.
    #[must_use]
    pub fn metric(&self, metric: Metric) -> &MetricGauge {
        &self.metrics[metric as usize]
    }
}

/// All windows of a load, as of its last closed minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gauges {
    windows: [WindowGauge; Length::COUNT],
}

impl Gauges {
    /// Of the windows in the order of [`Length::ALL`].
    #[must_use]
    pub fn new(windows: [WindowGauge; Length::COUNT]) -> Self {
        Self { windows }
    }

    /// One window.
    #[must_use]
    pub fn window(&self, length: Length) -> &WindowGauge {
        &self.windows[length as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_formula() {
        // Worked out by hand: 1.96 sqrt(1000 * 0.25) = 30.99; 1.96 sqrt(10000 * 0.0099) = 19.50.
        assert_eq!(ranks(1000, Quantile::P50), [470, 500, 531]);
        assert_eq!(ranks(10_000, Quantile::P99), [9881, 9900, 9920]);
        // n p is a whole number here, and must not become the next one by rounding.
        assert_eq!([100, 300, 700].map(|n| ranks(n, Quantile::P99)[1]), [99, 297, 693]);
        assert_eq!([20, 40, 60].map(|n| ranks(n, Quantile::P95)[1]), [19, 38, 57]);
    }

    #[test]
    fn too_few_values_leave_an_end_of_the_interval_open() {
        let gauge = |n: u64| {
            let mut counts = Counts::default();
            (1..=n).for_each(|at| counts.record(Duration::from_millis(at), 1));
            MetricGauge::new(&counts)
        };
        let p99 = |n: u64| gauge(n).quantile(Quantile::P99).unwrap();
        assert_eq!((p99(380).upper.is_some(), p99(381).upper.is_some()), (false, true));
        let one = gauge(1).quantile(Quantile::P50).unwrap();
        assert_eq!((one.value, one.lower, one.upper), (Duration::from_nanos(1_000_500), None, None));
        assert_eq!(gauge(1).samples, 1);
        assert!(Quantile::ALL.iter().all(|quantile| gauge(0).quantile(*quantile).is_none()));
    }
}
