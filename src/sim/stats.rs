//! What the gateway counts of itself, for `/metrics`.
//!
//! There are two layers. [`Stats`] has what is seen at the gateway: requests, tokens and latencies, taken in one place,
//! the [`Meter`] that the truth log carries for each request. [`EngineStats`] has what only an engine knows; an engine
//! model supplies it, and [`EngineStats::drawn`] says what can be said where times are drawn: everything runs, nothing
//! waits, and there is no cache to fill.
//!
//! Stamps are those of a write's first try: a reader that is slow to take bytes is not the server's latency. Nothing
//! here locks, since an event of a stream passes through it: some atomic additions, no allocation.

mod histogram;

pub(crate) use self::histogram::{Histogram, Reading};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::sim::model::{BLOCK_TOKENS, Params, Spent, Status};
use crate::sim::settings::ServerKind;
use crate::sim::truth::End;

const VLLM_TTFT: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];

const VLLM_PER_TOKEN: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];

const VLLM_REQUEST: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];

const SGLANG_TTFT: &[f64] =
    &[0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0];

const SGLANG_PER_TOKEN: &[f64] = &[
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0,
    2.0, 4.0, 6.0, 8.0,
];

const SGLANG_REQUEST: &[f64] = &[
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0, 600.0, 1200.0,
    1800.0, 2400.0,
];

const LAG: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5, 1.0,
];

/// Why a request is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinishReason {
    /// The model ended by itself.
    Stop,
    /// The limit was reached.
    Length,
    /// The client left, or the answer says so itself.
    Abort,
    /// A fault cut the answer, came in its place, or the answer says so itself.
    Error,
}

impl FinishReason {
    pub(crate) const ALL: [Self; 4] = [Self::Stop, Self::Length, Self::Abort, Self::Error];

    /// The word of vLLM's answers and metrics.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Abort => "abort",
            Self::Error => "error",
        }
    }
}

/// What a request that can be answered is to get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) prompt_tokens: u32,
    pub(crate) cached_tokens: u32,
    /// Output tokens that are made, but not written.
    pub(crate) hidden_tokens: u32,
    /// Output tokens that are to be written.
    pub(crate) tokens: u32,
    /// Why it ends if nothing cuts it.
    pub(crate) reason: FinishReason,
    pub(crate) is_stream: bool,
}

/// Two histograms, one for streams and one for whole answers, as SGLang tells them apart.
#[derive(Debug)]
pub(crate) struct ByForm {
    pub(crate) streams: Histogram,
    pub(crate) wholes: Histogram,
}

/// Requests that are over, by reason.
#[derive(Debug, Default)]
struct Finished {
    stop: AtomicU64,
    length: AtomicU64,
    abort: AtomicU64,
    error: AtomicU64,
}

/// Everything counted at the gateway. Numbers only rise, but for `open`.
#[derive(Debug)]
pub(crate) struct Stats {
    kind: ServerKind,
    start: Instant,
    /// Seconds since 1970 at the start.
    pub(crate) start_unix: Duration,
    /// Requests that were read and are not over.
    open: AtomicU64,
    finished: Finished,
    /// Requests that could not be answered: bad bodies, wrong keys, unknown models.
    refused: AtomicU64,
    /// Prompt tokens of the answers that began.
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    /// Output tokens made, hidden ones included.
    generation_tokens: AtomicU64,
    /// Output tokens in writes, as the truth log has them.
    written_tokens: AtomicU64,
    rate: Rate,
    /// How late a write was begun: its first try minus its due moment.
    pub(crate) event_lag: Histogram,
    /// From the request's last byte to the first write with a token; of all answers that began.
    pub(crate) ttft: ByForm,
    /// Between two writes with tokens. SGLang counts one share of it for each token, vLLM one for the write.
    pub(crate) itl: Histogram,
    // The rest is of answers that were written to their end.
    /// `(last - first) / (n - 1)`, n being the tokens written. With one token vLLM counts 0, SGLang nothing.
    pub(crate) tpot: ByForm,
    /// From the request's last byte to the end of its answer.
    pub(crate) e2e: ByForm,
    pub(crate) times: EngineTimes,
    pub(crate) prompt_lengths: Histogram,
    pub(crate) generation_lengths: Histogram,
}

