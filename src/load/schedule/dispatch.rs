//! The open loop as one state: its arrivals, its gate, whether it is paused, and whether the gateway asked for patience.
//!
//! `apply` gets what happened and when, changes the state, and says what is to be done; it does no I/O.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

use super::gate::{Decision, Gate};
use super::open::OpenLoop;
use super::tally::Tally;
use super::{Due, End, Event, Issue};
use crate::domain::shed::ShedReason;

/// While nothing is sent, arrivals are counted this often, not each at its instant: a pause may last for days.
const COUNTING_STEP: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Paused { count_at: Instant },
    Stopped,
}

/// A time in which the gateway wants to be left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Backoff {
    /// The first instant at which something may leave again.
    until: Instant,
    count_at: Instant,
    /// So far it is in `rested`.
    rested_to: Instant,
}

/// Invariant, after every event: `planned = sent + shed + waiting`.
#[derive(Debug)]
pub struct Dispatch {
    open: OpenLoop,
    gate: Gate,
    late_cap: Duration,
    state: State,
    /// Beside the state: an operator may pause a load that backs off, and the other way round.
    backoff: Option<Backoff>,
    rested: Duration,
    tally: Tally,
}

impl Dispatch {
    /// `late_cap`: how late an arrival may leave; 100 ms unless told.
    #[must_use]
    pub fn new(open: OpenLoop, max_in_flight: NonZeroU32, late_cap: Duration) -> Self {
        let gate = Gate::new(max_in_flight, late_cap);
        let (state, tally) = (State::Running, Tally::default());
        Self { open, gate, late_cap, state, backoff: None, rested: Duration::ZERO, tally }
    }

    /// The plan's start is now, not the instant it was made with.
    pub fn begin(&mut self, now: Instant) {
        self.open.begin(now);
    }

