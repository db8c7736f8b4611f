//! What workers record with: the recorder of `measure`, which `load` does not know.

use crate::domain::shed::ShedReason;
use crate::domain::slo::Slo;
use crate::domain::timeline::{ConnectPhases, Timeline};
use crate::load::worker::Record;
use crate::measure::recorder::{Delta, Recorder};

impl Record for Recorder {
    type Delta = Delta;

    fn planned(&mut self, account: usize, count: u64) {
        Self::planned(self, account, count);
    }

    fn shed(&mut self, account: usize, reason: ShedReason, count: u64) {
        Self::shed(self, account, reason, count);
    }

    fn connected(&mut self, account: usize, phases: &ConnectPhases) {
        Self::connected(self, account, phases);
    }

    fn ended(&mut self, account: usize, timeline: &Timeline, warmup: bool, slo: &Slo) {
        Self::ended(self, account, timeline, warmup, slo);
    }

    fn take(&mut self) -> Delta {
        Self::take(self)
    }
}
