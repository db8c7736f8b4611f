#![expect(clippy::print_stdout, reason = "a property that fails shows its seed")]

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::clock;
use crate::domain::outcome::Outcome;
use crate::load::schedule::End;
use crate::load::schedule::plan::{Plan, Shard, Spacing};

const LATE_CAP: Duration = Duration::from_millis(100);

fn dispatch(rate: f64, spacing: Spacing, max_in_flight: u32, start: Instant) -> Dispatch {
    let plan = Plan::new(21, rate, spacing, Shard::WHOLE).unwrap();
    Dispatch::new(OpenLoop::new(&plan, start, 0), NonZeroU32::new(max_in_flight).unwrap(), LATE_CAP)
}

fn end_at(at: Instant) -> Event {
    Event::Ended(End { slot: 0, at, outcome: Outcome::Ok, duration: Duration::ZERO, retry_after: None })
}

/// The gateway asks for patience.
fn refused_at(at: Instant, wait: Duration) -> Event {
    let (outcome, duration) = (Outcome::Http429, Duration::ZERO);
    Event::Ended(End { slot: 0, at, outcome, duration, retry_after: Some(wait) })
}

/// Sent, and shed by reason.
fn counted(dispatch: &mut Dispatch, now: Instant, event: Event) -> (u64, Vec<(ShedReason, u64)>) {
    let (mut sent, mut shed) = (0, Vec::new());
    dispatch.apply(now, event, |issue| match issue {
        Issue::Send(_) => sent += 1,
        Issue::Shed { reason, count } => shed.push((reason, count)),
        Issue::Planned { .. } => unreachable!("the tally has it"),
    });
    (sent, shed)
}

#[test]
fn a_pause_counts_what_it_holds_back() {
    let start = clock::now();
    let at = |millis| start + Duration::from_millis(millis);
    let mut dispatch = dispatch(10.0, Spacing::Constant, 2, start);
    assert_eq!(counted(&mut dispatch, at(0), Event::Due), (1, vec![]));
    assert_eq!(counted(&mut dispatch, at(100), Event::Due), (1, vec![]));
    assert_eq!(counted(&mut dispatch, at(200), Event::Due), (0, vec![]));
    // The one that waits is paused with the rest.
    assert_eq!(counted(&mut dispatch, at(250), Event::Pause), (0, vec![(ShedReason::Paused, 1)]));
    assert_eq!(dispatch.wake_at(), Some(at(1250)));
    assert_eq!(counted(&mut dispatch, at(1250), Event::Due), (0, vec![(ShedReason::Paused, 10)]));
    // Late or not: a stall within a pause is a pause.
    assert_eq!(counted(&mut dispatch, at(601_250), Event::Resume), (0, vec![(ShedReason::Paused, 6000)]));
    assert_eq!(dispatch.wake_at(), Some(at(601_300)));
    assert_eq!(counted(&mut dispatch, at(601_260), end_at(at(601_260))), (0, vec![]));
    assert_eq!(counted(&mut dispatch, at(601_300), Event::Due), (1, vec![]));
}

#[test]
fn patience_counts_what_it_holds_back_and_its_end_is_exact() {
    let start = clock::now();
    let at = |millis| start + Duration::from_millis(millis);
    let mut dispatch = dispatch(10.0, Spacing::Constant, 2, start);
    for millis in [0, 100, 200] {
        counted(&mut dispatch, at(millis), Event::Due);
    }
    // The one that waits had a slot now, and may not have it.
    let wait = Duration::from_millis(5050);
    assert_eq!(counted(&mut dispatch, at(250), refused_at(at(250), wait)), (0, vec![(ShedReason::Backoff, 1)]));
    assert_eq!(dispatch.wake_at(), Some(at(1250)));
    assert_eq!(counted(&mut dispatch, at(1250), Event::Due), (0, vec![(ShedReason::Backoff, 10)]));
    // A shorter one that is heard of later shortens nothing.
    let shorter = refused_at(at(1260), Duration::from_secs(1));
    assert_eq!(counted(&mut dispatch, at(1260), shorter), (0, vec![]));
    assert_eq!(dispatch.rested(at(1260)), Duration::from_millis(1010));
    // The arrival at its end leaves; the last one before it does not.
    assert_eq!(counted(&mut dispatch, at(5299), Event::Due), (0, vec![(ShedReason::Backoff, 40)]));
    assert_eq!(dispatch.wake_at(), Some(at(5300)));
    assert_eq!(counted(&mut dispatch, at(5300), Event::Due), (1, vec![]));
    assert_eq!((dispatch.rested(at(9000)), dispatch.tally().sent), (wait, 3));
}

