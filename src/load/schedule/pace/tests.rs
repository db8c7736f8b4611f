use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{self, Instant};

use super::*;
use crate::domain::outcome::Outcome;
use crate::domain::shed::ShedReason;
use crate::load::schedule::End;
use crate::load::schedule::dispatch::Dispatch;
use crate::load::schedule::open::OpenLoop;
use crate::load::schedule::plan::{Plan, Shard, Spacing};

const LATE_CAP: Duration = Duration::from_millis(100);

fn constant(rate: f64, max_in_flight: u32, start: Instant) -> RefCell<Schedule> {
    let plan = Plan::new(1, rate, Spacing::Constant, Shard::WHOLE).unwrap();
    let open = Dispatch::new(OpenLoop::new(&plan, start, 0), NonZeroU32::new(max_in_flight).unwrap(), LATE_CAP);
    RefCell::new(Schedule::Open(Box::new(open)))
}

/// Paces until `then` has come to its end, which may speak through the channel; gives what was issued and when.
async fn paced<F: Future<Output = ()>>(
    dispatch: &RefCell<Schedule>,
    then: impl FnOnce(mpsc::Sender<Event>) -> F,
) -> Vec<(Duration, Issue)> {
    let (events, mut heard) = mpsc::channel(64);
    let (start, issued, planned) = (clock::now(), RefCell::new(Vec::new()), Cell::new(0));
    let mut pacer = Pacer::simulated();
    let pacing = pace(dispatch, &mut pacer, &mut heard, |issue| match issue {
        Issue::Planned { count } => planned.set(planned.get() + count),
        issue @ (Issue::Send(_) | Issue::Shed { .. }) => issued.borrow_mut().push((clock::now() - start, issue)),
    });
    // The sender is dropped with `then`, which ends the pacing.
    tokio::join!(pacing, then(events));
    assert_eq!(planned.get(), dispatch.borrow().tally().planned);
    issued.into_inner()
}

fn end_at(at: Instant) -> Event {
    Event::Ended(End { slot: 0, at, outcome: Outcome::Ok, duration: Duration::ZERO, retry_after: None })
}

fn sent(issued: &[(Duration, Issue)]) -> usize {
    issued.iter().filter(|(_, issue)| matches!(issue, Issue::Send(_))).count()
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_kept_while_replies_hang() {
    let dispatch = constant(100.0, 10_000, clock::now());
    let issued = paced(&dispatch, |events| async move {
        time::sleep(Duration::from_millis(59_995)).await;
        drop(events);
    })
    .await;
    // A minute, nobody answers: every arrival leaves at its instant.
    for (step, (at, issue)) in (0..).zip(&issued) {
        assert!(matches!(issue, Issue::Send(_)));
        assert_eq!(*at, Duration::from_millis(10 * step));
    }
    assert_eq!((issued.len(), dispatch.borrow().tally().sent), (6000, 6000));
}

#[tokio::test(start_paused = true)]
async fn a_full_channel_is_counted_and_does_not_slow_the_plan() {
    let start = clock::now();
    let (out, arrivals) = mpsc::channel(8);
    let (events, mut heard) = mpsc::channel(1);
    let (dispatch, mut pacer) = (constant(10.0, 64, start), Pacer::simulated());
    let (seen, dropped) = (Cell::new(0), Cell::new(0));
    let pacing = pace(&dispatch, &mut pacer, &mut heard, |issue| {
        if matches!(issue, Issue::Planned { .. }) {
            return;
        }
        seen.set(seen.get() + 1);
        if out.try_send(issue).is_err() {
            dropped.set(dropped.get() + 1);
        }
    });
    tokio::select! {
        () = pacing => unreachable!("nobody ends it"),
        () = time::sleep(Duration::from_millis(901)) => {}
    }
    drop(events);
    assert_eq!((seen.get(), arrivals.len(), dropped.get()), (10, 8, 2));
}

#[tokio::test(start_paused = true)]
async fn at_the_cap_arrivals_are_shed_after_the_late_cap() {
    let dispatch = constant(100.0, 5, clock::now());
    let issued = paced(&dispatch, |events| async move {
        time::sleep(Duration::from_millis(995)).await;
        // One reply: the oldest that waits gets its slot.
        events.send(end_at(clock::now())).await.unwrap();
        time::sleep(Duration::from_millis(1)).await;
    })
    .await;
    let tally = *dispatch.borrow().tally();
    assert_eq!((tally.planned, tally.sent), (100, 6));
    // Those planned from 50 to 890 ms found no slot; from 900 on one was sent, and nine waited for the end.
    assert_eq!(tally.shed(ShedReason::InflightCap), 85);
    assert_eq!((tally.shed(ShedReason::Shutdown), tally.shed(ShedReason::Late)), (9, 0));
    let shed_at = issued.iter().find(|(_, issue)| matches!(issue, Issue::Shed { .. })).unwrap().0;
    assert_eq!((sent(&issued), shed_at), (6, Duration::from_millis(150)));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_stood_still_sheds_once_and_sends_no_burst() {
    let dispatch = constant(1000.0, 100_000, clock::now());
    let issued = paced(&dispatch, |events| async move {
        time::sleep(Duration::from_millis(500)).await;
        time::advance(Duration::from_secs(600)).await;
        time::sleep(Duration::from_millis(500)).await;
        drop(events);
    })
    .await;
    let shed: Vec<_> = issued.iter().filter(|(_, issue)| matches!(issue, Issue::Shed { .. })).collect();
    assert_eq!(shed.len(), 1, "{shed:?}");
    let &(resumed, Issue::Shed { reason: ShedReason::Late, count }) = shed[0] else { unreachable!("{shed:?}") };
    // Of ten minutes, all but the last 100 ms.
    assert!((599_890..=599_910).contains(&count), "{count}");
    // From then on a millisecond after the other, as before.
    let after: Vec<_> = issued.iter().filter(|(at, _)| *at >= resumed).skip(1).map(|(at, _)| *at - resumed).collect();
    assert!(after.iter().zip(0..).all(|(at, step)| *at == Duration::from_millis(step)), "{after:?}");
    let tally = *dispatch.borrow().tally();
    assert_eq!(tally.planned, tally.sent + tally.shed_total());
    assert!((990..=1010).contains(&tally.sent), "{}", tally.sent);
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_heard_at_once() {
    let dispatch = constant(10.0, 64, clock::now());
    let issued = paced(&dispatch, |events| async move {
        for event in [Event::Pause, Event::Resume] {
            time::sleep(Duration::from_millis(4950)).await;
            events.send(event).await.unwrap();
        }
        time::sleep(Duration::from_millis(1000)).await;
    })
    .await;
    // Arrivals at 0 to 4.9 s, then those of 5 to 9.9 s counted, then ten more.
    assert_eq!((sent(&issued), dispatch.borrow().tally().shed(ShedReason::Paused)), (60, 50));
}

#[tokio::test(start_paused = true)]
async fn a_plan_beyond_the_machine_starves_nobody() {
    let dispatch = constant(1e6, 1000, clock::now());
    let issued = paced(&dispatch, |events| async move {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        drop(events);
    })
    .await;
    assert!(sent(&issued) > 0);
}
