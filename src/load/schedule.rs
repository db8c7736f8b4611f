//! When requests leave: the arrivals of an open loop and the permits of a closed one.
//!
//! ```text
//! open:    Plan ─► OpenLoop ─► Gate ─► Send | Shed        (Dispatch holds the two together)
//! closed:  ClosedLoop ─► Send ─► … ─► Ended ─► Send | rest
//! ```
//!
//! [`Schedule`] is either of them; [`pace`] runs it against the clock. All else is pure: the present comes in as an argument,
//! so that a day is tested in a millisecond.
//!
//! # Decisions
//! * An arrival has an absolute instant, `t_0` plus the gaps before it. Relative sleeps add up their lateness and hide it.
//! * The instants of a plan are a pure function of (seed, rate, spacing, shard): two runs ask for the same load. What moves
//!   them is an outage of our own, longer than `late_cap`, after which the rest of the plan goes on from now ([`open`]).
//! * What cannot leave in time is shed with a reason and counted; nothing is caught up in a burst ([`gate`]).
//! * A gateway that asks for patience (`Retry-After`) is left alone that long: what falls into it is shed as `backoff`.
//! * Budgets are not known here, and nothing connects or sends.

pub mod closed;
pub mod dispatch;
pub mod gate;
pub mod open;
pub mod pace;
pub mod plan;
pub mod tally;

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

use self::closed::ClosedLoop;
use self::dispatch::Dispatch;
use self::plan::Plan;
use self::tally::Tally;
use crate::domain::arrival::Arrival;
use crate::domain::outcome::Outcome;
use crate::domain::shed::ShedReason;

/// A request that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Which, and when it should leave.
    pub arrival: Arrival,
    /// Whether it only warms up: it is planned, sent and has an outcome, but enters no histogram.
    pub warmup: bool,
    /// Closed loop: the worker that sends it, which is to be named when it has ended. Open loop: 0.
    pub slot: u32,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// The instant of [`Schedule::wake_at`] has come.
    Due,
    /// A request that was sent has ended.
    Ended(End),
    /// Nothing more is sent. Arrivals of an open loop are shed as paused; a closed one plans none.
    Pause,
    /// From now on they are sent again.
    Resume,
    /// The next so many arrivals are warm-up.
    WarmUp {
        /// How many.
        count: u64,
    },
    /// Another plan from now on. Of an open loop only.
    Replan(Plan),
    /// Other limits. Of an open loop only.
    Cap {
        /// So many may be under way.
        max_in_flight: NonZeroU32,
        /// So late may they leave.
        late_cap: Duration,
    },
    /// Another number of workers, over all shards. Of a closed loop only.
    Concurrency {
        /// The new one.
        concurrency: u32,
    },
    /// The end: what waits is shed, and nothing is planned any more.
    Stop,
}

/// The end of a request, as far as it concerns the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// [`Due::slot`].
    pub slot: u32,
    /// When its slot became free.
    pub at: Instant,
    /// How it ended.
    pub outcome: Outcome,
    /// Since it was sent, or since it was to be sent.
    pub duration: Duration,
    /// The gateway asks to be left alone for so long, from `at` on.
    pub retry_after: Option<Duration>,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issue {
    /// Count these as planned. Comes last, so that what is shed at once is known by then.
    Planned {
        /// How many, at least 1.
        count: u64,
    },
    /// Send this one now, and say when it has ended.
    Send(Due),
    /// Count these as shed.
    Shed {
        /// Why.
        reason: ShedReason,
        /// How many, at least 1.
        count: u64,
    },
}

/// An open or a closed loop.
#[derive(Debug)]
pub enum Schedule {
    /// Sends on time, whatever the gateway does.
    Open(Box<Dispatch>),
    /// Sends when a worker is free.
    Closed(Box<ClosedLoop>),
}

impl Schedule {
    /// Sets it into time: the first arrival is now. To be called once, before it is run.
    pub fn begin(&mut self, now: Instant) {
        match self {
            Self::Open(open) => open.begin(now),
            Self::Closed(closed) => closed.begin(now),
        }
    }

    /// When something is to be done, if nothing happens before; `None` when only an event can bring that about.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        match self {
            Self::Open(open) => open.wake_at(),
            Self::Closed(closed) => closed.wake_at(),
        }
    }

    /// Takes in what happened and says what is to be done; does no I/O. Ends go first when several things have happened.
    pub fn apply(&mut self, now: Instant, event: Event, mut out: impl FnMut(Issue)) {
        let before = self.tally().planned;
        match self {
            Self::Open(open) => open.apply(now, event, &mut out),
            Self::Closed(closed) => closed.apply(now, event, &mut out),
        }
        let count = self.tally().planned - before;
        if count > 0 {
            out(Issue::Planned { count });
        }
    }

    /// Whether it was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        match self {
            Self::Open(open) => open.is_stopped(),
            Self::Closed(closed) => closed.is_stopped(),
        }
    }

    /// What became of the arrivals so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        match self {
            Self::Open(open) => open.tally(),
            Self::Closed(closed) => closed.tally(),
        }
    }

    /// No request with an index below this one will be sent any more.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        match self {
            Self::Open(open) => open.next_index(),
            Self::Closed(closed) => closed.next_index(),
        }
    }

    /// Whether as many requests are under way as may be. A closed loop always is, which says nothing.
    #[must_use]
    pub fn is_at_cap(&self) -> bool {
        match self {
            Self::Open(open) => open.gate().is_full(),
            Self::Closed(_) => false,
        }
    }

    /// Time at rest since the start, as a share of the workers: see [`ClosedLoop::rested`]. An open loop rests as a whole, when the
    /// gateway asked it to.
    pub fn rested(&mut self, now: Instant) -> Duration {
        match self {
            Self::Open(open) => open.rested(now),
            Self::Closed(closed) => closed.rested(now),
        }
    }
}

/// Requests that are still to be marked as warm-up.
///
/// Requests that are shed before they are handed out use none up: a pause at the start does not eat the warm-up.
#[derive(Debug, Clone, Copy, Default)]
struct Warmup {
    left: u64,
}

impl Warmup {
    fn mark(&mut self, arrival: Arrival, slot: u32) -> Due {
        let warmup = self.left > 0;
        self.left = self.left.saturating_sub(1);
        Due { arrival, warmup, slot }
    }
}

#[cfg(test)]
mod tests;