#[test]
fn a_standstill_before_the_refusal_is_heard_of_is_ours() {
    let start = clock::now();
    let at = |millis| start + Duration::from_millis(millis);
    let mut dispatch = dispatch(10.0, Spacing::Constant, 2, start);
    assert_eq!(counted(&mut dispatch, at(0), Event::Due), (1, vec![]));
    let refused = refused_at(at(10), Duration::from_secs(9));
    assert_eq!(counted(&mut dispatch, at(1050), refused), (0, vec![(ShedReason::Late, 9)]));
}

#[test]
fn a_pause_and_patience_hold_beside_each_other() {
    let start = clock::now();
    let at = |millis| start + Duration::from_millis(millis);
    let mut dispatch = dispatch(10.0, Spacing::Constant, 2, start);
    assert_eq!(counted(&mut dispatch, at(0), Event::Due), (1, vec![]));
    assert_eq!(counted(&mut dispatch, at(50), refused_at(at(50), Duration::from_secs(10))), (0, vec![]));
    assert_eq!(counted(&mut dispatch, at(1050), Event::Pause), (0, vec![(ShedReason::Backoff, 10)]));
    assert_eq!(counted(&mut dispatch, at(3050), Event::Resume), (0, vec![(ShedReason::Paused, 20)]));
    assert_eq!(counted(&mut dispatch, at(4050), Event::Due), (0, vec![(ShedReason::Backoff, 10)]));
    assert_eq!(dispatch.rested(at(4050)), Duration::from_secs(2));
    counted(&mut dispatch, at(5050), Event::Pause);
    // It runs out while paused.
    assert_eq!(counted(&mut dispatch, at(20_050), Event::Resume), (0, vec![(ShedReason::Paused, 150)]));
    assert_eq!(counted(&mut dispatch, at(20_100), Event::Due), (1, vec![]));
}

#[test]
fn the_end_sheds_what_waits_and_plans_no_more() {
    let start = clock::now();
    let mut dispatch = dispatch(100.0, Spacing::Constant, 1, start);
    let now = start + Duration::from_millis(35);
    assert_eq!(counted(&mut dispatch, now, Event::Stop), (1, vec![(ShedReason::Shutdown, 1); 3]));
    assert_eq!(dispatch.wake_at(), None);
    for event in [Event::Due, Event::Resume, Event::Pause, end_at(now)] {
        assert_eq!(counted(&mut dispatch, now + Duration::from_secs(9), event), (0, vec![]));
    }
    assert_eq!((dispatch.wake_at(), dispatch.tally().planned), (None, 4));
}

#[test]
fn nothing_is_lost_whatever_happens() {
    for seed in 0..100 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let spacing = [Spacing::Constant, Spacing::Poisson, Spacing::Gamma { burstiness: 0.2 }][rng.random_range(0..3)];
        println!("seed {seed}, {spacing:?}");
        let start = clock::now();
        let (mut dispatch, mut now) = (dispatch(300.0, spacing, 20, start), start);
        let (mut sent, mut ended, mut shed) = (0, 0, 0);
        for _ in 0..2000 {
            let longest = [500, 5000, 200_000][rng.random_range(0..3)];
            now += Duration::from_micros(rng.random_range(0..longest));
            let event = match rng.random_range(0..100) {
                0 => Event::Pause,
                1..4 => Event::Resume,
                4 => Event::WarmUp { count: rng.random_range(0..9) },
                5 => {
                    Event::Cap { max_in_flight: NonZeroU32::new(rng.random_range(1..30)).unwrap(), late_cap: LATE_CAP }
                }
                6..50 if ended < sent => {
                    ended += 1;
                    let at = now - Duration::from_micros(rng.random_range(0..200));
                    let wait = Duration::from_millis(rng.random_range(0..2000));
                    if rng.random_bool(0.02) { refused_at(at, wait) } else { end_at(at) }
                }
                _ => Event::Due,
            };
            dispatch.apply(now, event, |issue| match issue {
                Issue::Send(due) => {
                    sent += 1;
                    assert!(now.saturating_duration_since(due.arrival.planned_at) <= LATE_CAP);
                }
                Issue::Shed { count, .. } => shed += count,
                Issue::Planned { .. } => unreachable!("the tally has it"),
            });
            let (tally, gate) = (*dispatch.tally(), dispatch.gate());
            assert_eq!((tally.sent, tally.shed_total()), (sent, shed));
            assert_eq!(tally.planned, dispatch.open.planned());
            assert_eq!(tally.planned, sent + shed + gate.waiting() as u64);
            assert_eq!(u64::from(gate.in_flight()), sent - ended);
            assert!(gate.waiting() <= 300, "{}", gate.waiting());
        }
        assert!(sent > 0 && shed > 0);
    }
}
