//! What has been counted of one load: counters and histograms that only rise.
//!
//! The same type is a second's worth from one worker and the sum of everything since the start; [`Totals::merge`] makes
//! the one into the other. A request's `planned` and its end have to be recorded by the same recorder; then the law of
//! conservation holds after every merge, however the merges fall between them.
//!
//! `in_flight` is counted on its own, up when a request is planned and down when it is shed or ends, so that
//! [`Totals::is_conserved`] compares four independent counts. A path that ends a request twice or not at all shows.

use crate::domain::outcome::Outcome;
use crate::domain::shed::ShedReason;
use crate::domain::timeline::Timeline;
use crate::measure::histogram::{ClassicBounds, Histogram};

use tokio::time::Instant;

/// A quantity that has a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quantity {
    /// `time_to_first_token_seconds`.
    Ttft,
    /// `request_time_per_output_token_seconds`.
    Tpot,
    /// `inter_token_latency_seconds{basis="token"}`, once per token.
    ItlToken,
    /// `inter_token_latency_seconds{basis="chunk"}`, once per gap.
    ItlChunk,
    /// `inter_chunk_latency_seconds`.
    Icl,
    /// `e2e_request_latency_seconds`.
    E2el,
    /// `time_to_first_answer_seconds`.
    Ttfo,
    /// `corrected_time_to_first_token_seconds`.
    CorrectedTtft,
    /// `corrected_e2e_request_latency_seconds`.
    CorrectedE2el,
    /// `schedule_lag_seconds`, of every request that was sent.
    ScheduleLag,
    /// `connect_seconds{phase="dns"}`.
    ConnectDns,
    /// `connect_seconds{phase="tcp"}`.
    ConnectTcp,
    /// `connect_seconds{phase="tls"}`.
    ConnectTls,
    /// `stream_close_seconds`.
    StreamClose,
    /// `request_prompt_tokens`.
    PromptTokens,
    /// `request_generation_tokens`.
    GenerationTokens,
    /// `tokens_per_chunk`.
    TokensPerChunk,
}

impl Quantity {
    /// How many there are.
    pub const COUNT: usize = 17;

    /// The bounds of its classic buckets: growth 2^(1/8) over the plausible range for the four latencies that people
    /// compare, powers of 2 for the rest, and for all when `coarse`.
    #[must_use]
    pub fn classic_bounds(self, coarse: bool) -> ClassicBounds {
        let (from, to, fine) = match self {
            Self::Ttft => (0.005, 120.0, true),
            Self::Tpot => (0.001, 5.0, true),
            Self::ItlToken | Self::ItlChunk => (0.001, 10.0, true),
            Self::E2el => (0.05, 1800.0, true),
            Self::Icl => (0.001, 16.0, false),
            Self::Ttfo | Self::CorrectedTtft => (0.005, 128.0, false),
            Self::CorrectedE2el => (0.05, 2048.0, false),
            Self::ScheduleLag => (0.000_03, 2.0, false),
            Self::ConnectDns | Self::ConnectTcp | Self::ConnectTls => (0.000_1, 8.0, false),
            Self::StreamClose => (0.000_1, 64.0, false),
            Self::PromptTokens | Self::GenerationTokens => (1.0, 1_048_576.0, false),
            Self::TokensPerChunk => (0.5, 1024.0, false),
        };
        if fine && !coarse { ClassicBounds::eighths(from, to) } else { ClassicBounds::powers_of_two(from, to) }
    }
}

/// How many status codes are told apart. A gateway knows a dozen; one that invents them must not invent series.
pub const MAX_CODES: usize = 32;

/// Responses by status code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Responses {
    /// In order of the code.
    codes: Vec<(u16, u64)>,
    other: u64,
}

impl Responses {
    fn add(&mut self, code: u16, n: u64) {
        match self.codes.binary_search_by_key(&code, |(code, _)| *code) {
            Ok(at) => self.codes[at].1 += n,
            Err(at) if self.codes.len() < MAX_CODES => self.codes.insert(at, (code, n)),
            Err(_) => self.other += n,
        }
    }

    /// `(code, count)`, in order of the code.
    pub fn codes(&self) -> impl Iterator<Item = (u16, u64)> {
        self.codes.iter().copied()
    }

    /// Responses with codes beyond the first [`MAX_CODES`] different ones.
    #[must_use]
    pub fn other(&self) -> u64 {
        self.other
    }

    /// All responses.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.codes.iter().map(|(_, n)| n).sum::<u64>() + self.other
    }
}

/// Counters and histograms of one load.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    pub(super) planned: u64,
    pub(super) in_flight: i64,
    pub(super) shed: [u64; ShedReason::ALL.len()],
    pub(super) outcomes: [u64; Outcome::ALL.len()],
    /// Responses by status code: of every request that got a response head.
    pub responses: Responses,
    /// Connections opened for a request, warm-ups included.
    pub connections_opened: u64,
    /// Requests sent once more because a reused connection was stale.
    pub stale_connection_resends: u64,
    /// Answers compressed although `identity` was asked for.
    pub compressed_responses: u64,
    /// Answered requests whose n the server did not say.
    pub usage_missing: u64,
    /// Warm-ups that ended. Their outcomes are counted, nothing else that depends on tokens or time.
    pub warmup_requests: u64,
    /// Input tokens of answered requests, by the server's count.
    pub prompt_tokens: u64,
    /// n of answered requests, summed: its rate is the output token rate.
    pub generation_tokens: u64,
    /// Input tokens of answered requests that came from the prefix cache.
    pub cached_prompt_tokens: u64,
    /// Requests that met every objective.
    pub goodput_requests: u64,
    /// When the last request ended `ok`, warm-ups included.
    pub last_success_at: Option<Instant>,
    pub(super) histograms: [Histogram; Quantity::COUNT],
}

