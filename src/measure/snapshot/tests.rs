//! A snapshot is one instant, and stays it.

use super::*;
use crate::domain::shed::ShedReason;
use crate::measure::recorder::Recorder;
use crate::measure::window::{Length, Metric};

#[test]
fn the_law_holds_on_every_snapshot_and_a_snapshot_stays_as_it_was() {
    let mut ledger = Ledger::new(2);
    let mut workers = [Recorder::new(2), Recorder::new(2)];
    let mut snapshots = Vec::new();
    for second in 0..5 {
        for worker in &mut workers {
            worker.planned(1);
            worker.planned(1);
            worker.shed(1, ShedReason::InflightCap);
            let delta = worker.take();
            ledger.absorb(&delta);
            worker.recycle(delta);
        }
        snapshots.push(ledger.snapshot(Duration::from_secs(second)));
    }
    for (second, snapshot) in (1..).zip(&snapshots) {
        assert!(snapshot.is_conserved());
        let load = &snapshot.loads[1];
        assert_eq!((load.totals.planned(), load.in_flight()), (4 * second, 2 * second));
        assert_eq!(snapshot.loads[0].totals.planned(), 0, "a load that is idle has its series all the same");
    }
}

#[test]
fn windows_are_shared_until_a_minute_closes() {
    let mut ledger = Ledger::new(1);
    let mut worker = Recorder::new(1);
    worker.planned(0);
    worker.shed(0, ShedReason::InflightCap);
    ledger.absorb(&worker.take());
    let [first, second] = [0, 1].map(|second| ledger.snapshot(Duration::from_secs(second)));
    assert!(Arc::ptr_eq(&first.loads[0].windows, &second.loads[0].windows));
    let minute = ledger.close(0, 120, Duration::from_secs(60), false).unwrap();
    assert_eq!(minute.metric(Metric::Ttft).censored_high(), 1);
    let third = ledger.snapshot(Duration::from_secs(2));
    assert!(!Arc::ptr_eq(&first.loads[0].windows, &third.loads[0].windows));
    assert_eq!(third.loads[0].windows.window(Length::Hour).covered, Duration::from_secs(60));
}

#[test]
fn a_restored_minute_is_in_the_windows() {
    let mut ledger = Ledger::new(1);
    let minute = ledger.close(0, 120, Duration::from_secs(30), true).unwrap();
    let mut restarted = Ledger::new(1);
    restarted.restore(0, SubWindow::decode(&minute.encode()).unwrap());
    let snapshot = restarted.snapshot(Duration::ZERO);
    assert_eq!(snapshot.loads[0].windows.window(Length::Day).tainted_minutes, 1);
    assert_eq!(restarted.windows(0).map(|windows| windows.minutes().len()), Some(1));
    assert!(restarted.windows(1).is_none());
}