/// The parts of a request's time inside the engine.
#[derive(Debug)]
pub(crate) struct EngineTimes {
    /// From its arrival to its first step.
    pub(crate) queue: Histogram,
    /// From its first step to its first token.
    pub(crate) prefill: Histogram,
    /// From its first token to its last.
    pub(crate) decode: Histogram,
    /// The last two together.
    pub(crate) inference: Histogram,
}

/// The KV cache of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KvStats {
    pub(crate) used_tokens: u64,
    pub(crate) capacity_tokens: u64,
    pub(crate) block_tokens: u32,
}

/// What only the engine knows, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EngineStats {
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    /// `None` when there is no cache.
    pub(crate) kv: Option<KvStats>,
    /// Prompt tokens looked up in the prefix cache.
    pub(crate) prefix_queries_tokens: u64,
    /// Of these, found.
    pub(crate) prefix_hits_tokens: u64,
    pub(crate) preemptions: u64,
    /// `None` when there is no limit.
    pub(crate) max_running_requests: Option<u32>,
    /// Tokens of one step; `None` when there is no limit.
    pub(crate) max_prefill_tokens: Option<u32>,
}

impl EngineStats {
    /// Where times are drawn: every open request runs, and the prefix cache is what the settings say.
    pub(crate) fn drawn(stats: &Stats) -> Self {
        Self {
            running: stats.open(),
            waiting: 0,
            kv: None,
            prefix_queries_tokens: stats.prompt_tokens(),
            prefix_hits_tokens: stats.cached_tokens(),
            preemptions: 0,
            max_running_requests: None,
            max_prefill_tokens: None,
        }
    }
}

impl EngineStats {
    /// What a modelled engine says of itself.
    pub(crate) fn modelled(status: Status, params: &Params) -> Self {
        Self {
            running: u64::from(status.running),
            waiting: u64::from(status.waiting),
            kv: Some(KvStats {
                used_tokens: u64::from(status.kv_used_tokens),
                capacity_tokens: u64::from(status.kv_tokens),
                block_tokens: BLOCK_TOKENS,
            }),
            prefix_queries_tokens: status.prefix_queries,
            prefix_hits_tokens: status.prefix_hits,
            preemptions: status.preemptions,
            max_running_requests: Some(params.max_running_requests),
            max_prefill_tokens: Some(params.max_prefill_tokens),
        }
    }
}

impl ByForm {
    fn new(bounds: &[f64]) -> Self {
        Self { streams: Histogram::of_times(bounds), wholes: Histogram::of_times(bounds) }
    }

    fn of(&self, is_stream: bool) -> &Histogram {
        if is_stream { &self.streams } else { &self.wholes }
    }
}

impl Finished {
    const fn of(&self, reason: FinishReason) -> &AtomicU64 {
        match reason {
            FinishReason::Stop => &self.stop,
            FinishReason::Length => &self.length,
            FinishReason::Abort => &self.abort,
            FinishReason::Error => &self.error,
        }
    }
}

