//! The merged state of all loads, and the immutable picture of it that exporters read.
//!
//! The control side keeps one [`Ledger`]. Once a second it absorbs a delta from every worker and publishes a
//! [`Snapshot`] behind an `Arc`; once a minute it closes the minute of every load. A scrape reads the last snapshot and
//! nothing else, so that all its numbers belong to one instant: the law of conservation holds on every snapshot, which
//! it would not on counters that are read one after another while workers go on.
//!
//! A snapshot copies the totals (17 histograms of about 1 kB and 1 kB of counters: 20 to 60 kB a load) and shares the
//! window gauges, which change once a minute.

use std::sync::Arc;
use std::time::Duration;

use crate::measure::recorder::Delta;
use crate::measure::totals::Totals;
use crate::measure::window::Windows;
use crate::measure::window::gauge::Gauges;
use crate::measure::window::sub::SubWindow;

/// All that has been counted of all loads.
#[derive(Debug, Default)]
pub struct Ledger {
    loads: Vec<Account>,
}

#[derive(Debug, Default)]
struct Account {
    totals: Totals,
    windows: Windows,
}

/// All loads at one instant.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When it was taken, since the Unix epoch.
    pub taken_unix: Duration,
    /// One entry per load id.
    pub loads: Vec<LoadSnapshot>,
}

/// One load at one instant.
#[derive(Debug, Clone)]
pub struct LoadSnapshot {
    /// Counters and histograms since the start.
    pub totals: Totals,
    /// Its windows as of the last closed minute.
    pub windows: Arc<Gauges>,
}

impl Ledger {
    /// A ledger with an account for each of so many loads, so that all series exist from the start.
    #[must_use]
    pub fn new(loads: usize) -> Self {
        let mut ledger = Self::default();
        ledger.loads.resize_with(loads, Account::default);
        ledger
    }

    /// Adds what a worker counted.
    pub fn absorb(&mut self, delta: &Delta) {
        for (load, theirs) in delta.loads().iter().enumerate() {
            let account = self.account(load);
            account.totals.merge(&theirs.totals);
            account.windows.absorb(&theirs.tally);
        }
    }

    /// Ends the open minute of a load: see [`Windows::close`]. The minute is for the log and the drift test.
    pub fn close(&mut self, load: usize, minute_end: u64, covered: Duration, tainted: bool) -> Arc<SubWindow> {
        self.account(load).windows.close(minute_end, covered, tainted)
    }

    /// Puts back a minute that was saved before a restart, the oldest first.
    pub fn restore(&mut self, load: usize, minute: SubWindow) {
        self.account(load).windows.push(Arc::new(minute));
    }

    /// The windows of a load; `None` for an id that was never seen.
    #[must_use]
    pub fn windows(&self, load: usize) -> Option<&Windows> {
        self.loads.get(load).map(|account| &account.windows)
    }

    /// The picture of this instant.
    #[must_use]
    pub fn snapshot(&mut self, taken_unix: Duration) -> Arc<Snapshot> {
        let loads = self.loads.iter_mut();
        let loads =
            loads.map(|account| LoadSnapshot { totals: account.totals.clone(), windows: account.windows.gauges() });
        Arc::new(Snapshot { taken_unix, loads: loads.collect() })
    }

    fn account(&mut self, load: usize) -> &mut Account {
        if load >= self.loads.len() {
            self.loads.resize_with(load + 1, Account::default);
        }
        &mut self.loads[load]
    }
}

impl Snapshot {
    /// Whether `planned = shed + in_flight + sum(outcomes)` holds for every load.
    #[must_use]
    pub fn is_conserved(&self) -> bool {
        self.loads.iter().all(|load| load.totals.is_conserved())
    }
}

impl LoadSnapshot {
    /// Requests planned and neither shed nor ended; 0 should the law be broken, which [`Snapshot::is_conserved`] tells.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        u64::try_from(self.totals.in_flight()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
