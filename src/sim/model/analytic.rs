//! What the parameters say without a simulation: throughput in the steady state of a closed loop, and the knee.
//!
//! # Derivation
//! A request with P prompt tokens, C of them cached, and O output tokens is in the batch for `S = ceil((P − C) / max_prefill_tokens) + O − 1` steps.
//! It adds `w = (P − C)/prefill_rate + (O − 1)·step_per_request + ((O − 1)·P + O·(O − 1)/2)·step_per_kv_token` to them in total. While it is there, each of
//! the c sequences beside and including it passes once through all of its own work, so it stays for `E = S·step + c·w`, and the throughput is
//! `X = c / E`: rising, concave, at most `1/w`.
//!
//! c is what is *in the batch*. A closed loop of N workers has fewer there: after its last token, a worker's next request comes
//! `request_overhead` later, and if others are at work it waits for the end of their step. By Little's law `N = c + X·absent`.
//!
//! c cannot exceed `max_running_requests`, nor what the KV cache has room for at full length. From there on more workers only queue.

use std::time::Duration;

use super::{BLOCK_TOKENS, Params};

/// Requests that are all alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Of these, found in the prefix cache.
    pub cached_tokens: u32,
    /// Tokens of the answer.
    pub output_tokens: u32,
}

/// The part of the highest throughput at which the knee stands.
const KNEE: f64 = 0.95;

/// More workers than anyone has; the knee lies below.
const MOST_WORKERS: u32 = 1_000_000;

impl Params {
    /// Requests per second that a closed loop of `workers` gets answered in the steady state. Noise and swing have no part in it.
    #[must_use]
    pub fn throughput(&self, workload: Workload, workers: u32) -> f64 {
        let most = self.most_running(workload);
        // What is in the batch when nobody has to queue: the c of N = c + X·absent, between 0 and N.
        let (mut low, mut high) = (0.0, f64::from(workers));
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            let stay = self.stay(workload, middle);
            let absent = self.absent(workload, stay, workers);
            if middle + middle / stay * absent > f64::from(workers) { high = middle } else { low = middle }
        }
        let running = low.min(most);
        running / self.stay(workload, running)
    }

    /// The highest throughput, in requests per second, however many workers there are.
    #[must_use]
    pub fn most_throughput(&self, workload: Workload) -> f64 {
        let most = self.most_running(workload);
        most / self.stay(workload, most)
    }

    /// The smallest concurrency whose throughput is at least 95 % of the highest.
    #[must_use]
    pub fn knee(&self, workload: Workload) -> u32 {
        let enough = KNEE * self.most_throughput(workload);
        let (mut low, mut high) = (1, MOST_WORKERS);
        while low < high {
            let middle = u32::midpoint(low, high);
            if self.throughput(workload, middle) >= enough { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// Seconds in the batch, with so many in it on average.
    fn stay(&self, workload: Workload, running: f64) -> f64 {
        self.steps(workload) * self.step.as_secs_f64() + running.max(1.0) * self.work(workload)
    }

    fn steps(&self, Workload { prompt_tokens, cached_tokens, output_tokens }: Workload) -> f64 {
        let prefill = prompt_tokens.saturating_sub(cached_tokens).max(1).div_ceil(self.max_prefill_tokens.max(1));
        f64::from(prefill) + f64::from(output_tokens.max(1)) - 1.0
    }

    /// Seconds that one request adds to the steps in which it takes part.
    fn work(&self, workload: Workload) -> f64 {
        let Workload { prompt_tokens, cached_tokens, output_tokens } = workload;
        let decodes = f64::from(output_tokens.max(1)) - 1.0;
        let contexts = decodes * (f64::from(prompt_tokens) + (decodes + 1.0) / 2.0);
        f64::from(prompt_tokens.saturating_sub(cached_tokens)) / self.prefill_rate
            + decodes * self.step_per_request.as_secs_f64()
            + contexts * self.step_per_kv_token.as_secs_f64()
    }

    /// Seconds between a last token and the admission of the worker's next request.
    fn absent(&self, workload: Workload, stay: f64, workers: u32) -> f64 {
        let overhead = self.request_overhead.as_secs_f64();
        if workers == 1 {
            return overhead;
        }
        let step = stay / self.steps(workload);
        (overhead.max(Duration::from_nanos(1).as_secs_f64()) / step).ceil() * step
    }

    /// Requests that can be in the batch together to their end.
    fn most_running(&self, Workload { prompt_tokens, cached_tokens, output_tokens }: Workload) -> f64 {
        let shared = cached_tokens / BLOCK_TOKENS;
        // The last token is never read again and needs no room.
        let blocks = (prompt_tokens + output_tokens.max(1) - 1).div_ceil(BLOCK_TOKENS).saturating_sub(shared).max(1);
        let room = (self.kv_tokens / BLOCK_TOKENS).saturating_sub(shared) / blocks;
        f64::from(room.min(self.max_running_requests).max(1))
    }
}