impl Totals {
    /// Requests planned, warm-ups included.
    #[must_use]
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// Requests planned and never sent.
    #[must_use]
    pub fn shed(&self, reason: ShedReason) -> u64 {
        self.shed[reason as usize]
    }

    /// Requests that ended so.
    #[must_use]
    pub fn outcome(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    /// Requests planned and neither shed nor ended, connecting included. Of a second's worth it is the change.
    #[must_use]
    pub fn in_flight(&self) -> i64 {
        self.in_flight
    }

    /// `planned = shed + in_flight + sum(outcomes)`, and nothing in flight that was not planned.
    #[must_use]
    pub fn is_conserved(&self) -> bool {
        let ended = self.shed.iter().sum::<u64>() + self.outcomes.iter().sum::<u64>();
        u64::try_from(self.in_flight).is_ok_and(|in_flight| self.planned == ended + in_flight)
    }

    /// The histogram of a quantity.
    #[must_use]
    pub fn histogram(&self, quantity: Quantity) -> &Histogram {
        &self.histograms[quantity as usize]
    }

    /// Adds all that the other one counted.
    pub fn merge(&mut self, other: &Self) {
        self.planned += other.planned;
        self.in_flight += other.in_flight;
        add(&mut self.shed, &other.shed);
        add(&mut self.outcomes, &other.outcomes);
        other.responses.codes().for_each(|(code, n)| self.responses.add(code, n));
        self.responses.other += other.responses.other;
        self.connections_opened += other.connections_opened;
        self.stale_connection_resends += other.stale_connection_resends;
        self.compressed_responses += other.compressed_responses;
        self.usage_missing += other.usage_missing;
        self.warmup_requests += other.warmup_requests;
        self.prompt_tokens += other.prompt_tokens;
        self.generation_tokens += other.generation_tokens;
        self.cached_prompt_tokens += other.cached_prompt_tokens;
        self.goodput_requests += other.goodput_requests;
        self.last_success_at = self.last_success_at.max(other.last_success_at);
        for (ours, theirs) in self.histograms.iter_mut().zip(&other.histograms) {
            ours.merge(theirs);
        }
    }

    /// Counts the end of a request as far as it concerns warm-ups too.
    pub(super) fn end(&mut self, timeline: &Timeline) {
        self.in_flight -= 1;
        self.outcomes[timeline.outcome as usize] += 1;
        if let Some(status) = timeline.status {
            self.responses.add(status, 1);
        }
        self.connections_opened += u64::from(timeline.opened.is_some());
        self.stale_connection_resends += u64::from(timeline.resent);
        self.compressed_responses += u64::from(timeline.compressed);
        if timeline.outcome.is_answered() {
            self.usage_missing += u64::from(timeline.answer.output_tokens().is_none());
        }
        if timeline.outcome == Outcome::Ok {
            self.last_success_at = self.last_success_at.max(Some(timeline.ended_at));
        }
    }
}

fn add<const N: usize>(ours: &mut [u64; N], theirs: &[u64; N]) {
    ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours += theirs);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_a_gateway_invents_make_no_series() {
        let mut responses = Responses::default();
        (100..1000).rev().for_each(|code| responses.add(code, 2));
        responses.add(999, 1);
        assert_eq!((responses.codes().count(), responses.total()), (MAX_CODES, 1801));
        assert_eq!(responses.codes().last(), Some((999, 3)));
    }

    #[test]
    fn the_law_notices_a_request_that_ended_twice_or_not_at_all() {
        let balanced = Totals { planned: 3, in_flight: 1, ..Totals::default() };
        let with = |shed: u64, ok: u64, in_flight: i64| {
            let mut totals = Totals { in_flight, ..balanced.clone() };
            totals.shed[ShedReason::Late as usize] = shed;
            totals.outcomes[Outcome::Ok as usize] = ok;
            totals.is_conserved()
        };
        assert!(with(1, 1, 1) && with(0, 3, 0));
        assert!(!with(1, 1, 0) && !with(1, 2, 1) && !with(2, 2, -1));
    }

    #[test]
    fn every_quantity_has_classic_bounds_that_are_affordable() {
        let lengths = |coarse: bool| {
            [Quantity::Ttft, Quantity::Tpot, Quantity::ItlChunk, Quantity::E2el]
                .map(|quantity| quantity.classic_bounds(coarse).upper_bounds().len())
        };
        assert!(lengths(false).iter().all(|n| (95..125).contains(n)), "{:?}", lengths(false));
        assert!(lengths(true).iter().all(|n| *n < 20), "{:?}", lengths(true));
    }
}