impl Stats {
    /// Nothing counted yet. The bounds are those of `kind`.
    pub(crate) fn new(kind: ServerKind, max_model_len: u32, start: Instant, start_unix: Duration) -> Self {
        let (ttft, per_token, request) = match kind {
            ServerKind::Vllm => (VLLM_TTFT, VLLM_PER_TOKEN, VLLM_REQUEST),
            ServerKind::Sglang => (SGLANG_TTFT, SGLANG_PER_TOKEN, SGLANG_REQUEST),
        };
        let lengths = one_two_five(u64::from(max_model_len));
        Self {
            kind,
            start,
            start_unix,
            open: AtomicU64::new(0),
            finished: Finished::default(),
            refused: AtomicU64::new(0),
            prompt_tokens: AtomicU64::new(0),
            cached_tokens: AtomicU64::new(0),
            generation_tokens: AtomicU64::new(0),
            written_tokens: AtomicU64::new(0),
            rate: Rate::default(),
            event_lag: Histogram::of_times(LAG),
            ttft: ByForm::new(ttft),
            itl: Histogram::of_times(per_token),
            tpot: ByForm::new(per_token),
            e2e: ByForm::new(request),
            times: EngineTimes {
                queue: Histogram::of_times(request),
                prefill: Histogram::of_times(request),
                decode: Histogram::of_times(request),
                inference: Histogram::of_times(request),
            },
            prompt_lengths: Histogram::of_things(&lengths),
            generation_lengths: Histogram::of_things(&lengths),
        }
    }

    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn finished(&self, reason: FinishReason) -> u64 {
        self.finished.of(reason).load(Ordering::Relaxed)
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens.load(Ordering::Relaxed)
    }

    pub(crate) fn cached_tokens(&self) -> u64 {
        self.cached_tokens.load(Ordering::Relaxed)
    }

    pub(crate) fn generation_tokens(&self) -> u64 {
        self.generation_tokens.load(Ordering::Relaxed)
    }

    pub(crate) fn written_tokens(&self) -> u64 {
        self.written_tokens.load(Ordering::Relaxed)
    }

    /// Output tokens made in the last whole second before `now`.
    pub(crate) fn tokens_per_second(&self, now: Instant) -> u64 {
        self.rate.last_second(now.saturating_duration_since(self.start).as_secs())
    }

    /// A request was read. `order` is absent when it cannot be answered.
    pub(crate) fn meter(self: &Arc<Self>, order: Option<Order>, received_at: Instant) -> Meter {
        self.open.fetch_add(1, Ordering::Relaxed);
        Meter {
            stats: Arc::clone(self),
            order,
            received_at,
            first_at: None,
            last_at: received_at,
            tokens: 0,
            spent: None,
        }
    }
}

/// Tokens by second, for the last few seconds. A slot holds its second and its count in one number, so that a slot
/// that is used again forgets the old second by itself.
#[derive(Debug, Default)]
struct Rate {
    slots: [AtomicU64; 4],
}

const COUNT_BITS: u32 = 32;

impl Rate {
    fn slot(&self, second: u64) -> Option<&AtomicU64> {
        self.slots.get(usize::try_from(second % 4).unwrap_or_default())
    }

    fn add(&self, second: u64, tokens: u64) {
        let Some(slot) = self.slot(second) else { return };
        if slot.load(Ordering::Relaxed) >> COUNT_BITS == second {
            slot.fetch_add(tokens, Ordering::Relaxed);
        } else {
            slot.store((second << COUNT_BITS) + tokens, Ordering::Relaxed);
        }
    }

    fn last_second(&self, second: u64) -> u64 {
        let Some(last) = second.checked_sub(1) else { return 0 };
        let value = self.slot(last).map_or(0, |slot| slot.load(Ordering::Relaxed));
        if value >> COUNT_BITS == last { value & u64::from(u32::MAX) } else { 0 }
    }
}

/// Counts one request while it is answered. Belongs to the task that writes the answer.
#[derive(Debug)]
pub(crate) struct Meter {
    stats: Arc<Stats>,
    order: Option<Order>,
    received_at: Instant,
    first_at: Option<Instant>,
    last_at: Instant,
    /// Written so far.
    tokens: u64,
    /// Where the time went, if an engine is modelled.
    spent: Option<Spent>,
}

impl Meter {
    /// What the prefix cache had of the prompt, once that is known.
    pub(crate) const fn cached(&mut self, tokens: u32) {
        if let Some(order) = &mut self.order {
            order.cached_tokens = tokens;
        }
    }

    /// Where the engine says that the time went.
    pub(crate) const fn spent(&mut self, spent: Spent) {
        self.spent = Some(spent);
    }

