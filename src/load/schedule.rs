//! When requests leave: the arrivals of an open loop and the permits of a closed one.
//!
//! ```text
//! open:    Plan ─► OpenLoop ─► Gate ─► Send | Shed        (Dispatch holds the two together, `pace` runs it)
//! closed:  ClosedLoop ─► Permit ─► … ─► finished ─► the next permit
//! ```
//!
//! All of it is pure but for [`pace`]: the present comes in as an argument, so that a day is tested in a millisecond.
//!
//! # Decisions
//! * An arrival has an absolute instant, `t_0` plus the gaps before it. Relative sleeps add up their lateness and hide it.
//! * The instants of a plan are a pure function of (seed, rate, spacing, shard): two runs ask for the same load. What moves
//!   them is an outage of our own, longer than `late_cap`, after which the rest of the plan goes on from now ([`open`]).
//! * What cannot leave in time is shed with a reason and counted; nothing is caught up in a burst ([`gate`]).
//! * Budgets are not known here, and nothing connects or sends.

pub mod closed;
pub mod dispatch;
pub mod gate;
pub mod open;
pub mod pace;
pub mod plan;
pub mod tally;

use crate::domain::arrival::Arrival;

/// A request that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Which, and when it should leave.
    pub arrival: Arrival,
    /// Whether it only warms up: it is planned, sent and has an outcome, but enters no histogram.
    pub warmup: bool,
}

/// Requests that are still to be marked as warm-up.
///
/// Requests that are shed before they are handed out use none up: a pause at the start does not eat the warm-up.
#[derive(Debug, Clone, Copy, Default)]
struct Warmup {
    left: u64,
}

impl Warmup {
    fn mark(&mut self, arrival: Arrival) -> Due {
        let warmup = self.left > 0;
        self.left = self.left.saturating_sub(1);
        Due { arrival, warmup }
    }
}
