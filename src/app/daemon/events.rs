//! What happened, for people: a ring for the API, and the log.
//!
//! A gateway that fails a thousand times a second is one event. Of each load and outcome the first failure is told at once, then
//! a sum once a minute, and the end once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::outcome::Outcome;
use crate::export::view::Event;

/// Events that are kept.
const KEPT: usize = 1000;

/// How often the same failure is told.
const REPEAT: Duration = Duration::from_secs(60);

/// The events that are kept. The list that exporters read is made anew only when there is another one.
#[derive(Debug, Default)]
pub(super) struct Events {
    kept: VecDeque<Event>,
    shown: Option<Arc<[Event]>>,
}

impl Events {
    /// Notes something.
    pub(super) fn note(&mut self, at_unix: Duration, kind: &'static str, load: Option<&str>, text: String) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Event { at_unix, kind, load: load.map(str::to_owned), text });
        self.shown = None;
    }

    /// All that are kept, the oldest first.
    pub(super) fn shown(&mut self) -> Arc<[Event]> {
        let kept = &self.kept;
        Arc::clone(self.shown.get_or_insert_with(|| kept.iter().cloned().collect()))
    }
}

/// The failures of one load, of which only some are told.
#[derive(Debug, Default)]
pub(super) struct Failures {
    open: BTreeMap<Outcome, Streak>,
}

#[derive(Debug)]
struct Streak {
    told_at: Instant,
    since_told: u64,
    /// When the last one was seen.
    last_at: Instant,
}

/// What is to be told of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// The first after a time without.
    Began,
    /// It goes on: so many since it was last told.
    Continues(u64),
    /// None for [`REPEAT`], after so many that were not told.
    Ended(u64),
}

impl Failures {
    /// How requests have failed within the last minute.
    pub(super) fn open(&self) -> Vec<Outcome> {
        self.open.keys().copied().collect()
    }

    /// Takes in how many requests ended so in the last second, and says what is to be told.
    pub(super) fn step(&mut self, now: Instant, outcome: Outcome, count: u64) -> Option<Told> {
        let Some(streak) = self.open.get_mut(&outcome) else {
            if count == 0 {
                return None;
            }
            self.open.insert(outcome, Streak { told_at: now, since_told: count - 1, last_at: now });
            return Some(Told::Began);
        };
        streak.since_told += count;
        if count > 0 {
            streak.last_at = now;
        }
        if now - streak.last_at >= REPEAT {
            let untold = streak.since_told;
            self.open.remove(&outcome);
            return Some(Told::Ended(untold));
        }
        if now - streak.told_at >= REPEAT && streak.since_told > 0 {
            streak.told_at = now;
            return Some(Told::Continues(std::mem::take(&mut streak.since_told)));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn a_million_failures_are_a_line_a_minute() {
        let (start, mut failures) = (clock::now(), Failures::default());
        let mut told = Vec::new();
        for second in 0..600 {
            let count = if second < 300 { 10_000 } else { 0 };
            told.extend(failures.step(start + Duration::from_secs(second), Outcome::Connect, count));
        }
        let Some((Told::Began, told)) = told.split_first().map(|(first, rest)| (*first, rest)) else { unreachable!() };
        assert_eq!(told.len(), 6, "{told:?}");
        let sum: u64 =
            told.iter().map(|told| if let Told::Continues(n) | Told::Ended(n) = told { *n } else { 0 }).sum();
        assert_eq!(sum, 3_000_000 - 1);
        assert_eq!(told[5], Told::Ended(0));
    }

    #[test]
    fn outcomes_are_told_apart_and_begin_again() {
        let (start, mut failures) = (clock::now(), Failures::default());
        let mut step = |second, outcome, count| failures.step(start + Duration::from_secs(second), outcome, count);
        assert_eq!(step(0, Outcome::Http429, 1), Some(Told::Began));
        assert_eq!(step(1, Outcome::Reset, 1), Some(Told::Began));
        assert_eq!(step(2, Outcome::Http429, 1), None);
        assert_eq!(step(62, Outcome::Http429, 0), Some(Told::Ended(1)));
        assert_eq!(step(63, Outcome::Http429, 1), Some(Told::Began));
    }

    #[test]
    fn the_oldest_event_is_forgotten() {
        let mut events = Events::default();
        (0..=KEPT).for_each(|n| events.note(Duration::ZERO, "n", None, n.to_string()));
        let shown = events.shown();
        assert_eq!((shown.len(), shown[0].text.as_str()), (KEPT, "1"));
        assert!(Arc::ptr_eq(&shown, &events.shown()));
    }
}