    /// A write begins that was due at `due` and completes events with this many tokens.
    pub(crate) fn write(&mut self, now: Instant, due: Option<Instant>, tokens: u32) {
        if let Some(due) = due {
            self.stats.event_lag.record(now.saturating_duration_since(due));
        }
        let Some(order) = self.order.filter(|_| tokens > 0) else { return };
        let mut made = u64::from(tokens);
        self.stats.written_tokens.fetch_add(made, Ordering::Relaxed);
        if self.first_at.is_some() {
            let gap = now.saturating_duration_since(self.last_at);
            match self.stats.kind {
                ServerKind::Vllm => self.stats.itl.record(gap),
                ServerKind::Sglang => self.stats.itl.record_times(gap / tokens, tokens),
            }
        } else {
            self.first_at = Some(now);
            self.stats.ttft.of(order.is_stream).record(now.saturating_duration_since(self.received_at));
            self.stats.prompt_tokens.fetch_add(u64::from(order.prompt_tokens), Ordering::Relaxed);
            self.stats.cached_tokens.fetch_add(u64::from(order.cached_tokens), Ordering::Relaxed);
            made += u64::from(order.hidden_tokens);
        }
        self.stats.generation_tokens.fetch_add(made, Ordering::Relaxed);
        self.stats.rate.add(now.saturating_duration_since(self.stats.start).as_secs(), made);
        self.last_at = now;
        self.tokens += u64::from(tokens);
    }

    /// The request is over, at `now` unless the client left.
    pub(crate) fn close(self, now: Option<Instant>, end: End) {
        let stats = &self.stats;
        stats.open.fetch_sub(1, Ordering::Relaxed);
        let Some(order) = self.order else {
            stats.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let is_complete = end == End::Whole && self.tokens >= u64::from(order.tokens);
        let reason = match end {
            End::Whole if is_complete => order.reason,
            End::Open | End::Left => FinishReason::Abort,
            End::Whole | End::Cut => FinishReason::Error,
        };
        stats.finished.of(reason).fetch_add(1, Ordering::Relaxed);
        if is_complete && let Some(now) = now {
            self.complete(&order, now);
        }
    }

    /// The latencies of an answer that was written to its end.
    fn complete(&self, order: &Order, now: Instant) {
        let stats = &self.stats;
        let e2e = now.saturating_duration_since(self.received_at);
        stats.e2e.of(order.is_stream).record(e2e);
        let first_at = self.first_at.unwrap_or(now);
        let decode = self.last_at.saturating_duration_since(first_at);
        let prefill = first_at.saturating_duration_since(self.received_at);
        let later = u32::try_from(self.tokens.saturating_sub(1)).unwrap_or(u32::MAX);
        let tpot = stats.tpot.of(order.is_stream);
        match (decode.checked_div(later), stats.kind) {
            (Some(time), _) => tpot.record(time),
            (None, ServerKind::Vllm) => tpot.record(Duration::ZERO),
            (None, ServerKind::Sglang) => {}
        }
        let Spent { queue, prefill, decode } = self.spent.unwrap_or(Spent { queue: Duration::ZERO, prefill, decode });
        stats.times.queue.record(queue);
        stats.times.prefill.record(prefill);
        stats.times.decode.record(decode);
        stats.times.inference.record(prefill + decode);
        stats.prompt_lengths.record_number(u64::from(order.prompt_tokens));
        stats.generation_lengths.record_number(self.tokens + u64::from(order.hidden_tokens));
    }
}

/// 1, 2, 5, 10, 20, … up to `most`, which is how vLLM counts lengths.
fn one_two_five(most: u64) -> Vec<u64> {
    let decades = std::iter::successors(Some(1_u64), |decade| decade.checked_mul(10));
    let bounds = decades.flat_map(|decade| [1, 2, 5].map(|digit| decade.saturating_mul(digit)));
    bounds.take_while(|bound| *bound <= most).collect()
}

#[cfg(test)]
mod tests;
