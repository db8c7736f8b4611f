//! A model of an inference engine with continuous batching: which token exists when.
//!
//! Pure: the present is an argument, so that the same code answers a paused clock, a loop of a test that simulates an hour in a
//! second, and the machine's clock (`engine` drives it there). Given the same jobs at the same times and the same seed it
//! makes the same tokens at the same nanoseconds, however finely [`Engine::advance`] is called.
//!
//! # A step
//! The engine works in steps, and a token exists at the end of its step. At the start of one:
//! 1. each sequence that decodes takes room for one more token; if there is none, the youngest sequence is *preempted*: its room
//!    is freed, and it waits at the head of the queue to compute everything again;
//! 2. sequences in the middle of their prompt go on with it, and waiting ones are admitted in their order, as long as the
//!    batch ([`Params::max_running_requests`]), the prompt tokens of the step ([`Params::max_prefill_tokens`]) and the KV cache
//!    have room. Blocks of the prompt that the prefix cache still has are not computed;
//! 3. the step lasts as long as [`Params::step_time`] says of this batch. Prompts make it longer for all who decode in it: that is
//!    the stall that users see as a long gap between two tokens.
//!
//! This is vLLM V1's scheduler with chunked prefill, and close to SGLang's with mixed chunks.
//!
//! # Deliberately absent
//! Speculative decoding, several priorities, LoRA, multimodal input, disaggregated prefill, KV blocks of answers in the prefix
//! cache (only prompts are found again), and the saturation of a mixture of experts: a step grows linearly with its batch.

mod analytic;
mod kv;
mod params;
pub mod presets;

pub use self::analytic::Workload;
pub use self::params::{Params, ParamsError};

use std::collections::{BTreeMap, VecDeque};
use std::f64::consts::TAU;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, LogNormal};

use self::kv::{Held, Kv};
use self::params::Batch;

/// Tokens of a block of the KV cache, vLLM's default.
pub const BLOCK_TOKENS: u32 = 16;

/// A request as the engine sees it.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its name in [`Event`]s; the caller's, unique among the jobs that are not finished.
    pub id: u64,
    /// Tokens of the prompt, at least 1.
    pub prompt_tokens: u32,
    /// A hash of each full block of the prompt and of all before it; empty when nothing of it can be found again.
    pub blocks: Arc<[u64]>,
    /// Tokens of the answer, at least 1.
    pub output_tokens: u32,
}

/// What happened, at which time after the engine's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The job has entered the batch for the first time.
    Admitted {
        /// The job.
        id: u64,
        /// When.
        at: Duration,
        /// Tokens of its prompt that the prefix cache had.
        cached_tokens: u32,
    },
    /// One more token of its answer exists.
    Token {
        /// The job.
        id: u64,
        /// When.
        at: Duration,
        /// Its tokens so far.
        made: u32,
    },
    /// The last token has been made; the job is forgotten.
    Finished {
        /// The job.
        id: u64,
        /// How long it was in the engine, part by part.
        spent: Spent,
    },
}

/// Where the time of a finished job went. The three add up to the time from its queue to its last token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// Until it first entered the batch.
    pub queue: Duration,
    /// From there to its first token.
    pub prefill: Duration,
    /// From its first to its last token.
    pub decode: Duration,
}

/// How much the engine has to do, and what it has done since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// Requests in the batch.
    pub running: u32,
    /// Requests in the queue.
    pub waiting: u32,
    /// Tokens for which the blocks in use have room.
    pub kv_used_tokens: u32,
    /// Tokens for which the cache has room.
    pub kv_tokens: u32,
    /// Prompt tokens that were looked for in the prefix cache.
    pub prefix_queries: u64,
    /// Prompt tokens that were found there.
    pub prefix_hits: u64,
    /// Sequences that lost their room and had to compute everything again.
    pub preemptions: u64,
}

/// The engine.
#[derive(Debug)]
pub struct Engine {
    params: Params,
    rng: StdRng,
    noise: Option<LogNormal<f64>>,
    kv: Kv,
    /// The last time at which a step began or ended.
    now: Duration,
    submitted: u64,
    /// In front of the queue: being parsed and tokenised. By the time at which they enter the queue.
    arriving: BTreeMap<(Duration, u64), Sequence>,
    waiting: VecDeque<Sequence>,
    /// The batch, the youngest last.
    running: Vec<Sequence>,
    /// When the step in progress ends.
    step_ends: Option<Duration>,
    prefix_queries: u64,
    prefix_hits: u64,
    preemptions: u64,
}

