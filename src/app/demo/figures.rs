//! What a stretch of the demo was like: the differences between two pictures of the daemon.
//!
//! Counts are those of the stretch. Latencies reach further back than a line does, over the last minute: five seconds of a few
//! requests each have no P99. Both are exact differences of counts that only rise; the quantiles are those of the exported
//! histograms, which have buckets of 2.2 %.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::LOAD;
use crate::config::sections::Pace;
use crate::domain::outcome::Outcome;
use crate::domain::shed::ShedReason;
use crate::export::view::{LoadView, View};
use crate::measure::snapshot::LoadSnapshot;
use crate::measure::totals::{Quantity, Totals};
use crate::watch::client_health::TaintReason;

/// How far the latencies of a line reach back.
pub const RECENT: Duration = Duration::from_secs(60);

/// By how much a minute may be too short: pictures come once a second.
const SLACK: Duration = Duration::from_secs(1);

/// What a stretch was like.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// From the start of the load to the end of the stretch.
    pub elapsed: Duration,
    /// How long the stretch was.
    pub lasted: Duration,
    /// The load; `None` when it is no longer configured.
    pub load: Option<LoadFigures>,
    /// When this machine stood between the gateway and the numbers.
    pub unwell: Option<Unwell>,
}

/// What became of the load.
#[derive(Debug, Clone, Default)]
pub struct LoadFigures {
    /// What is to be kept; `None` once nothing is.
    pub pace: Option<Pace>,
    /// It is paused.
    pub paused: bool,
    /// Within the last minute the gateway did not take all of it.
    pub not_kept: bool,
    /// Requests planned.
    pub planned: u64,
    /// Requests planned and not sent: why, and how many. Those with a count only.
    pub shed: Vec<(ShedReason, u64)>,
    /// Requests that ended: how, and how many. Those with a count only.
    pub ended: Vec<(Outcome, u64)>,
    /// Requests under way at the end of the stretch.
    pub in_flight: u64,
    /// Output tokens of the requests that were answered, by the server's count.
    pub output_tokens: u64,
    /// Time to first token.
    pub ttft: Latency,
    /// Time per output token.
    pub tpot: Latency,
    /// End-to-end latency.
    pub e2el: Latency,
}

/// Quantiles, within 1.1 %, of so many values. Without values there are none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Latency {
    /// How many values.
    pub n: u64,
    /// Half of them are at most this long.
    pub p50: Option<Duration>,
    /// 99 in 100 of them are at most this long.
    pub p99: Option<Duration>,
}

/// Seconds in which the client was at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwell {
    /// How many at least: those of the most frequent reason.
    pub seconds: u64,
    /// Why.
    pub reasons: Vec<TaintReason>,
}

impl LoadFigures {
    /// Requests planned and not shed.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.planned.saturating_sub(self.shed.iter().map(|(_, n)| n).sum())
    }

    /// Requests that the end cut short.
    #[must_use]
    pub fn canceled(&self) -> u64 {
        self.ended.iter().filter(|(outcome, _)| *outcome == Outcome::Canceled).map(|(_, n)| n).sum()
    }

    /// Requests that ended `ok`.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.ended.iter().find(|(outcome, _)| *outcome == Outcome::Ok).map_or(0, |(_, n)| *n)
    }
}

/// The pictures that lines are made of.
#[derive(Debug)]
pub(super) struct Track {
    begun_at: Instant,
    /// The one of each line, as far back as latencies reach; the newest last.
    lines: VecDeque<Arc<View>>,
}

impl Track {
    /// Begins with the first picture that there is.
    pub(super) fn new(first: &Arc<View>) -> Self {
        Self { begun_at: first.taken_at, lines: VecDeque::new() }
    }

    /// The stretch since the last line, with the latencies of the last minute.
    pub(super) fn line(&mut self, view: &Arc<View>) -> Figures {
        // The newest picture that is a minute old, and those after it.
        let is_old = |kept: &Arc<View>| view.taken_at.saturating_duration_since(kept.taken_at) + SLACK >= RECENT;
        while self.lines.get(1).is_some_and(is_old) {
            self.lines.pop_front();
        }
        let base = self.lines.front().filter(|kept| is_old(kept));
        let figures = self.between(self.lines.back(), base, view);
        self.lines.push_back(Arc::clone(view));
        figures
    }

    /// Everything since the start.
    pub(super) fn whole(&self, view: &View) -> Figures {
        self.between(None, None, view)
    }

    /// Counts since `from`, latencies since `base`; without one, since the start.
    fn between(&self, from: Option<&Arc<View>>, base: Option<&Arc<View>>, to: &View) -> Figures {
        let since = from.map_or(self.begun_at, |from| from.taken_at);
        Figures {
            elapsed: to.taken_at.saturating_duration_since(self.begun_at),
            lasted: to.taken_at.saturating_duration_since(since),
            load: demo_load(to).map(|(load, now)| {
                let earlier = |view: Option<&Arc<View>>| totals_of(view, now.id);
                load_figures(load, now, &earlier(from), &earlier(base))
            }),
            unwell: unwell(from, to),
        }
    }
}

fn demo_load(view: &View) -> Option<(&LoadView, &LoadSnapshot)> {
    view.loads().find(|(load, _)| load.name == LOAD)
}

/// What had been counted under this account; nothing where it did not exist.
fn totals_of(view: Option<&Arc<View>>, account: usize) -> Totals {
    let load = view.and_then(|view| view.snapshot.loads.iter().find(|load| load.id == account));
    load.map(|load| load.totals.clone()).unwrap_or_default()
}

fn load_figures(load: &LoadView, now: &LoadSnapshot, from: &Totals, base: &Totals) -> LoadFigures {
    let totals = &now.totals;
    let shed = ShedReason::ALL.map(|reason| (reason, totals.shed(reason).saturating_sub(from.shed(reason))));
    let ended = Outcome::ALL.map(|outcome| (outcome, totals.outcome(outcome).saturating_sub(from.outcome(outcome))));
    let latency = |quantity| latency(totals, base, quantity);
    LoadFigures {
        pace: load.pace,
        paused: load.paused.is_some(),
        not_kept: load.not_kept,
        planned: totals.planned().saturating_sub(from.planned()),
        shed: shed.into_iter().filter(|(_, n)| *n > 0).collect(),
        ended: ended.into_iter().filter(|(_, n)| *n > 0).collect(),
        in_flight: now.in_flight(),
        output_tokens: totals.generation_tokens.saturating_sub(from.generation_tokens),
        ttft: latency(Quantity::Ttft),
        tpot: latency(Quantity::Tpot),
        e2el: latency(Quantity::E2el),
    }
}

fn latency(now: &Totals, base: &Totals, quantity: Quantity) -> Latency {
    let recent = now.histogram(quantity).since(base.histogram(quantity));
    let percentile = |percent| recent.percentile(percent).and_then(|secs| Duration::try_from_secs_f64(secs).ok());
    Latency { n: recent.count(), p50: percentile(50), p99: percentile(99) }
}

fn unwell(from: Option<&Arc<View>>, to: &View) -> Option<Unwell> {
    let seconds = TaintReason::ALL.map(|reason| {
        let before = from.map_or(0, |from| from.client.health.seconds(reason));
        (reason, to.client.health.seconds(reason).saturating_sub(before))
    });
    let reasons: Vec<_> = seconds.into_iter().filter(|(_, n)| *n > 0).collect();
    let most = reasons.iter().map(|(_, n)| *n).max()?;
    Some(Unwell { seconds: most, reasons: reasons.into_iter().map(|(reason, _)| reason).collect() })
}

#[cfg(test)]
mod tests;
