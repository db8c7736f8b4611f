//! A snapshot is one instant, and stays it.

use super::*;
use crate::clock;
use crate::domain::arrival::Arrival;
use crate::domain::outcome::Outcome;
use crate::domain::shed::ShedReason;
use crate::domain::slo::Slo;
use crate::domain::timeline::{Answer, Timeline};
use crate::measure::recorder::Recorder;
use crate::measure::window::{Length, Metric};

#[test]
fn the_law_holds_on_every_snapshot_and_a_snapshot_stays_as_it_was() {
    let mut ledger = Ledger::new(2);
    let mut workers = [Recorder::new(2), Recorder::new(2)];
    let mut snapshots = Vec::new();
    for second in 0..5 {
        for worker in &mut workers {
            worker.planned(1, 1);
            worker.planned(1, 1);
            worker.shed(1, ShedReason::InflightCap, 1);
            ledger.absorb(&worker.take());
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
    worker.planned(0, 1);
    worker.shed(0, ShedReason::InflightCap, 1);
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
fn notable_requests_come_with_a_snapshot_and_outlive_the_turn_of_the_hour() {
    let now = clock::now();
    let failed = Timeline {
        arrival: Arrival { index: 3, planned_at: now },
        request_id: "canary-3-00ff".into(),
        outcome: Outcome::Connect,
        opened: None,
        setup: Duration::ZERO,
        sent_at: None,
        headers_at: None,
        status: None,
        answer: Answer::default(),
        ended_at: now,
        resent: false,
        compressed: false,
        retry_after: None,
        detail: Some("connection refused".into()),
    };
    let (mut ledger, mut worker) = (Ledger::new(2), Recorder::new(2));
    worker.planned(1, 1);
    worker.ended(1, &failed, false, &Slo::default());
    let before = ledger.snapshot(Duration::ZERO);
    ledger.absorb(&worker.take());
    ledger.turn_hour();
    let after = ledger.snapshot(Duration::from_secs(1));
    ledger.turn_hour();
    let later = ledger.snapshot(Duration::from_secs(3600));
    let failed = [before, after, later].map(|snapshot| {
        [0, 1].map(|load| snapshot.loads[load].requests.failed().iter().map(|failed| failed.index).collect::<Vec<_>>())
    });
    assert_eq!(failed, [[vec![], vec![]], [vec![], vec![3]], [vec![], vec![]]]);
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