#[derive(Debug)]
struct Sequence {
    job: Job,
    queued_at: Duration,
    admitted_at: Option<Duration>,
    first_at: Option<Duration>,
    /// Tokens of the answer so far.
    made: u32,
    /// Tokens that must be in the KV cache before the next token can be made: prompt, and answer so far after a preemption.
    target: u32,
    /// Of these, how many are.
    computed: u32,
    held: Held,
    work: Work,
}

/// What a sequence does in the step in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Nothing,
    Prefill(u32),
    Decode,
}

impl Sequence {
    /// Tokens whose keys and values are read to make the next one.
    const fn context(&self) -> u32 {
        self.job.prompt_tokens.saturating_add(self.made)
    }

    const fn is_prefilling(&self) -> bool {
        self.computed < self.target
    }
}

impl Engine {
    /// An idle engine. `seed` decides its noise.
    #[must_use]
    pub fn new(params: Params, seed: u64) -> Self {
        // Of mean 1, so that more noise makes the engine no slower.
        let noise = LogNormal::new(-params.jitter * params.jitter / 2.0, params.jitter).ok();
        Self {
            rng: StdRng::seed_from_u64(seed),
            noise: noise.filter(|_| params.jitter > 0.0),
            kv: Kv::new(params.kv_tokens / BLOCK_TOKENS),
            now: Duration::ZERO,
            submitted: 0,
            arriving: BTreeMap::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            step_ends: None,
            prefix_queries: 0,
            prefix_hits: 0,
            preemptions: 0,
            params,
        }
    }

    /// A request arrives at time `at`; it enters the queue [`Params::request_overhead`] later.
    pub fn submit(&mut self, at: Duration, job: Job) {
        let overhead = self.params.request_overhead.mul_f64(self.draw());
        let queued_at = at.max(Duration::ZERO) + overhead;
        let target = job.prompt_tokens;
        let sequence = Sequence {
            job,
            queued_at,
            admitted_at: None,
            first_at: None,
            made: 0,
            target,
            computed: 0,
            held: Held::default(),
            work: Work::Nothing,
        };
        self.arriving.insert((queued_at, self.submitted), sequence);
        self.submitted += 1;
    }

    /// The caller of a job is gone: nothing more is made of it. The step in progress lasts as long as it would have.
    pub fn cancel(&mut self, id: u64) {
        let arriving = self.arriving.iter().find(|(_, sequence)| sequence.job.id == id).map(|(key, _)| *key);
        if let Some(key) = arriving {
            self.arriving.remove(&key);
        }
        self.waiting.retain(|sequence| sequence.job.id != id);
        if let Some(index) = self.running.iter().position(|sequence| sequence.job.id == id) {
            let sequence = self.running.remove(index);
            self.kv.release(&sequence.held);
        }
    }

