//! What became of the arrivals of a load, as far as the schedule knows.

use crate::domain::shed::ShedReason;

/// Counts since the start: `planned = sent + shed + waiting`, where those that wait are held by the gate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Arrivals whose time has come.
    pub planned: u64,
    /// Handed over to be sent.
    pub sent: u64,
    shed: [u64; ShedReason::ALL.len()],
}

impl Tally {
    /// Those shed for this reason.
    #[must_use]
    pub fn shed(&self, reason: ShedReason) -> u64 {
        self.shed[reason as usize]
    }

    /// All that were shed.
    #[must_use]
    pub fn shed_total(&self) -> u64 {
        self.shed.iter().sum()
    }

    pub(super) fn add_shed(&mut self, reason: ShedReason, count: u64) {
        self.shed[reason as usize] += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_count_of_its_own() {
        let mut tally = Tally::default();
        for (count, reason) in (1..).zip(ShedReason::ALL) {
            tally.add_shed(reason, count);
        }
        let counts = ShedReason::ALL.map(|reason| tally.shed(reason));
        assert_eq!((counts, tally.shed_total()), ([1, 2, 3, 4, 5, 6, 7], 28));
    }
}
