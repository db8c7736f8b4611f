//! A closed loop: so many workers, each of which sends its next request when the last one has ended.
//!
//! # Decisions
//! * **The start is spread.** All workers at once would make a first wave that no user makes, and its queueing would be our
//!   own artefact (P99 of TTFT at 256 streams: 4.2 to 10 ms at once, 1.2 ms spread). Workers open their connections first, while
//!   the phase is [`Phase::PreConnect`]; [`ClosedLoop::begin`] then starts one every [`RAMP_STEP`].
//! * **A fast failure rests its worker.** A gateway that refuses at once would otherwise be hammered as fast as it can refuse.
//!   The rest is drawn between 0 and a bound that doubles (full jitter), so workers that failed together do not return
//!   together. A slow failure has taken its time already, and an end of our own making says nothing.
//! * **A rest is a shed request.** The slot was free and nothing was sent: one arrival, planned and shed as `backoff`, so that
//!   a load that was not kept shows in the counters. It uses up no index.
//! * **A gateway that asks for patience has it from all workers**, not only from the one that it told. Each of them rests until then,
//!   and they return one after the other in the order of their numbers.
//! * **Rests are seeded** by (seed, worker, number of the failure): they do not depend on the order in which workers end.
//!
//! * **After a standstill of ours nobody is caught up with.** Workers whose time came and went meanwhile return spread like at the
//!   start, and the request that each of them did not send is planned and shed as `late`.
//!
//! A pause plans nothing: what runs ends by itself, and the return is spread like the start.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use super::plan::Shard;
use super::tally::Tally;
use super::{Due, Event, Issue, Warmup};
use crate::domain::arrival::Arrival;
use crate::domain::outcome::Outcome;
use crate::domain::shed::ShedReason;

/// Between the starts of two workers.
pub const RAMP_STEP: Duration = Duration::from_millis(10);

/// The longest ramp: with more than 500 workers the step is shorter.
pub const LONGEST_RAMP: Duration = Duration::from_secs(5);

/// A failure that came faster than this makes its worker rest. Also the longest time in which a worker that never rests can
/// be refused by a gateway: once a second is no hammering.
pub const FAST: Duration = Duration::from_secs(1);

/// The bound of the first rest; it doubles with each further fast failure of the worker, until it succeeds.
pub const FIRST_REST: Duration = Duration::from_millis(100);

/// The bound of the longest rest: an outage of the gateway is noticed to be over within this time.
pub const LONGEST_REST: Duration = Duration::from_secs(10);

/// A worker that should have left longer ago than this was kept by a standstill of ours. An open loop's `late_cap`, unless told.
pub const STANDSTILL: Duration = Duration::from_millis(100);

/// What a closed loop is made of.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Workers over all shards.
    pub concurrency: u32,
    /// Which part of them is ours.
    pub shard: Shard,
    /// Seed of the rests.
    pub seed: u64,
    /// Indices begin here, over all shards.
    pub first_index: u64,
    /// The first so many requests of this shard are warm-up.
    pub warmup: u64,
}

/// Where the loop stands with its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is sent yet: the time to open connections.
    PreConnect,
    /// Workers are being started.
    Ramp,
    /// All workers have been started.
    Steady,
}

/// What a worker does after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is free again at once.
    AtOnce,
    /// It rests until then; the arrival that it does not send counts as shed for back-off.
    Rests {
        /// The end of the rest.
        until: Instant,
    },
    /// There are fewer workers now and it is none of them, or the loop was stopped.
    Leaves,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not started, or gone.
    Absent,
    /// Free from `at` on; before that it rests or waits for its place in the ramp.
    Free { at: Instant },
    /// Sends.
    Running,
}

#[derive(Debug, Clone, Copy)]
struct Worker {
    state: State,
    /// Fast failures since the last success.
    fast_failures: u32,
    /// Rests so far.
    rests: u64,
}

