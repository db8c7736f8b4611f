//! The control side of one load's latencies: the open minute, 24 h of closed ones, and the running windows.
//!
//! Once a minute the open minute becomes an immutable [`SubWindow`]. Four windows (5 min, 30 min, 1 h, 24 h) are kept as
//! running sums over the newest of them: the new one is added, the one that has become too old is subtracted. Both are
//! exact in integers, so a quantile of a window is that of one histogram over the same requests, whatever was
//! merged; quantiles themselves are never averaged. Windows hold closed minutes only: a gauge that moved with the open
//! minute would be of another length at every scrape.
//!
//! **Tainted minutes are in the windows.** A window is a measurement that is shown, and the histograms beside it hold
//! the same requests; leaving them out would make the two disagree just when someone looks. What they must not do is
//! feed a baseline or a verdict, which is why each sub-window carries the flag, and each window says how
//! much of it is tainted and how much was covered.
//!
//! **Minutes, not timestamps.** The ring follows the caller's monotonic minutes. Where the wall clock jumped forward (a suspended
//! machine, a restart) the minutes between are put in as empty and uncovered, so that a window is never longer than
//! its name; where it jumped back the sequence goes on.
//!
//! Memory of a load, held by a test. At 10 requests/s of 100 tokens: four sums and the open minute 1.5 MB, for nine metrics;
//! 24 h of sub-windows 25 MB, of which a metric with one value a request takes 1.5 MB (1.07 kB a minute, see [`sub`]), and ITL
//! and ICL, with one a token, 7.5 MB each (5.2 kB a minute, which hardly grows with the rate: all likely buckets are filled). An
//! idle load costs 0.5 MB. At most, with every bucket from 1 µs to 10 min filled all the time: sums 7.5 MB, a minute 0.4 MB.
//! The sums are `u64`: see [`hdr`](crate::measure::hdr).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::measure::hdr::Counts;

pub mod gauge;
pub mod sub;

use gauge::{Gauges, WindowGauge};
use sub::SubWindow;

/// The length of a sub-window.
pub const MINUTE: Duration = Duration::from_secs(60);
const MINUTE_SECS: u64 = 60;

/// How many minutes the ring holds.
pub const RING: usize = 24 * 60;

/// What a window tells the quantiles of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Time to first token.
    Ttft,
    /// Mean time per output token after the first event.
    Tpot,
    /// Time per token, of answers whose events came with counts. There is none on the basis of chunks: that is `Icl`,
    /// value for value, and the two are never mixed.
    Itl,
    /// Gap between token-bearing events.
    Icl,
    /// End-to-end latency.
    E2el,
    /// Time to first answer text.
    Ttfo,
    /// Time to first token from the planned instant.
    CorrectedTtft,
    /// End-to-end latency from the planned instant.
    CorrectedE2el,
    /// A request's largest gap between token-bearing events, one value a request: what the drift test takes as its ITL.
    /// Gaps of one request depend on each other far too much to be counted as so many observations.
    LargestGap,
}

impl Metric {
    /// How many there are.
    pub const COUNT: usize = 9;

    /// Every metric, in the order in which they are stored: it is part of the form of a [`SubWindow`] on disk.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Ttft,
        Self::Tpot,
        Self::Itl,
        Self::Icl,
        Self::E2el,
        Self::Ttfo,
        Self::CorrectedTtft,
        Self::CorrectedE2el,
        Self::LargestGap,
    ];

    /// The metrics with a gauge of their own: all but `LargestGap`.
    pub const SHOWN: [Self; 8] = [
        Self::Ttft,
        Self::Tpot,
        Self::Itl,
        Self::Icl,
        Self::E2el,
        Self::Ttfo,
        Self::CorrectedTtft,
        Self::CorrectedE2el,
    ];

    /// The label value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::Itl => "itl",
            Self::Icl => "icl",
            Self::E2el => "e2el",
            Self::Ttfo => "ttfo",
            Self::CorrectedTtft => "corrected_ttft",
            Self::CorrectedE2el => "corrected_e2el",
            Self::LargestGap => "largest_gap",
        }
    }
}

/// How far back a window reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Length {
    /// 5 minutes.
    FiveMinutes,
    /// 30 minutes.
    HalfHour,
    /// 1 hour.
    Hour,
    /// 24 hours.
    Day,
}

impl Length {
    /// How many there are.
    pub const COUNT: usize = 4;

    /// Every length, the shortest first.
    pub const ALL: [Self; Self::COUNT] = [Self::FiveMinutes, Self::HalfHour, Self::Hour, Self::Day];

    /// The label value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FiveMinutes => "5m",
            Self::HalfHour => "30m",
            Self::Hour => "1h",
            Self::Day => "24h",
        }
    }

    /// How many sub-windows it spans.
    #[must_use]
    pub const fn minutes(self) -> usize {
        match self {
            Self::FiveMinutes => 5,
            Self::HalfHour => 30,
            Self::Hour => 60,
            Self::Day => RING,
        }
    }
}

/// The latencies of some span of time, of one load: a second's worth from a worker, or the open minute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    counts: [Counts; Metric::COUNT],
    censored_high: [u64; Metric::COUNT],
}

impl Tally {
    /// The counts of one metric.
    #[must_use]
    pub fn counts(&self, metric: Metric) -> &Counts {
        &self.counts[metric as usize]
    }

    /// Requests that were too slow to have a value: time-outs, and what was shed at the cap. They lie above every bucket.
    #[must_use]
    pub fn censored_high(&self, metric: Metric) -> u64 {
        self.censored_high[metric as usize]
    }

    /// Counts a latency `n` times.
    #[inline]
    pub fn record(&mut self, metric: Metric, latency: Duration, n: u64) {
        self.counts[metric as usize].record(latency, n);
    }

