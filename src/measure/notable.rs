//! The requests of a load that somebody will want to look up: the slowest, and the last that failed.
//!
//! Never in metrics: an id is no label. Their place is the API, from where an id leads into the gateway's log.
//!
//! Each list is the first [`KEPT`] of an order without ties, so merging in whatever order and grouping gives the
//! same list as sorting all requests would. A recorder keeps them for a second, the ledger for the running hour and
//! the one before, since a list that begins anew each hour would be empty just when somebody looks.
//!
//! Cost: a request is held against the last of a full list before anything is copied, so one that is not kept costs a
//! comparison and no memory; `benches/record.rs` has the figures. Entries are shared, not copied, when lists are merged or
//! snapshots taken.
//!
//! Memory: an entry is at most [`MAX_BYTES`]; a worker has twice [`KEPT`] of them for a load and second, the ledger four times, so
//! that a load takes 0.15 MB at most. An idle one takes none.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::outcome::Outcome;
use crate::domain::timeline::Timeline;

/// How many requests a list holds.
pub const KEPT: usize = 50;

/// What is kept of a text: an id is shorter, unless its load has a name of enormous length; the client cuts a detail to as much.
const MAX_TEXT: usize = 200;

/// The most that an entry takes: itself, its counts of references, its place in a list and two texts.
pub const MAX_BYTES: usize =
    size_of::<Notable>() + 2 * size_of::<usize>() + size_of::<(Lateness, Arc<Notable>)>() + 2 * MAX_TEXT;

/// One request, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notable {
    /// Position in the load's plan. The prompt is a function of it.
    pub index: u64,
    /// When it was to leave.
    pub planned_at: Instant,
    /// The `x-request-id` that it carried, for the gateway's log.
    pub request_id: Box<str>,
    /// Handed to a ready connection; `None` when it never got that far.
    pub sent_at: Option<Instant>,
    /// Response head received.
    pub headers_at: Option<Instant>,
    /// First token-bearing event.
    pub first_at: Option<Instant>,
    /// Last token-bearing event.
    pub last_at: Option<Instant>,
    /// The end, whatever the outcome.
    pub ended_at: Instant,
    /// E2EL; `None` of a failed request.
    pub e2el: Option<Duration>,
    /// n, by the server's own count; `None` when it gave none.
    pub output_tokens: Option<u32>,
    /// How it ended.
    pub outcome: Outcome,
    /// Status of the response head; `None` when none came.
    pub status: Option<u16>,
    /// What went wrong, without secrets: at most the first 200 bytes of the server's error, or the cause on our side.
    pub detail: Option<Box<str>>,
    /// A warm-up: only among the failed.
    pub warmup: bool,
}

/// Slowest first; of equally slow ones the earlier in the plan.
type Slowness = (Duration, Reverse<u64>);
/// Latest end first; of those that ended together the later in the plan.
type Lateness = (Instant, u64);

/// The notable requests of some span of time.
#[derive(Debug, Clone, Default)]
pub struct Notables {
    slowest: Top<Slowness>,
    failed: Top<Lateness>,
}

/// The notable requests of one load: of the running hour and of the one before.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    running: Notables,
    previous: Notables,
}

impl Notables {
    /// Takes in a request that has ended. `e2el`: its E2EL, which a request has that was answered in full.
    ///
    /// An answer that was too short is in neither list: it did not fail, and how long it took says nothing about the others. Nor
    /// is a warm-up among the slowest, for it waits for what is being warmed up.
    pub fn ended(&mut self, timeline: &Timeline, e2el: Option<Duration>, warmup: bool) {
        let index = timeline.arrival.index;
        if !timeline.outcome.is_answered() {
            self.failed.offer((timeline.ended_at, index), || Arc::new(Notable::of(timeline, None, warmup)));
        } else if let Some(slow) = e2el.filter(|_| !warmup) {
            self.slowest.offer((slow, Reverse(index)), || Arc::new(Notable::of(timeline, e2el, warmup)));
        }
    }

    /// Adds what is in the other one.
    pub fn merge(&mut self, other: &Self) {
        self.slowest.merge(&other.slowest);
        self.failed.merge(&other.failed);
    }

    /// Whether [`merge`](Self::merge) would change anything.
    fn would_take(&self, other: &Self) -> bool {
        self.slowest.would_take(&other.slowest) || self.failed.would_take(&other.failed)
    }

