//! May this arrival leave? At the cap it waits for a slot, but no longer than `late_cap`.
//!
//! What is shed says whose doing it was: `inflight_cap` when there was no slot within `late_cap` of its planned instant (the
//! gateway did not answer), `late` when there was one and we came too late. After a stall both kinds of news arrive at once;
//! so the gate goes by the instants at which slots became free, not by when it was told. Tell it of ends before arrivals.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

use super::Due;
use crate::domain::shed::ShedReason;

/// What becomes of an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is in flight from now on, until [`Gate::ended`].
    Send,
    /// The gate keeps it: it will be sent when a slot is free, or shed.
    Wait,
    /// Never sent.
    Shed(ShedReason),
}

/// Counts what is in flight and keeps what waits, in the order of the plan.
#[derive(Debug)]
pub struct Gate {
    max_in_flight: NonZeroU32,
    late_cap: Duration,
    in_flight: u32,
    /// When it last ceased to be full; `None` while it never was.
    free_since: Option<Instant>,
    /// Not longer than the arrivals of one `late_cap`.
    waiting: VecDeque<Due>,
}

impl Gate {
    /// An empty gate.
    #[must_use]
    pub fn new(max_in_flight: NonZeroU32, late_cap: Duration) -> Self {
        Self { max_in_flight, late_cap, in_flight: 0, free_since: None, waiting: VecDeque::new() }
    }

    /// Decides for an arrival whose time has come. Arrivals come in the order of their instants.
    pub fn arrive(&mut self, due: Due, now: Instant) -> Decision {
        let last = self.last_instant(&due);
        if self.is_full() || !self.waiting.is_empty() {
            if now >= last {
                return Decision::Shed(ShedReason::InflightCap);
            }
            self.waiting.push_back(due);
            return Decision::Wait;
        }
        let decision = decide(self.free_since, last, now);
        if decision == Decision::Send {
            self.in_flight += 1;
        }
        decision
    }

    /// A request ended at `ended_at`: its slot goes to those that wait. `out` gets each with its decision.
    pub fn ended(&mut self, ended_at: Instant, now: Instant, out: impl FnMut(Due, Decision)) {
        let was_full = self.is_full();
        self.in_flight = self.in_flight.saturating_sub(1);
        self.freed(was_full, ended_at, now, out);
    }

    /// Changes the limits. What is in flight beyond a lower cap ends by itself.
    pub fn resize(
        &mut self,
        max_in_flight: NonZeroU32,
        late_cap: Duration,
        now: Instant,
        out: impl FnMut(Due, Decision),
    ) {
        let was_full = self.is_full();
        (self.max_in_flight, self.late_cap) = (max_in_flight, late_cap);
        self.freed(was_full, now, now, out);
    }

    /// Sheds those that have waited for `late_cap` without a slot.
    pub fn expire(&mut self, now: Instant, mut out: impl FnMut(Due, Decision)) {
        while let Some(due) = self.waiting.pop_front_if(|due| now >= due.arrival.planned_at + self.late_cap) {
            out(due, Decision::Shed(ShedReason::InflightCap));
        }
    }

    /// Sheds all that wait.
    pub fn shed_waiting(&mut self, reason: ShedReason, mut out: impl FnMut(Due, Decision)) {
        for due in self.waiting.drain(..) {
            out(due, Decision::Shed(reason));
        }
    }

    /// When [`expire`](Self::expire) has something to do.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        self.waiting.front().map(|due| self.last_instant(due))
    }

    /// Requests sent and not ended.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The index of the first arrival that waits.
    #[must_use]
    pub fn first_waiting(&self) -> Option<u64> {
        self.waiting.front().map(|due| due.arrival.index)
    }

    /// Arrivals that wait for a slot.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether as many are in flight as may be.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.in_flight >= self.max_in_flight.get()
    }

    /// The last instant at which it may leave.
    fn last_instant(&self, due: &Due) -> Instant {
        due.arrival.planned_at + self.late_cap
    }

    fn freed(&mut self, was_full: bool, free_at: Instant, now: Instant, mut out: impl FnMut(Due, Decision)) {
        while !self.is_full()
            && let Some(due) = self.waiting.pop_front()
        {
            let decision = decide(Some(free_at), self.last_instant(&due), now);
            if decision == Decision::Send {
                self.in_flight += 1;
            }
            out(due, decision);
        }
        if was_full && !self.is_full() {
            self.free_since = Some(free_at);
        }
    }
}

/// For an arrival that may leave until `last`, when there is a slot now that has been free since `free_since`.
fn decide(free_since: Option<Instant>, last: Instant, now: Instant) -> Decision {
    if now <= last {
        Decision::Send
    } else if free_since.is_some_and(|since| since > last) {
        Decision::Shed(ShedReason::InflightCap)
    } else {
        Decision::Shed(ShedReason::Late)
    }
}

#[cfg(test)]
mod tests;
