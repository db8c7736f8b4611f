//! An open loop: a plan set into time.
//!
//! # After an outage
//! When the process stood still for longer than `late_cap`, the arrivals that are later than that are lost: counted, not sent.
//! Those within `late_cap` are still to be sent, but all at once they would be a burst that no plan had. So the rest of the
//! plan moves: its next arrival is now, and the gaps follow. It moves by `late_cap` at most, and only then.
//! A stall within `late_cap` moves nothing: its arrivals leave late, and their lag says so.

use std::time::Duration;

use tokio::time::Instant;

use super::plan::{Arrivals, Plan, Shard};
use super::{Due, Warmup};
use crate::domain::arrival::Arrival;

/// The arrivals of a plan with instants and indices. `planned = handed out + skipped`.
///
/// Indices are dealt to the shards in turn, whichever arrivals of the plan a shard has: so they are consecutive for each
/// shard, and prompts can be made ahead without knowing the plan.
#[derive(Debug)]
pub struct OpenLoop {
    arrivals: Arrivals,
    shard: Shard,
    /// The plan's `t_0`.
    anchor: Instant,
    first_index: u64,
    warmup: Warmup,
    planned: u64,
}

impl OpenLoop {
    /// The plan from `start` on. Its arrivals have the indices from `first_index` on, over all shards: a load that goes on
    /// after a restart, or with another rate, continues where its last index was, since no prompt is sent twice.
    #[must_use]
    pub fn new(plan: &Plan, start: Instant, first_index: u64) -> Self {
        let (arrivals, shard) = (plan.arrivals(), plan.shard());
        Self { arrivals, shard, anchor: start, first_index, warmup: Warmup::default(), planned: 0 }
    }

    /// The plan's start is now, not the instant it was made with.
    pub fn begin(&mut self, now: Instant) {
        self.anchor = now;
    }

    /// Another plan of the same shard from `now` on. Indices go on.
    pub fn replan(&mut self, plan: &Plan, now: Instant) {
        (self.arrivals, self.anchor) = (plan.arrivals(), now);
    }

    /// The next `count` arrivals that are handed out are marked as warm-up.
    pub fn warm_up(&mut self, count: u64) {
        self.warmup.left = count;
    }

    /// The instant of the next arrival.
    #[must_use]
    pub fn next_at(&self) -> Instant {
        self.anchor + self.arrivals.peek().offset
    }

    /// Takes the next arrival, whose instant is [`next_at`](Self::next_at).
    pub fn hand_out(&mut self) -> Due {
        let (index, planned_at) = (self.next_index(), self.next_at());
        self.arrivals.next();
        self.planned += 1;
        self.warmup.mark(Arrival { index, planned_at }, 0)
    }

    /// The index of the next arrival.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.first_index + self.shard.position(self.planned)
    }

    /// Leaves out the arrivals that are later than `late_cap` and says how many: they are shed as late.
    ///
    /// If there are any, the rest of the plan goes on from `now`. One step for a constant spacing. Otherwise each gap is drawn,
    /// since the plan after them depends on it: for ten minutes at 1000/s, 20 ms of Poisson, 35 to 110 ms of gamma (4, 0.25).
    pub fn catch_up(&mut self, now: Instant, late_cap: Duration) -> u64 {
        let Some(limit) = now.checked_sub(late_cap).and_then(|limit| limit.checked_duration_since(self.anchor)) else {
            return 0;
        };
        let skipped = self.skip_before(limit);
        if skipped > 0 {
            self.anchor += now.saturating_duration_since(self.next_at());
        }
        skipped
    }

    /// Leaves out the arrivals up to and including `now` and says how many. The plan does not move.
    pub fn skip_through(&mut self, now: Instant) -> u64 {
        match now.checked_duration_since(self.anchor) {
            Some(offset) => self.skip_before(offset + Duration::from_nanos(1)),
            None => 0,
        }
    }

    /// Arrivals so far, handed out or skipped.
    #[must_use]
    pub fn planned(&self) -> u64 {
        self.planned
    }

    fn skip_before(&mut self, offset: Duration) -> u64 {
        let skipped = self.arrivals.skip_before(offset);
        self.planned += skipped;
        skipped
    }
}

#[cfg(test)]
mod tests;