    fn is_empty(&self) -> bool {
        self.slowest.0.is_empty() && self.failed.0.is_empty()
    }

    /// The slowest answered requests, at most [`KEPT`], the slowest first.
    pub fn slowest(&self) -> impl Iterator<Item = &Notable> {
        self.slowest.iter()
    }

    /// The last failed requests, at most [`KEPT`], the last first.
    pub fn failed(&self) -> impl Iterator<Item = &Notable> {
        self.failed.iter()
    }
}

impl Requests {
    /// The slowest answered requests of both hours, at most [`KEPT`], the slowest first.
    #[must_use]
    pub fn slowest(&self) -> Vec<&Notable> {
        self.running.slowest.with(&self.previous.slowest)
    }

    /// The last failed requests of both hours, at most [`KEPT`], the last first.
    #[must_use]
    pub fn failed(&self) -> Vec<&Notable> {
        self.running.failed.with(&self.previous.failed)
    }

    /// Those of the running hour alone.
    #[must_use]
    pub fn running(&self) -> &Notables {
        &self.running
    }

    /// Those of the hour before alone.
    #[must_use]
    pub fn previous(&self) -> &Notables {
        &self.previous
    }

    /// Adds what a worker has kept. What snapshots share is copied only if that changes anything.
    pub(super) fn absorb(this: &mut Arc<Self>, theirs: &Notables) {
        if this.running.would_take(theirs) {
            Arc::make_mut(this).running.merge(theirs);
        }
    }

    /// The running hour becomes the one before.
    pub(super) fn turn_hour(this: &mut Arc<Self>) {
        if !(this.running.is_empty() && this.previous.is_empty()) {
            *this = Arc::new(Self { previous: this.running.clone(), running: Notables::default() });
        }
    }
}

impl Notable {
    fn of(timeline: &Timeline, e2el: Option<Duration>, warmup: bool) -> Self {
        let answer = &timeline.answer;
        Self {
            index: timeline.arrival.index,
            planned_at: timeline.arrival.planned_at,
            request_id: cut(&timeline.request_id).into(),
            sent_at: timeline.sent_at,
            headers_at: timeline.headers_at,
            first_at: answer.first_at(),
            last_at: answer.last_at(),
            ended_at: timeline.ended_at,
            e2el,
            output_tokens: answer.output_tokens(),
            outcome: timeline.outcome,
            status: timeline.status,
            detail: timeline.detail.as_deref().map(|detail| cut(detail).into()),
            warmup,
        }
    }
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or(text)
}

/// The [`KEPT`] entries with the highest keys, the highest first.
#[derive(Debug, Clone)]
struct Top<K>(Vec<(K, Arc<Notable>)>);

impl<K> Default for Top<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord + Copy> Top<K> {
    fn takes(&self, key: K) -> bool {
        self.0.len() < KEPT || self.0.last().is_some_and(|(last, _)| key > *last)
    }

    /// Puts an entry in its place, if it has one. Only then it is made.
    fn offer(&mut self, key: K, entry: impl FnOnce() -> Arc<Notable>) {
        if !self.takes(key) {
            return;
        }
        if self.0.capacity() == 0 {
            self.0.reserve_exact(KEPT);
        }
        self.0.truncate(KEPT - 1);
        let place = self.0.partition_point(|(higher, _)| *higher > key);
        self.0.insert(place, (key, entry()));
    }

    fn merge(&mut self, other: &Self) {
        for (key, entry) in &other.0 {
            self.offer(*key, || Arc::clone(entry));
        }
    }

    fn would_take(&self, other: &Self) -> bool {
        other.0.first().is_some_and(|(key, _)| self.takes(*key))
    }

    fn iter(&self) -> impl Iterator<Item = &Notable> {
        self.0.iter().map(|(_, entry)| &**entry)
    }

    /// The highest of both.
    fn with<'a>(&'a self, other: &'a Self) -> Vec<&'a Notable> {
        let mut both: Vec<_> = self.0.iter().chain(&other.0).collect();
        both.sort_by_key(|(key, _)| Reverse(*key));
        both.into_iter().take(KEPT).map(|(_, entry)| &**entry).collect()
    }
}

#[cfg(test)]
mod tests;
