//! One worker's counts: what happens to a request goes in, once a second everything since the last time comes out.
//!
//! A recorder belongs to one thread and is neither shared nor locked. [`Recorder::take`] swaps in an empty [`Delta`] and gives the
//! full one away, to travel through a channel and be merged by the control side. Nothing is lost between: what is recorded after
//! the take is in the next.
//!
//! What enters where is decided here and nowhere else, by `semantics` section 3. Histograms and windows hold the
//! latencies of answered requests. Requests that were too slow to have one are counted above the top bucket
//! (`censored_high`) for the drift test: see [`Recorder::shed`] and [`Recorder::ended`]. All other failures enter no
//! latency. Warm-ups are planned, end and are counted as such; they enter no histogram, no token counter and no window. Which requests
//! are kept one by one, [`notable`](crate::measure::notable) decides.
//!
//! Cost: a token is two to four counts (native histogram and window, gap and token), without a search or a logarithm;
//! `benches/record.rs` has the figures. Memory of a load that carries traffic: under 0.1 MB a worker (17 histograms of about
//! 1 kB, nine sparse counts of 1 to 20 kB for one second, notable requests with at most 0.1 MB more); 9 kB when idle.

use std::time::Duration;

use crate::domain::outcome::Outcome;
use crate::domain::sample::{ItlBasis, Sample};
use crate::domain::shed::ShedReason;
use crate::domain::slo::Slo;
use crate::domain::timeline::{Answer, ConnectPhases, Timeline};
use crate::measure::histogram::Place;
use crate::measure::notable::Notables;
use crate::measure::sample::{inter_chunk_latencies, inter_token_latencies, itl_basis, sample};
use crate::measure::totals::{Quantity, Totals};
use crate::measure::window::{Metric, Tally};

/// What one worker counted of one load since the last take.
#[derive(Debug, Clone, Default)]
pub struct LoadDelta {
    /// Counters and histograms.
    pub totals: Totals,
    /// Latencies for the windows.
    pub tally: Tally,
    /// The requests that somebody may want to look up.
    pub notables: Notables,
}

/// What one worker counted since the last take, of all loads.
#[derive(Debug, Clone, Default)]
pub struct Delta {
    loads: Vec<LoadDelta>,
}

impl Delta {
    /// One entry per load id. Loads that this worker never saw may be missing at the end.
    #[must_use]
    pub fn loads(&self) -> &[LoadDelta] {
        &self.loads
    }

    /// Adds all that the other one counted.
    pub fn merge(&mut self, other: &Self) {
        if self.loads.len() < other.loads.len() {
            self.loads.resize_with(other.loads.len(), LoadDelta::default);
        }
        for (ours, theirs) in self.loads.iter_mut().zip(&other.loads) {
            ours.totals.merge(&theirs.totals);
            ours.tally.merge(&theirs.tally);
            ours.notables.merge(&theirs.notables);
        }
    }
}

/// Records what happens to the requests of one worker.
#[derive(Debug, Default)]
pub struct Recorder {
    now: Delta,
}

impl Recorder {
    /// A recorder with room for so many loads. Ids beyond make room for themselves: a reload may add loads.
    #[must_use]
    pub fn new(loads: usize) -> Self {
        let mut now = Delta::default();
        now.loads.resize_with(loads, LoadDelta::default);
        Self { now }
    }

    /// The schedule planned so many requests: each is in flight until it is shed or ends.
    pub fn planned(&mut self, load: usize, count: u64) {
        let totals = &mut self.load(load).totals;
        totals.planned += count;
        totals.in_flight += i64::try_from(count).unwrap_or(i64::MAX);
    }

    /// So many planned requests were dropped unsent.
    ///
    /// One that found no slot within `late_cap` would have been slow: it is censored for TTFT and E2EL.
    pub fn shed(&mut self, load: usize, reason: ShedReason, count: u64) {
        let load = self.load(load);
        load.totals.in_flight -= i64::try_from(count).unwrap_or(i64::MAX);
        load.totals.shed[reason as usize] += count;
        if reason == ShedReason::InflightCap {
            load.tally.censor(Metric::Ttft, count);
            load.tally.censor(Metric::E2el, count);
        }
    }

    /// A connection was opened ahead of the request that will use it.
    pub fn connected(&mut self, load: usize, phases: &ConnectPhases) {
        let load = self.load(load);
        load.totals.connections_opened += 1;
        load.connect(phases);
    }

    /// A request ended, whatever its outcome. `slo`: the objectives of its load.
    pub fn ended(&mut self, load: usize, timeline: &Timeline, warmup: bool, slo: &Slo) {
        let load = self.load(load);
        load.totals.end(timeline);
        if warmup {
            load.totals.warmup_requests += 1;
            load.notables.ended(timeline, None, warmup);
            return;
        }
        let sample = sample(timeline);
        load.notables.ended(timeline, sample.e2el, warmup);
        load.totals.goodput_requests += u64::from(slo.is_met(&sample));
        if let Some(phases) = &timeline.opened {
            load.connect(phases);
        }
        load.time(Quantity::ScheduleLag, sample.schedule_lag);
        if timeline.outcome.is_answered() {
            load.latencies(&sample);
            load.lengths(&sample, &timeline.answer);
            load.gaps(&timeline.answer);
        } else {
            load.censor(timeline);
        }
    }

