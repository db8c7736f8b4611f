//! The stamps of one request, as they were taken: everything that is later said about it is computed from here.
//!
//! A `Timeline` holds no quantity (no TTFT, no TPOT), only instants, counts and the outcome, so that a definition can
//! be read in one place (`measure::sample`) and changed without touching the client.

use std::time::Duration;

use tokio::time::Instant;

use crate::domain::arrival::Arrival;
use crate::domain::outcome::Outcome;

/// Everything that was observed of one request.
#[derive(Debug, Clone)]
pub struct Timeline {
    /// Which request of the plan this was, and when it was to leave.
    pub arrival: Arrival,
    /// The `x-request-id` that it carried.
    pub request_id: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The phases of the connection opened for it; `None` when a pooled connection was used or none came up.
    pub opened: Option<ConnectPhases>,
    /// Time between `planned_at` and `sent_at` that went into having a connection: the dial, and the first try when a
    /// stale pooled connection made a second one necessary. It is subtracted from the schedule lag.
    pub setup: Duration,
    /// The request was handed to a *ready* connection; `None` when it never got that far.
    pub sent_at: Option<Instant>,
    /// The response head was received.
    pub headers_at: Option<Instant>,
    /// Status of the response head.
    pub status: Option<u16>,
    /// The answer's stamps and counts. Empty when none came.
    pub answer: Answer,
    /// The instant at which the request ended for us, whatever the outcome.
    pub ended_at: Instant,
    /// A reused connection failed before any response byte and the request was sent once more on a new one.
    pub resent: bool,
    /// The body was compressed although we asked for `identity`: its stamps show the compressor's buffer.
    pub compressed: bool,
    /// How long the gateway asks to be left alone (`Retry-After` of a 429 or 503), from `ended_at` on and capped. `None` when it
    /// does not ask, or not in a form that can be read.
    pub retry_after: Option<Duration>,
    /// What went wrong in words: the first bytes of the server's error or the cause on our side. Never a label.
    pub detail: Option<String>,
}

/// Duration of each phase of opening a connection. A phase that did not take place is `None`, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectPhases {
    /// Name resolution; `None` for an address literal.
    pub dns: Option<Duration>,
    /// TCP handshake.
    pub tcp: Option<Duration>,
    /// TLS handshake; `None` for plain HTTP.
    pub tls: Option<Duration>,
}

/// Stamps and counts of one streamed answer.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The token-bearing events in order.
    pub tokens: Vec<TokenEvent>,
    /// The first event with any `choices` (TTFC, only to reconcile with other tools).
    pub first_choices_at: Option<Instant>,
    /// The first event with answer text, not reasoning (TTFO).
    pub first_answer_at: Option<Instant>,
    /// `[DONE]`, or the end of the body. `None` when neither was seen.
    pub closed_at: Option<Instant>,
    /// The last usage seen. `None` when the server sent none.
    pub usage: Option<Usage>,
    /// Some event carried reasoning text.
    pub reasoning_shown: bool,
    /// The last `finish_reason` seen.
    pub finish_reason: Option<String>,
    /// Reads of the socket that completed at least one token-bearing event. Far fewer than events: something on the
    /// way collects the stream.
    pub token_reads: u32,
    /// The body did not end by protocol: FIN inside a chunked body or short of `Content-Length`.
    pub cut: bool,
}

/// One token-bearing event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenEvent {
    /// Return of the socket read in which the event became complete.
    pub at: Instant,
    /// Tokens in this event by the server's continuous count; `None` when it did not say.
    pub tokens: Option<u32>,
}

/// Token counts as the server reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// n, the output tokens.
    pub completion_tokens: Option<u32>,
    /// Input tokens, template included.
    pub prompt_tokens: Option<u32>,
    /// Input tokens that the engine took from its prefix cache.
    pub cached_tokens: Option<u32>,
    /// Output tokens that were reasoning.
    pub reasoning_tokens: Option<u32>,
}

impl ConnectPhases {
    /// The whole set-up: the sum of the phases that took place.
    #[must_use]
    pub fn total(&self) -> Duration {
        [self.dns, self.tcp, self.tls].into_iter().flatten().sum()
    }
}

impl Answer {
    /// The first token-bearing event.
    #[must_use]
    pub fn first_at(&self) -> Option<Instant> {
        self.tokens.first().map(|event| event.at)
    }

    /// The last token-bearing event.
    #[must_use]
    pub fn last_at(&self) -> Option<Instant> {
        self.tokens.last().map(|event| event.at)
    }

    /// n: output tokens by the server's own count. `None` without usage; never guessed from the number of events.
    ///
    /// A count of zero beside tokens that came is a gateway's placeholder (LiteLLM writes one when it was not asked for
    /// usage), so it is no count either.
    #[must_use]
    pub fn output_tokens(&self) -> Option<u32> {
        let counted = self.usage.and_then(|usage| usage.completion_tokens);
        counted.filter(|n| *n > 0 || self.tokens.is_empty())
    }
}