/// The workers and who of them may send. Invariant: `planned = sent + shed`.
#[derive(Debug)]
pub struct ClosedLoop {
    settings: Settings,
    /// By number. Beyond `size` are those that end and leave.
    workers: Vec<Worker>,
    size: u32,
    /// The free workers, in the order in which they may send.
    free: BTreeSet<(Instant, u32)>,
    resting: BTreeSet<(Instant, u32)>,
    /// When the ramp ends; `None` before it begins.
    ramp_end: Option<Instant>,
    paused: bool,
    stopped: bool,
    /// Until then the gateway wants to be left alone.
    patience: Option<Instant>,
    sent: u64,
    warmup: Warmup,
    tally: Tally,
    rested: Duration,
    rested_at: Option<Instant>,
}

impl ClosedLoop {
    /// A loop that waits for [`begin`](Self::begin).
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            workers: Vec::new(),
            size: settings.shard.part_of(settings.concurrency),
            free: BTreeSet::new(),
            resting: BTreeSet::new(),
            ramp_end: None,
            paused: false,
            stopped: false,
            patience: None,
            sent: 0,
            warmup: Warmup { left: settings.warmup },
            tally: Tally::default(),
            rested: Duration::ZERO,
            rested_at: None,
        }
    }

    /// Starts the workers, one after the other. A second call does nothing.
    pub fn begin(&mut self, now: Instant) {
        if self.ramp_end.is_none() {
            self.rested_at = Some(now);
            self.start(now);
        }
    }

    /// Takes in what happened and says what is to be done.
    pub fn apply(&mut self, now: Instant, event: Event, mut out: impl FnMut(Issue)) {
        match event {
            Event::Due => {}
            Event::Ended(end) => {
                if let Some(wait) = end.retry_after {
                    self.late(now, &mut out);
                    let count = self.back_off(now, end.at + wait);
                    if count > 0 {
                        out(Issue::Shed { reason: ShedReason::Backoff, count });
                    }
                }
                if let Next::Rests { .. } = self.finished(end.slot, end.at, end.outcome, end.duration) {
                    out(Issue::Shed { reason: ShedReason::Backoff, count: 1 });
                }
            }
            Event::Pause => self.pause(now),
            Event::Resume => self.resume(now),
            Event::WarmUp { count } => self.warmup.left = count,
            Event::Concurrency { concurrency } => self.resize(now, concurrency),
            // What it has instead of both is its workers.
            Event::Replan(_) | Event::Cap { .. } => {}
            Event::Stop => {
                self.count_rests(now);
                self.stopped = true;
            }
        }
        self.late(now, &mut out);
        while let Some(due) = self.permit(now) {
            out(Issue::Send(due));
        }
    }

    /// Whether it was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The index of the next request.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.settings.first_index + self.settings.shard.position(self.sent)
    }

    /// Where the start stands.
    #[must_use]
    pub fn phase(&self, now: Instant) -> Phase {
        match self.ramp_end {
            None => Phase::PreConnect,
            Some(end) if now < end => Phase::Ramp,
            Some(_) => Phase::Steady,
        }
    }

    /// Workers of this shard.
    #[must_use]
    pub fn concurrency(&self) -> u32 {
        self.size
    }

    /// When [`permit`](Self::permit) has one, if no request ends before.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        self.free.first().filter(|_| !self.paused && !self.stopped).map(|(at, _)| *at)
    }

    /// The next request, if a worker is free by `now`. To be called until there is none. Planned for the instant at which the
    /// worker became free.
    pub fn permit(&mut self, now: Instant) -> Option<Due> {
        self.free.first().filter(|(at, _)| !self.paused && !self.stopped && *at <= now)?;
        let (planned_at, number) = self.free.pop_first()?;
        self.worker_mut(number)?.state = State::Running;
        let index = self.next_index();
        self.sent += 1;
        self.tally.planned += 1;
        self.tally.sent += 1;
        Some(self.warmup.mark(Arrival { index, planned_at }, number))
    }

    /// A worker's request ended, `duration` after it was sent. Says what the worker does next.
    ///
    /// An end that no request belongs to changes nothing.
    pub fn finished(&mut self, worker: u32, now: Instant, outcome: Outcome, duration: Duration) -> Next {
        self.count_rests(now);
        let (seed, size, stopped) = (self.settings.seed, self.size, self.stopped);
        let Some(record) = self.worker_mut(worker).filter(|record| record.state == State::Running) else {
            return Next::Leaves;
        };
        if worker >= size || stopped {
            record.state = State::Absent;
            return Next::Leaves;
        }
        if outcome.is_answered() {
            record.fast_failures = 0;
        }
        let at = if is_failure(outcome) && duration < FAST {
            let rest = rest(seed, worker, record.rests, record.fast_failures);
            record.fast_failures = record.fast_failures.saturating_add(1);
            record.rests += 1;
            now + rest
        } else {
            now
        };
        let patience = self.patience.filter(|until| *until > now).map(|until| self.place(until, worker));
        let at = patience.map_or(at, |place| place.max(at));
        self.worker_mut(worker).into_iter().for_each(|record| record.state = State::Free { at });
        self.free.insert((at, worker));
        if at == now {
            return Next::AtOnce;
        }
        self.resting.insert((at, worker));
        self.tally.planned += 1;
        self.tally.add_shed(ShedReason::Backoff, 1);
        Next::Rests { until: at }
    }

    /// The gateway wants to be left alone until then: workers that are free, or would be before, rest, and return one after the
    /// other. Says how many of them did not rest already. In a pause they just return later.
    pub fn back_off(&mut self, now: Instant, until: Instant) -> u64 {
        if until <= now || self.stopped || self.patience.is_some_and(|patience| patience >= until) {
            return 0;
        }
        self.count_rests(now);
        self.patience = Some(until);
        let mut newly = 0;
        let sooner = self.free.iter().copied().filter(|(at, number)| *at < self.place(until, *number));
        for (at, number) in sooner.collect::<Vec<_>>() {
            let place = self.place(until, number);
            self.free.remove(&(at, number));
            self.free.insert((place, number));
            if let Some(worker) = self.worker_mut(number) {
                worker.state = State::Free { at: place };
            }
            let rested = self.resting.remove(&(at, number));
            if rested || !self.paused {
                self.resting.insert((place, number));
                newly += u64::from(!rested);
            }
        }
        self.tally.planned += newly;
        self.tally.add_shed(ShedReason::Backoff, newly);
        newly
    }

    /// Another concurrency, over all shards. New workers are started one after the other; of too many, those that run end first.
    pub fn resize(&mut self, now: Instant, concurrency: u32) {
        self.count_rests(now);
        self.settings.concurrency = concurrency;
        self.size = self.settings.shard.part_of(concurrency);
        let size = self.size;
        self.free.retain(|(_, number)| *number < size);
        self.resting.retain(|(_, number)| *number < size);
        for (number, worker) in (0..).zip(&mut self.workers) {
            if number >= size && matches!(worker.state, State::Free { .. }) {
                worker.state = State::Absent;
            }
        }
        if self.ramp_end.is_some() {
            self.start(now);
        }
    }

    /// Nothing more is sent until [`resume`](Self::resume).
    pub fn pause(&mut self, now: Instant) {
        self.count_rests(now);
        self.paused = true;
    }

    /// Sends again. Workers that have become free meanwhile return one after the other.
    pub fn resume(&mut self, now: Instant) {
        self.count_rests(now);
        if !self.paused {
            return;
        }
        self.paused = false;
        self.return_spread(now);
    }

    /// What became of the arrivals so far; a rest is one that was shed.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Time at rest since the start: the sum over time of the share of workers that rested, so that it grows by one second a
    /// second when all of them do. Coverage is what is left. Pauses are not in it.
    pub fn rested(&mut self, now: Instant) -> Duration {
        self.count_rests(now);
        self.rested
    }

    /// When a worker returns of all that rest until then.
    fn place(&self, until: Instant, worker: u32) -> Instant {
        until + ramp_step(self.size) * worker
    }

    fn late(&mut self, now: Instant, out: &mut impl FnMut(Issue)) {
        let count = self.spread_late(now);
        if count > 0 {
            out(Issue::Shed { reason: ShedReason::Late, count });
        }
    }

    /// Lets the workers that a standstill kept return one after the other, and says for how many that was too late.
    fn spread_late(&mut self, now: Instant) -> u64 {
        let is_late = |at: Instant| now.saturating_duration_since(at) > STANDSTILL;
        if self.paused || self.stopped || !self.free.first().is_some_and(|(at, _)| is_late(*at)) {
            return 0;
        }
        self.count_rests(now);
        let late = self.free.iter().take_while(|(at, _)| is_late(*at)).count() as u64;
        self.tally.planned += late;
        self.tally.add_shed(ShedReason::Late, late);
        self.return_spread(now);
        late
    }

    /// Those that are free by `now` are so one after the other.
    fn return_spread(&mut self, now: Instant) {
        let waiting = self.free.iter().take_while(|(at, _)| *at <= now).map(|(_, number)| *number).collect();
        self.free.retain(|(at, _)| *at > now);
        self.ramp(waiting, now);
    }

    /// Starts every worker that is not there.
    fn start(&mut self, now: Instant) {
        let absent = Worker { state: State::Absent, fast_failures: 0, rests: 0 };
        if self.workers.len() < self.size as usize {
            self.workers.resize(self.size as usize, absent);
        }
        let missing = (0..self.size).zip(&self.workers).filter(|(_, worker)| worker.state == State::Absent);
        let missing = missing.map(|(number, _)| number).collect();
        self.ramp(missing, now);
    }

    /// Lets these workers be free one after the other.
    fn ramp(&mut self, numbers: Vec<u32>, now: Instant) {
        let step = ramp_step(u32::try_from(numbers.len()).unwrap_or(u32::MAX));
        let mut at = self.patience.map_or(now, |until| until.max(now));
        for number in numbers {
            if let Some(worker) = self.worker_mut(number) {
                worker.state = State::Free { at };
                self.free.insert((at, number));
                self.ramp_end = self.ramp_end.max(Some(at));
                at += step;
            }
        }
        // Also when there is nobody to start: the loop has begun.
        self.ramp_end.get_or_insert(now);
    }

    fn worker_mut(&mut self, number: u32) -> Option<&mut Worker> {
        self.workers.get_mut(number as usize)
    }

    /// Adds the rests up to `now`, piece by piece between the instants at which one of them ends.
    fn count_rests(&mut self, now: Instant) {
        while let Some(&(until, _)) = self.resting.first()
            && until <= now
        {
            self.add_rest(until);
            self.resting.pop_first();
        }
        self.add_rest(now);
    }

    fn add_rest(&mut self, until: Instant) {
        let Some(since) = self.rested_at.filter(|since| *since < until) else { return };
        let resting = u32::try_from(self.resting.len()).unwrap_or(u32::MAX);
        if !self.paused && self.size > 0 {
            self.rested += (until - since) * resting / self.size;
        }
        self.rested_at = Some(until);
    }
}

/// Between two of so many workers that start one after the other.
fn ramp_step(count: u32) -> Duration {
    LONGEST_RAMP.checked_div(count).map_or(RAMP_STEP, |longest| longest.min(RAMP_STEP))
}

/// Whether the outcome speaks against trying again at once: a failure, but not that we ended it ourselves.
fn is_failure(outcome: Outcome) -> bool {
    !outcome.is_answered() && outcome != Outcome::Canceled
}

/// Between nothing and the bound that the failures before this one have doubled.
fn rest(seed: u64, worker: u32, number: u64, fast_failures: u32) -> Duration {
    let bound = FIRST_REST.saturating_mul(2_u32.saturating_pow(fast_failures)).min(LONGEST_REST);
    let mut key = *b"................rest........____";
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&number.to_le_bytes());
    key[20..24].copy_from_slice(&worker.to_le_bytes());
    ChaCha8Rng::from_seed(key).random_range(Duration::ZERO..=bound)
}

#[cfg(test)]
mod tests;