    /// When something will happen next; `None` when there is nothing to do.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        self.step_ends.or_else(|| self.arriving.keys().next().map(|(at, _)| (*at).max(self.now)))
    }

    /// Everything that happens up to and including `to`, in its order, is appended to `events`.
    pub fn advance(&mut self, to: Duration, events: &mut Vec<Event>) {
        while let Some(at) = self.next().filter(|at| *at <= to) {
            self.now = at;
            if self.step_ends.take().is_some() {
                self.end_step(events);
            }
            self.begin_step(events);
        }
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> Status {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Status {
            running: count(self.running.len()),
            waiting: count(self.waiting.len()),
            kv_used_tokens: self.kv.used().saturating_mul(BLOCK_TOKENS),
            kv_tokens: self.kv.capacity().saturating_mul(BLOCK_TOKENS),
            prefix_queries: self.prefix_queries,
            prefix_hits: self.prefix_hits,
            preemptions: self.preemptions,
        }
    }

    fn draw(&mut self) -> f64 {
        self.noise.map_or(1.0, |noise| noise.sample(&mut self.rng))
    }

    fn end_step(&mut self, events: &mut Vec<Event>) {
        let at = self.now;
        let kv = &mut self.kv;
        self.running.retain_mut(|sequence| {
            match std::mem::replace(&mut sequence.work, Work::Nothing) {
                Work::Nothing => return true,
                Work::Prefill(tokens) => {
                    sequence.computed += tokens;
                    if sequence.is_prefilling() {
                        return true;
                    }
                }
                Work::Decode => {}
            }
            sequence.made += 1;
            let id = sequence.job.id;
            let first_at = *sequence.first_at.get_or_insert(at);
            events.push(Event::Token { id, at, made: sequence.made });
            if sequence.made < sequence.job.output_tokens {
                return true;
            }
            kv.release(&sequence.held);
            let admitted_at = sequence.admitted_at.unwrap_or(at);
            let spent = Spent {
                queue: admitted_at.saturating_sub(sequence.queued_at),
                prefill: first_at.saturating_sub(admitted_at),
                decode: at.saturating_sub(first_at),
            };
            events.push(Event::Finished { id, spent });
            false
        });
    }

    fn begin_step(&mut self, events: &mut Vec<Event>) {
        while let Some(entry) = self.arriving.first_entry().filter(|entry| entry.key().0 <= self.now) {
            self.waiting.push_back(entry.remove());
        }
        self.make_room();
        let mut budget = self.params.max_prefill_tokens;
        for sequence in &mut self.running {
            if sequence.is_prefilling() {
                let tokens = budget.min(sequence.target - sequence.computed);
                budget -= tokens;
                sequence.work = if tokens > 0 { Work::Prefill(tokens) } else { Work::Nothing };
            } else {
                sequence.work = Work::Decode;
            }
        }
        self.admit(budget, events);
        if self.running.is_empty() {
            return;
        }
        let mut batch = Batch::default();
        for sequence in &self.running {
            match sequence.work {
                Work::Nothing => {}
                Work::Prefill(tokens) => batch.prefill_tokens += u64::from(tokens),
                Work::Decode => {
                    batch.decoding += 1;
                    batch.kv_tokens += u64::from(sequence.context());
                }
            }
        }
        let swing = if self.params.swing > 0.0 {
            let turns = self.now.as_secs_f64() / self.params.swing_period.as_secs_f64();
            self.params.swing.mul_add((TAU * turns).sin(), 1.0)
        } else {
            1.0
        };
        let time = self.params.step_time(batch).mul_f64(swing * self.draw());
        self.step_ends = Some(self.now + time.max(Duration::from_nanos(1)));
    }

    /// Room for the next token of each sequence that decodes.
    fn make_room(&mut self) {
        let mut index = 0;
        loop {
            let is_alone = self.running.len() == 1;
            let Some(sequence) = self.running.get_mut(index) else { return };
            let needed = sequence.context().div_ceil(BLOCK_TOKENS);
            let has_room = sequence.is_prefilling() || needed <= sequence.held.blocks();
            // The last one is never sent away: nobody would be left to make room.
            if has_room || self.kv.grow(&mut sequence.held, is_alone) {
                index += 1;
            } else if let Some(mut youngest) = self.running.pop() {
                self.kv.release(&youngest.held);
                youngest.held = Held::default();
                youngest.target = youngest.context();
                youngest.computed = 0;
                self.waiting.push_front(youngest);
                self.preemptions += 1;
            }
        }
    }

    /// Lets the queue in, as far as there is room.
    fn admit(&mut self, mut budget: u32, events: &mut Vec<Event>) {
        while budget > 0 && self.running.len() < self.params.max_running_requests as usize {
            let Some(sequence) = self.waiting.front_mut() else { return };
            let blocks = if self.params.prefix_cache { &*sequence.job.blocks } else { &[] };
            // The last token is always computed: there would be nothing to make the next one from.
            let findable = (sequence.target - 1) / BLOCK_TOKENS;
            let needed = sequence.target.div_ceil(BLOCK_TOKENS);
            let Some((held, found)) = self.kv.admit(blocks, findable, needed, self.running.is_empty()) else { return };
            let Some(mut sequence) = self.waiting.pop_front() else { return };
            let cached_tokens = found * BLOCK_TOKENS;
            if self.params.prefix_cache {
                self.prefix_queries += u64::from(sequence.target);
                self.prefix_hits += u64::from(cached_tokens);
            }
            let tokens = budget.min(sequence.target - cached_tokens);
            budget -= tokens;
            (sequence.held, sequence.computed, sequence.work) = (held, cached_tokens, Work::Prefill(tokens));
            if sequence.admitted_at.is_none() {
                sequence.admitted_at = Some(self.now);
                events.push(Event::Admitted { id: sequence.job.id, at: self.now, cached_tokens });
            }
            self.running.push(sequence);
        }
    }
}

#[cfg(test)]
mod tests;