    /// Hands over everything since the last take, and starts anew.
    #[must_use]
    pub fn take(&mut self) -> Delta {
        let empty = Self::new(self.now.loads.len()).now;
        std::mem::replace(&mut self.now, empty)
    }

    fn load(&mut self, load: usize) -> &mut LoadDelta {
        if load >= self.now.loads.len() {
            self.now.loads.resize_with(load + 1, LoadDelta::default);
        }
        &mut self.now.loads[load]
    }
}

impl LoadDelta {
    fn time(&mut self, quantity: Quantity, value: Option<Duration>) {
        if let Some(value) = value {
            self.totals.histograms[quantity as usize].record(value.as_secs_f64(), 1);
        }
    }

    fn latencies(&mut self, sample: &Sample) {
        for (quantity, metric, value) in [
            (Quantity::Ttft, Metric::Ttft, sample.ttft),
            (Quantity::Tpot, Metric::Tpot, sample.tpot),
            (Quantity::E2el, Metric::E2el, sample.e2el),
            (Quantity::Ttfo, Metric::Ttfo, sample.ttfo),
            (Quantity::CorrectedTtft, Metric::CorrectedTtft, sample.corrected_ttft),
            (Quantity::CorrectedE2el, Metric::CorrectedE2el, sample.corrected_e2el),
        ] {
            self.time(quantity, value);
            if let Some(value) = value {
                self.tally.record(metric, value, 1);
            }
        }
        self.time(Quantity::StreamClose, sample.stream_close);
    }

    /// The phases of a connection that was opened, however the request on it ended.
    fn connect(&mut self, phases: &ConnectPhases) {
        self.time(Quantity::ConnectDns, phases.dns);
        self.time(Quantity::ConnectTcp, phases.tcp);
        self.time(Quantity::ConnectTls, phases.tls);
    }

    fn lengths(&mut self, sample: &Sample, answer: &Answer) {
        let usage = answer.usage.unwrap_or_default();
        let totals = &mut self.totals;
        if let Some(n) = usage.prompt_tokens {
            totals.prompt_tokens += u64::from(n);
            totals.histograms[Quantity::PromptTokens as usize].record(n.into(), 1);
        }
        if let Some(n) = sample.output_tokens {
            totals.generation_tokens += u64::from(n);
            totals.histograms[Quantity::GenerationTokens as usize].record(n.into(), 1);
        }
        totals.cached_prompt_tokens += u64::from(usage.cached_tokens.unwrap_or(0));
        if let Some(ratio) = sample.tokens_per_chunk {
            totals.histograms[Quantity::TokensPerChunk as usize].record(ratio, 1);
        }
    }

    /// ICL, ITL and the largest gap. On the basis of chunks an ITL *is* the ICL, so its place is found once.
    fn gaps(&mut self, answer: &Answer) {
        let chunk_basis = itl_basis(answer) == ItlBasis::Chunk;
        let mut largest = None;
        for gap in inter_chunk_latencies(answer) {
            largest = largest.max(Some(gap));
            self.tally.record(Metric::Icl, gap, 1);
            let Some(place) = Place::of(gap.as_secs_f64()) else { continue };
            self.totals.histograms[Quantity::Icl as usize].add(place, 1);
            if chunk_basis {
                self.totals.histograms[Quantity::ItlChunk as usize].add(place, 1);
            }
        }
        if let Some(largest) = largest {
            self.tally.record(Metric::LargestGap, largest, 1);
        }
        if !chunk_basis {
            for (latency, tokens) in inter_token_latencies(answer) {
                self.tally.record(Metric::Itl, latency, tokens.into());
                self.totals.histograms[Quantity::ItlToken as usize].record(latency.as_secs_f64(), tokens.into());
            }
        }
    }

    /// Which latencies a request was too slow for, if it timed out after it had been sent. `timeouts.total` runs from then
    /// on; a time-out of the connection is another outcome, and concerns no latency.
    fn censor(&mut self, timeline: &Timeline) {
        let timed_out = |outcome: Outcome| timeline.outcome == outcome;
        let began = !timeline.answer.tokens.is_empty();
        let metrics = if timed_out(Outcome::TimeoutFirstToken) || timed_out(Outcome::TimeoutTotal) && !began {
            &[Metric::Ttft, Metric::E2el][..]
        } else if timed_out(Outcome::TimeoutIdle) || timed_out(Outcome::TimeoutTotal) {
            &[Metric::Tpot, Metric::LargestGap, Metric::E2el][..]
        } else {
            return;
        };
        metrics.iter().for_each(|metric| self.tally.censor(*metric, 1));
    }
}

#[cfg(test)]
mod tests;