    /// When something is to be done, if nothing happens before; `None` when stopped.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        let next = self.open.next_at();
        match self.state {
            State::Running => Some(match (self.backoff, self.gate.wake_at()) {
                (Some(Backoff { until, count_at, .. }), _) => next.max(count_at).min(until),
                (None, expiry) => expiry.map_or(next, |expiry| expiry.min(next)),
            }),
            State::Paused { count_at } => Some(next.max(count_at)),
            State::Stopped => None,
        }
    }

    /// Takes in what happened. Ends go first when several things have happened by `now`.
    pub fn apply(&mut self, now: Instant, event: Event, mut out: impl FnMut(Issue)) {
        if let Event::Ended(End { at, retry_after: Some(wait), .. }) = event {
            self.back_off(now, at + wait, &mut out);
        }
        let Self { gate, tally, .. } = self;
        match event {
            Event::Ended(end) => gate.ended(end.at, now, |due, decision| issue(tally, due, decision, &mut out)),
            Event::Due => self.advance(now, &mut out),
            Event::WarmUp { count } => self.open.warm_up(count),
            Event::Cap { max_in_flight, late_cap } => {
                self.late_cap = late_cap;
                gate.resize(max_in_flight, late_cap, now, |due, decision| issue(tally, due, decision, &mut out));
            }
            Event::Pause => {
                self.hold(now, ShedReason::Paused, State::Paused { count_at: now + COUNTING_STEP }, &mut out)
            }
            Event::Stop => self.hold(now, ShedReason::Shutdown, State::Stopped, &mut out),
            Event::Replan(plan) => {
                self.advance(now, &mut out);
                self.open.replan(&plan, now);
            }
            // It has no workers.
            Event::Concurrency { .. } => {}
            Event::Resume => {
                self.advance(now, &mut out);
                if let State::Paused { .. } = self.state {
                    self.state = State::Running;
                    // Neither one nor the other: a pause is no rest.
                    if let Some(backoff) = &mut self.backoff {
                        backoff.rested_to = now;
                    }
                }
            }
        }
    }

    /// Whether it was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.state == State::Stopped
    }

    /// No request with an index below this one will be sent any more.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.gate.first_waiting().unwrap_or_else(|| self.open.next_index())
    }

    /// What became of the arrivals so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The gate: what is in flight and what waits.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Time since the start in which it was left to the gateway that nothing was sent. Pauses are not in it.
    #[must_use]
    pub fn rested(&self, now: Instant) -> Duration {
        let running = self.backoff.filter(|_| self.state == State::Running);
        self.rested + running.map_or(Duration::ZERO, |backoff| backoff.rest(now))
    }

    /// The gateway wants to be left alone until then. What waits is shed; what is in flight ends by itself.
    fn back_off(&mut self, now: Instant, until: Instant, out: &mut impl FnMut(Issue)) {
        if until <= now || self.state == State::Stopped {
            return;
        }
        if self.state == State::Running && !self.backs_off(now, out) {
            // A standstill of ours before the news came is no patience.
            let Self { gate, tally, .. } = self;
            gate.expire(now, |due, decision| issue(tally, due, decision, out));
            gate.shed_waiting(ShedReason::Backoff, |due, decision| issue(tally, due, decision, out));
            let late = self.open.catch_up(now, self.late_cap);
            self.skipped(ShedReason::Late, late, out);
        }
        let new = Backoff { until, count_at: now + COUNTING_STEP, rested_to: now };
        let backoff = self.backoff.get_or_insert(new);
        backoff.until = backoff.until.max(until);
    }

    /// Whether it still holds; sheds what falls into it.
    fn backs_off(&mut self, now: Instant, out: &mut impl FnMut(Issue)) -> bool {
        let Some(backoff) = &mut self.backoff else { return false };
        self.rested += backoff.rest(now);
        (backoff.count_at, backoff.rested_to) = (now + COUNTING_STEP, now);
        let until = backoff.until;
        // The arrival at its end may leave.
        let last = until.checked_sub(Duration::from_nanos(1)).unwrap_or(until);
        let skipped = self.open.skip_through(now.min(last));
        self.skipped(ShedReason::Backoff, skipped, out);
        if now >= until {
            self.backoff = None;
        }
        self.backoff.is_some()
    }

    /// Arrivals up to now are dealt with as they would have been; those that wait are shed.
    fn hold(&mut self, now: Instant, reason: ShedReason, state: State, out: &mut impl FnMut(Issue)) {
        self.advance(now, out);
        if self.state == State::Stopped {
            return;
        }
        let Self { gate, tally, .. } = self;
        gate.shed_waiting(reason, |due, decision| issue(tally, due, decision, out));
        self.state = state;
    }

    fn advance(&mut self, now: Instant, out: &mut impl FnMut(Issue)) {
        match self.state {
            State::Stopped => {}
            State::Paused { .. } => {
                let skipped = self.open.skip_through(now);
                self.skipped(ShedReason::Paused, skipped, out);
                self.state = State::Paused { count_at: now + COUNTING_STEP };
            }
            State::Running => {
                if self.backs_off(now, out) {
                    return;
                }
                let Self { gate, tally, .. } = self;
                gate.expire(now, |due, decision| issue(tally, due, decision, out));
                let late = self.open.catch_up(now, self.late_cap);
                self.skipped(ShedReason::Late, late, out);
                while self.open.next_at() <= now {
                    let due = self.open.hand_out();
                    self.tally.planned += 1;
                    let decision = self.gate.arrive(due, now);
                    issue(&mut self.tally, due, decision, out);
                }
            }
        }
    }

    fn skipped(&mut self, reason: ShedReason, count: u64, out: &mut impl FnMut(Issue)) {
        self.tally.planned += count;
        self.shed(reason, count, out);
    }

    fn shed(&mut self, reason: ShedReason, count: u64, out: &mut impl FnMut(Issue)) {
        if count > 0 {
            self.tally.add_shed(reason, count);
            out(Issue::Shed { reason, count });
        }
    }
}

impl Backoff {
    /// What is not counted yet of the rest.
    fn rest(&self, now: Instant) -> Duration {
        now.min(self.until).saturating_duration_since(self.rested_to)
    }
}

fn issue(tally: &mut Tally, due: Due, decision: Decision, out: &mut impl FnMut(Issue)) {
    match decision {
        Decision::Send => {
            tally.sent += 1;
            out(Issue::Send(due));
        }
        Decision::Shed(reason) => {
            tally.add_shed(reason, 1);
            out(Issue::Shed { reason, count: 1 });
        }
        Decision::Wait => {}
    }
}

#[cfg(test)]
mod tests;
