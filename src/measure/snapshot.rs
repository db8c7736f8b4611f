//! The merged state of all loads, and the immutable picture of it that exporters read.
//!
//! The control side keeps one [`Ledger`]. Once a second it absorbs a delta from every worker and publishes a
//! [`Snapshot`] behind an `Arc`; once a minute it closes the minute of every load. A scrape reads the last snapshot and
//! nothing else, so that all its numbers belong to one instant: the law of conservation holds on every snapshot, which
//! it would not on counters that are read one after another while workers go on.
//!
//! A snapshot copies the totals (17 histograms of about 1 kB and 1 kB of counters: 20 to 60 kB a load) and shares the
//! window gauges, which change once a minute, and the notable requests, which are copied only in a second that changed them.

use std::sync::Arc;
use std::time::Duration;

use crate::measure::notable::Requests;
use crate::measure::recorder::Delta;
use crate::measure::totals::Totals;
use crate::measure::window::Windows;
use crate::measure::window::gauge::Gauges;
use crate::measure::window::sub::SubWindow;

/// All that has been counted of all loads.
#[derive(Debug, Default)]
pub struct Ledger {
    /// By load id. An id is given once: that of a load which was removed stays empty.
    loads: Vec<Option<Account>>,
}

#[derive(Debug, Default)]
struct Account {
    totals: Totals,
    windows: Windows,
    requests: Arc<Requests>,
}

/// All loads at one instant.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When it was taken, since the Unix epoch.
    pub taken_unix: Duration,
    /// One entry per load, in the order of their ids.
    pub loads: Vec<LoadSnapshot>,
}

/// One load at one instant.
#[derive(Debug, Clone)]
pub struct LoadSnapshot {
    /// Which.
    pub id: usize,
    /// Counters and histograms since the start.
    pub totals: Totals,
    /// Its windows as of the last closed minute.
    pub windows: Arc<Gauges>,
    /// Its slowest and its last failed requests.
    pub requests: Arc<Requests>,
}

impl Ledger {
    /// A ledger with an account for each of so many loads, so that all series exist from the start.
    #[must_use]
    pub fn new(loads: usize) -> Self {
        let accounts = std::iter::repeat_with(|| Some(Account::default()));
        Self { loads: accounts.take(loads).collect() }
    }

    /// A new account, and its id.
    pub fn open(&mut self) -> usize {
        self.loads.push(Some(Account::default()));
        self.loads.len() - 1
    }

    /// Forgets a load that was removed. What workers may still count of it is dropped.
    pub fn remove(&mut self, load: usize) {
        if let Some(account) = self.loads.get_mut(load) {
            *account = None;
        }
    }

    /// Adds what a worker counted.
    pub fn absorb(&mut self, delta: &Delta) {
        for (account, theirs) in self.loads.iter_mut().zip(delta.loads()) {
            if let Some(account) = account {
                account.totals.merge(&theirs.totals);
                account.windows.absorb(&theirs.tally);
                Requests::absorb(&mut account.requests, &theirs.notables);
            }
        }
    }

    /// Ends the open minute of a load: see [`Windows::close`]. The minute is for the log and the drift test. `None` for
    /// a load that is not there.
    pub fn close(&mut self, load: usize, minute_end: u64, covered: Duration, tainted: bool) -> Option<Arc<SubWindow>> {
        Some(self.account(load)?.windows.close(minute_end, covered, tainted))
    }

    /// Begins a new hour of the notable requests of every load; those of the hour before the last are forgotten. What ended just
    /// before and is absorbed just after counts to the new hour.
    pub fn turn_hour(&mut self) {
        self.loads.iter_mut().flatten().for_each(|account| Requests::turn_hour(&mut account.requests));
    }

    /// Puts back a minute that was saved before a restart, the oldest first.
    pub fn restore(&mut self, load: usize, minute: SubWindow) {
        if let Some(account) = self.account(load) {
            account.windows.push(Arc::new(minute));
        }
    }

    /// Empties the windows of a load, when what it sends is no longer the same. Its counters go on.
    pub fn reset_windows(&mut self, load: usize) {
        if let Some(account) = self.account(load) {
            account.windows = Windows::default();
        }
    }

    /// The windows of a load; `None` for one that is not there.
    #[must_use]
    pub fn windows(&self, load: usize) -> Option<&Windows> {
        self.loads.get(load)?.as_ref().map(|account| &account.windows)
    }

    /// What has been counted of a load; `None` for one that is not there.
    #[must_use]
    pub fn totals(&self, load: usize) -> Option<&Totals> {
        self.loads.get(load)?.as_ref().map(|account| &account.totals)
    }

    /// The notable requests of a load; `None` for one that is not there.
    #[must_use]
    pub fn requests(&self, load: usize) -> Option<&Requests> {
        self.loads.get(load)?.as_ref().map(|account| &*account.requests)
    }

    /// The picture of this instant.
    #[must_use]
    pub fn snapshot(&mut self, taken_unix: Duration) -> Snapshot {
        let there = self.loads.iter_mut().enumerate().filter_map(|(id, account)| Some((id, account.as_mut()?)));
        let loads = there.map(|(id, account)| LoadSnapshot {
            id,
            totals: account.totals.clone(),
            windows: account.windows.gauges(),
            requests: Arc::clone(&account.requests),
        });
        Snapshot { taken_unix, loads: loads.collect() }
    }

    fn account(&mut self, load: usize) -> Option<&mut Account> {
        self.loads.get_mut(load)?.as_mut()
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
