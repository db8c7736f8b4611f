//! `Timeline → Sample`: the one place where the quantities of `semantics` section 2 are computed.
//!
//! Everything here is a pure function of the stamps. Two rules hold throughout: what does not exist is `None` (an
//! unknown n gives no TPOT, one event gives no gap), and a request that was not answered has no latency, because a
//! gateway that drops its slowest requests must not look faster.

use std::time::Duration;

use crate::domain::outcome::Outcome;
use crate::domain::sample::{ItlBasis, Sample};
use crate::domain::timeline::{Answer, Timeline, TokenEvent};

/// Computes every quantity of one request.
#[must_use]
pub fn sample(timeline: &Timeline) -> Sample {
    let answer = &timeline.answer;
    let planned_at = timeline.arrival.planned_at;
    let answered = timeline.outcome.is_answered().then_some(timeline.sent_at).flatten();
    // A short answer ended too early to compare its end with others', so it has no E2EL.
    let whole = answered.filter(|_| timeline.outcome == Outcome::Ok);
    let (first_at, last_at) = (answer.first_at(), answer.last_at());
    Sample {
        outcome: timeline.outcome,
        ttft: span(answered, first_at),
        tpot: answered.and_then(|_| tpot(answer)),
        e2el: span(whole, last_at),
        ttfo: span(answered, answer.first_answer_at),
        ttfc: span(answered, answer.first_choices_at),
        corrected_ttft: span(answered.map(|_| planned_at), first_at),
        corrected_e2el: span(whole.map(|_| planned_at), last_at),
        stream_close: answered.and_then(|_| span(last_at, answer.closed_at)),
        schedule_lag: span(Some(planned_at), timeline.sent_at).map(|lag| lag.saturating_sub(timeline.setup)),
        output_tokens: answer.output_tokens(),
        tokens_per_chunk: answered.and_then(|_| tokens_per_chunk(answer)),
    }
}

/// ICL: the gaps between consecutive token-bearing events, one `Duration` per gap, in order.
///
/// Empty with fewer than two events. Always available; this is what shows a stall that a division would smooth.
pub fn inter_chunk_latencies(answer: &Answer) -> impl Iterator<Item = Duration> {
    answer.tokens.windows(2).filter_map(|pair| match pair {
        [before, after] => Some(after.at.saturating_duration_since(before.at)),
        _ => None,
    })
}

/// Which basis the answer's ITL has: `Token` when every event came with a count of its own, otherwise `Chunk`.
#[must_use]
pub fn itl_basis(answer: &Answer) -> ItlBasis {
    if answer.tokens.iter().all(|event| event.tokens.is_some()) { ItlBasis::Token } else { ItlBasis::Chunk }
}

/// ITL: `(latency, count)` pairs in order; the latency is to be recorded `count` times.
///
/// Basis `Token`: gap divided by the tokens of the event that ended it. An event that the server counted no token for
/// (a flushed character) ends no gap: its time goes to the next event that has one, so that the pairs sum up to
/// `last_at - first_at` of the counted events. Basis `Chunk`: each gap once. Empty with fewer than two events.
#[must_use]
pub fn inter_token_latencies(answer: &Answer) -> Vec<(Duration, u32)> {
    let per_token = itl_basis(answer) == ItlBasis::Token;
    let Some((first, rest)) = answer.tokens.split_first() else { return Vec::new() };
    let mut from = first.at;
    let mut latencies = Vec::with_capacity(rest.len());
    for TokenEvent { at, tokens } in rest {
        let count = if per_token { tokens.unwrap_or(1) } else { 1 };
        if count > 0 {
            latencies.push((at.saturating_duration_since(from) / count, count));
            from = *at;
        }
    }
    latencies
}

/// n1: tokens in the first event if the server said so, else 1, plus hidden reasoning.
///
/// Reasoning tokens that are reported but never streamed all come before the first visible event. A count at the first event
/// already contains them. `None` without events.
#[must_use]
pub fn first_event_tokens(answer: &Answer) -> Option<u32> {
    let first = answer.tokens.first()?;
    let hidden = if answer.reasoning_shown { None } else { answer.usage.and_then(|usage| usage.reasoning_tokens) };
    Some(first.tokens.unwrap_or_else(|| 1_u32.saturating_add(hidden.unwrap_or(0))))
}

/// TPOT: mean time per output token after the first event, `(last_at - first_at) / (n - n1)`.
///
/// `None` when n is unknown, when `n - n1 < 1`, and when all tokens came in one read: there is no interval to divide, and a
/// proxy that collects the answer must not look like an engine that takes no time. n: the server's `usage`.
fn tpot(answer: &Answer) -> Option<Duration> {
    let later = answer.output_tokens()?.checked_sub(first_event_tokens(answer)?)?;
    let decoding = span(answer.first_at(), answer.last_at()).filter(|decoding| !decoding.is_zero())?;
    decoding.checked_div(later)
}

/// n divided by the token-bearing events: coalescing, speculative decoding, `stream_interval`. `None` without either.
fn tokens_per_chunk(answer: &Answer) -> Option<f64> {
    let events = u32::try_from(answer.tokens.len()).ok().filter(|events| *events > 0)?;
    Some(f64::from(answer.output_tokens()?) / f64::from(events))
}

fn span(from: Option<tokio::time::Instant>, to: Option<tokio::time::Instant>) -> Option<Duration> {
    Some(to?.saturating_duration_since(from?))
}

#[cfg(test)]
mod tests;
