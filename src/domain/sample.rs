//! What is said about one request: the quantities of `semantics` section 2.

use std::time::Duration;

use crate::domain::outcome::Outcome;

/// The quantities of one request. A quantity that does not exist for it is `None`, never zero.
///
/// Latencies of the answer exist only when the request was answered ([`Outcome::is_answered`]): a failed request never
/// enters a latency. `measure::sample` computes it and states each formula.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// How the request ended.
    pub outcome: Outcome,
    /// `first_at - sent_at`.
    pub ttft: Option<Duration>,
    /// `(last_at - first_at) / (n - n1)`.
    pub tpot: Option<Duration>,
    /// `last_at - sent_at`; not for `short_output`.
    pub e2el: Option<Duration>,
    /// First answer text (not reasoning) `- sent_at`.
    pub ttfo: Option<Duration>,
    /// First event with any `choices` `- sent_at`.
    pub ttfc: Option<Duration>,
    /// `first_at - planned_at`.
    pub corrected_ttft: Option<Duration>,
    /// `last_at - planned_at`; not for `short_output`.
    pub corrected_e2el: Option<Duration>,
    /// `closed_at - last_at`.
    pub stream_close: Option<Duration>,
    /// `sent_at - planned_at` without the connection's set-up: our own lateness. Exists for failed requests too.
    pub schedule_lag: Option<Duration>,
    /// n, output tokens by the server's count.
    pub output_tokens: Option<u32>,
    /// n divided by the number of token-bearing events.
    pub tokens_per_chunk: Option<f64>,
}

/// What one inter-token latency stands for. The two are never mixed in one series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ItlBasis {
    /// The server said how many tokens each event held.
    Token,
    /// It did not: one value per gap between events.
    Chunk,
}