    /// Counts so many requests that were too slow to have a value.
    pub fn censor(&mut self, metric: Metric, count: u64) {
        self.censored_high[metric as usize] += count;
    }

    /// Adds all that the other one counted.
    pub fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.counts.iter_mut().zip(&other.counts) {
            ours.merge(theirs);
        }
        for (ours, theirs) in self.censored_high.iter_mut().zip(other.censored_high) {
            *ours += theirs;
        }
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.counts.iter_mut().for_each(Counts::clear);
        self.censored_high = [0; Metric::COUNT];
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.counts.iter().map(Counts::heap_bytes).sum()
    }
}

/// The minutes and windows of one load.
#[derive(Debug, Clone, Default)]
pub struct Windows {
    open: Tally,
    /// The newest last.
    ring: VecDeque<Arc<SubWindow>>,
    sums: [Sum; Length::COUNT],
    /// Worked out when first asked for after a minute has closed.
    gauges: Option<Arc<Gauges>>,
}

/// The sum of the newest minutes.
#[derive(Debug, Clone, Default)]
struct Sum {
    counts: [Counts; Metric::COUNT],
    covered: Duration,
    tainted_minutes: u32,
}

impl Sum {
    fn add(&mut self, minute: &SubWindow) {
        for (counts, metric) in self.counts.iter_mut().zip(Metric::ALL) {
            minute.metric(metric).pairs().for_each(|(bucket, n)| counts.add(bucket, n.into()));
        }
        self.covered += minute.covered();
        self.tainted_minutes += u32::from(minute.is_tainted());
    }

    fn subtract(&mut self, minute: &SubWindow) {
        for (counts, metric) in self.counts.iter_mut().zip(Metric::ALL) {
            minute.metric(metric).pairs().for_each(|(bucket, n)| counts.subtract(bucket, n.into()));
        }
        self.covered = self.covered.saturating_sub(minute.covered());
        self.tainted_minutes -= u32::from(minute.is_tainted());
    }
}

impl Windows {
    /// Adds what a worker recorded to the open minute.
    ///
    /// A request belongs to the minute in which it ended, so the workers' deltas are to be taken when a minute ends
    /// and absorbed before it is closed; what is taken later falls into the next.
    pub fn absorb(&mut self, tally: &Tally) {
        self.open.merge(tally);
    }

    /// Ends the open minute and opens the next.
    ///
    /// `minute_end` is in Unix seconds. `covered`: how long of it the daemon ran, the load was neither paused nor
    /// resting, and the client was well. `tainted`: the client was unwell, or the minute was cut short.
    pub fn close(&mut self, minute_end: u64, covered: Duration, tainted: bool) -> Arc<SubWindow> {
        let start = minute_end.saturating_sub(MINUTE_SECS);
        let minute = Arc::new(SubWindow::new(start, covered, tainted, &self.open));
        self.open.clear();
        self.push(Arc::clone(&minute));
        minute
    }

    /// Puts a closed minute behind the newest: after a restart, those that were saved, in order.
    pub fn push(&mut self, minute: Arc<SubWindow>) {
        if let Some(last) = self.ring.back() {
            let next = last.start_unix().saturating_add(MINUTE_SECS);
            let missing = minute.start_unix().saturating_sub(next) / MINUTE_SECS;
            let missing = usize::try_from(missing).unwrap_or(RING).min(RING) as u64;
            for at in (1..=missing).rev() {
                let start = minute.start_unix() - at * MINUTE_SECS;
                self.append(Arc::new(SubWindow::uncovered(start)));
            }
        }
        self.append(minute);
    }

    fn append(&mut self, minute: Arc<SubWindow>) {
        for (sum, length) in self.sums.iter_mut().zip(Length::ALL) {
            // The oldest minute of this window, which the new one pushes out.
            let oldest = self.ring.len().checked_sub(length.minutes()).and_then(|at| self.ring.get(at));
            if let Some(oldest) = oldest {
                sum.subtract(oldest);
            }
            sum.add(&minute);
        }
        if self.ring.len() == RING {
            self.ring.pop_front();
        }
        self.ring.push_back(minute);
        self.gauges = None;
    }

    /// The closed minutes of the last 24 h, the oldest first.
    pub fn minutes(&self) -> impl DoubleEndedIterator<Item = &Arc<SubWindow>> + ExactSizeIterator {
        self.ring.iter()
    }

    /// What the open minute holds so far.
    #[must_use]
    pub fn open(&self) -> &Tally {
        &self.open
    }

    /// The counts of one metric over a window of closed minutes.
    #[must_use]
    pub fn counts(&self, length: Length, metric: Metric) -> &Counts {
        &self.sums[length as usize].counts[metric as usize]
    }

    /// The gauges of all windows, as of the last closed minute.
    #[must_use]
    pub fn gauges(&mut self) -> Arc<Gauges> {
        let sums = &self.sums;
        let gauges = self.gauges.get_or_insert_with(|| {
            Arc::new(Gauges::new(
                sums.each_ref().map(|sum| WindowGauge::new(sum.covered, sum.tainted_minutes, sum.counts.each_ref())),
            ))
        });
        Arc::clone(gauges)
    }

    /// Bytes on the heap: open minute, sums and ring.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let sums: usize = self.sums.iter().flat_map(|sum| &sum.counts).map(Counts::heap_bytes).sum();
        let ring: usize = self.ring.iter().map(|minute| size_of::<SubWindow>() + minute.heap_bytes()).sum();
        self.open.heap_bytes() + sums + ring + self.ring.capacity() * size_of::<Arc<SubWindow>>()
    }
}

#[cfg(test)]
mod tests;
