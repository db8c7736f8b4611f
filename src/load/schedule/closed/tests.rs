#![expect(clippy::print_stdout, reason = "a property that fails shows its seed")]

use std::num::NonZeroU32;

use super::*;
use crate::clock;

const LONG: Duration = Duration::from_secs(3);
const SHORT: Duration = Duration::from_millis(5);

fn closed(concurrency: u32) -> ClosedLoop {
    ClosedLoop::new(Settings { concurrency, shard: Shard::WHOLE, seed: 77, first_index: 0, warmup: 0 })
}

/// A loop all of whose workers run, and the instant at which the last one has started.
fn running(concurrency: u32) -> (ClosedLoop, Instant) {
    let start = clock::now();
    let mut closed = closed(concurrency);
    closed.begin(start);
    let now = start + LONGEST_RAMP;
    assert_eq!(permits(&mut closed, now).len(), concurrency as usize);
    (closed, now)
}

fn permits(closed: &mut ClosedLoop, now: Instant) -> Vec<Due> {
    std::iter::from_fn(|| closed.permit(now)).collect()
}

#[test]
fn the_start_is_spread_after_the_connections() {
    let start = clock::now();
    let mut closed = closed(3);
    assert_eq!((closed.phase(start), closed.wake_at(), closed.permit(start)), (Phase::PreConnect, None, None));
    closed.begin(start);
    let at = |millis| start + Duration::from_millis(millis);
    assert_eq!((closed.phase(start), permits(&mut closed, start).len()), (Phase::Ramp, 1));
    assert_eq!(closed.wake_at(), Some(at(10)));
    assert_eq!(permits(&mut closed, at(19)).len(), 1);
    let last = closed.permit(at(25)).unwrap();
    // It should have left at its place in the ramp: what comes after is our lateness.
    assert_eq!(last.arrival, Arrival { index: 2, planned_at: at(20) });
    assert_eq!((closed.phase(at(25)), closed.wake_at()), (Phase::Steady, None));
}

#[test]
fn the_longest_ramp_is_bounded() {
    let start = clock::now();
    let mut closed = closed(65_536);
    closed.begin(start);
    assert_eq!(closed.phase(start + LONGEST_RAMP), Phase::Steady);
    assert_eq!(permits(&mut closed, start + LONGEST_RAMP).len(), 65_536);
}

#[test]
fn a_worker_goes_on_when_its_request_has_ended() {
    let (mut closed, now) = running(2);
    assert_eq!(closed.permit(now), None);
    assert_eq!(closed.finished(1, now + SHORT, Outcome::Ok, SHORT), Next::AtOnce);
    let permit = closed.permit(now + SHORT).unwrap();
    assert_eq!((permit.slot, permit.arrival.planned_at), (1, now + SHORT));
    // Neither a slow failure nor an end of our own making speaks against going on.
    assert_eq!(closed.finished(1, now + LONG, Outcome::TimeoutTotal, LONG), Next::AtOnce);
    assert_eq!(closed.finished(0, now + LONG, Outcome::Canceled, SHORT), Next::AtOnce);
}

#[test]
fn fast_failures_rest_longer_and_longer_until_a_success() {
    let (mut closed, mut now) = running(1);
    let bounds = [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000].map(Duration::from_millis);
    let mut longest = [Duration::ZERO; 9];
    for _ in 0..200 {
        for (bound, longest) in bounds.into_iter().zip(&mut longest) {
            let Next::Rests { until } = closed.finished(0, now, Outcome::Connect, SHORT) else { unreachable!() };
            assert!(until - now <= bound);
            *longest = (until - now).max(*longest);
            now = until;
            assert_eq!(closed.permit(now).unwrap().arrival.planned_at, until);
        }
        assert_eq!(closed.finished(0, now, Outcome::Ok, LONG), Next::AtOnce);
        closed.permit(now).unwrap();
    }
    // Drawn from the whole range: of 200 draws, the largest is in its last tenth (all nine: 1 - 6e-9).
    for (bound, longest) in bounds.into_iter().zip(longest) {
        assert!(longest > bound * 9 / 10, "seed 77: {longest:?} of {bound:?}");
    }
    assert_eq!(closed.tally().shed(ShedReason::Backoff), 1800);
    assert_eq!(closed.tally().planned, closed.tally().sent + closed.tally().shed_total());
}

#[test]
fn rests_are_a_function_of_seed_and_worker() {
    let rests = || {
        let (mut closed, now) = running(3);
        [0, 1, 2].map(|worker| match closed.finished(worker, now, Outcome::Http429, SHORT) {
            Next::Rests { until } => until - now,
            next @ (Next::AtOnce | Next::Leaves) => unreachable!("{next:?}"),
        })
    };
    let [a, b, c] = rests();
    assert_eq!([a, b, c], rests());
    assert!(a != b && b != c && a != c);
}

#[test]
fn time_at_rest_is_the_share_of_workers_that_rest() {
    let (mut closed, now) = running(4);
    assert_eq!(closed.rested(now), Duration::ZERO);
    let mut ends = Vec::new();
    for worker in [0, 1] {
        let Next::Rests { until } = closed.finished(worker, now, Outcome::Reset, SHORT) else { unreachable!() };
        ends.push(until - now);
    }
    // Two of four, each for as long as it rests: read often or once, the sum is the same.
    let want = (ends[0] + ends[1]) / 4;
    for millis in [10, 20, 30] {
        closed.rested(now + Duration::from_millis(millis));
    }
    let rested = closed.rested(now + LONG);
    assert!(want.abs_diff(rested) < Duration::from_nanos(20), "{want:?} {rested:?}");
    // Nobody rests in a pause: it is not covered anyway.
    closed.finished(2, now + LONG, Outcome::Reset, SHORT);
    closed.pause(now + LONG);
    closed.resume(now + LONG * 2);
    assert_eq!(closed.rested(now + LONG * 3), rested);
}

#[test]
fn fewer_workers_let_those_that_run_end() {
    let (mut closed, now) = running(4);
    closed.finished(3, now, Outcome::Ok, LONG);
    closed.resize(now, 2);
    assert_eq!((closed.permit(now), closed.concurrency()), (None, 2));
    assert_eq!(closed.finished(2, now, Outcome::Ok, LONG), Next::Leaves);
    assert_eq!(closed.finished(0, now, Outcome::Ok, LONG), Next::AtOnce);
    // Back to three: the third is new, and starts as at the beginning.
    closed.resize(now, 3);
    let workers: Vec<_> = permits(&mut closed, now).into_iter().map(|permit| permit.slot).collect();
    assert_eq!(workers, [0, 2]);
    assert_eq!(closed.finished(3, now, Outcome::Ok, LONG), Next::Leaves);
}

#[test]
fn a_worker_that_is_still_running_is_kept_when_the_number_rises_again() {
    let (mut closed, now) = running(2);
    closed.resize(now, 1);
    closed.resize(now, 2);
    assert_eq!(closed.wake_at(), None);
    assert_eq!(closed.finished(1, now, Outcome::Ok, LONG), Next::AtOnce);
}

#[test]
fn a_pause_plans_nothing_and_returns_spread() {
    let (mut closed, now) = running(3);
    closed.pause(now);
    for worker in 0..3 {
        closed.finished(worker, now, Outcome::Ok, LONG);
    }
    let planned = closed.tally().planned;
    assert_eq!((closed.wake_at(), closed.permit(now + LONG)), (None, None));
    closed.resume(now + LONG);
    assert_eq!((closed.tally().planned, permits(&mut closed, now + LONG).len()), (planned, 1));
    assert_eq!(closed.wake_at(), Some(now + LONG + RAMP_STEP));
    assert_eq!(permits(&mut closed, now + LONG + RAMP_STEP * 2).len(), 2);
}

#[test]
fn all_workers_rest_while_the_gateway_wants_patience_and_return_spread() {
    let (mut closed, now) = running(4);
    let until = now + LONG;
    // One is free, one was refused, one answers later; the fourth is still at it when the time is over.
    closed.finished(0, now, Outcome::Ok, LONG);
    assert_eq!(closed.back_off(now, until), 1);
    assert_eq!(closed.finished(1, now, Outcome::Http429, SHORT), Next::Rests { until: until + RAMP_STEP });
    assert_eq!(closed.finished(2, now + SHORT, Outcome::Ok, LONG), Next::Rests { until: until + RAMP_STEP * 2 });
    assert_eq!((closed.wake_at(), closed.tally().shed(ShedReason::Backoff)), (Some(until), 3));
    // Longer: who rests goes on resting, and is counted once. Shorter: nothing.
    let later = until + LONG;
    assert_eq!((closed.back_off(now + SHORT, later), closed.back_off(now + SHORT, until)), (0, 0));
    assert_eq!((closed.wake_at(), permits(&mut closed, later - SHORT).len()), (Some(later), 0));
    assert_eq!(closed.tally().shed(ShedReason::Backoff), 3);
    let rested = closed.rested(later - SHORT);
    assert!(rested > LONG && rested < LONG * 2, "{rested:?}");
    assert_eq!(closed.finished(3, later, Outcome::Ok, LONG), Next::AtOnce);
    for step in 0..3 {
        let worker = closed.permit(later + RAMP_STEP * step).map(|due| due.slot);
        assert!(worker.is_some(), "{step}");
    }
}

#[test]
fn workers_that_are_new_or_come_back_from_a_pause_are_patient_too() {
    let (mut closed, now) = running(2);
    closed.finished(0, now, Outcome::Ok, LONG);
    closed.pause(now);
    // A pause plans nothing.
    assert_eq!((closed.back_off(now, now + LONG), closed.tally().shed_total()), (0, 0));
    closed.resume(now + SHORT);
    closed.resize(now + SHORT, 5);
    assert_eq!(permits(&mut closed, now + LONG - SHORT), []);
    assert_eq!(permits(&mut closed, now + LONG + RAMP_STEP * 5).len(), 4);
}

#[test]
fn shards_split_workers_and_indices() {
    let count = NonZeroU32::new(3).unwrap();
    let (mut indices, mut workers) = (Vec::new(), Vec::new());
    for index in 0..3 {
        let shard = Shard::new(index, count).unwrap();
        let settings = Settings { concurrency: 7, shard, seed: 1, first_index: 100, warmup: 1 };
        let (mut closed, now) = (ClosedLoop::new(settings), clock::now());
        closed.begin(now);
        let permits = permits(&mut closed, now + LONGEST_RAMP);
        assert_eq!(permits.iter().filter(|permit| permit.warmup).count(), 1);
        workers.push(permits.len());
        indices.extend(permits.into_iter().map(|permit| permit.arrival.index));
    }
    indices.sort_unstable();
    assert_eq!((workers, indices), (vec![3, 2, 2], (100..107).collect()));
}

#[test]
fn whatever_happens_no_worker_is_lost_or_doubled() {
    for seed in 0..50 {
        println!("seed {seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut closed, mut now) = (closed(5), clock::now());
        closed.begin(now);
        let (mut running, mut ended, mut rests) = (BTreeSet::new(), 0, 0);
        for _ in 0..2000 {
            now += Duration::from_micros(rng.random_range(0..50_000));
            match rng.random_range(0..20) {
                0 => closed.pause(now),
                1..4 => closed.resume(now),
                4 => closed.resize(now, rng.random_range(0..9)),
                5..12 if !running.is_empty() => {
                    let worker = *running.iter().nth(rng.random_range(0..running.len())).unwrap();
                    running.remove(&worker);
                    ended += 1;
                    let outcome = [Outcome::Ok, Outcome::Connect, Outcome::Canceled][rng.random_range(0..3)];
                    if rng.random_bool(0.1) {
                        rests += closed.back_off(now, now + Duration::from_millis(rng.random_range(0..4000)));
                    }
                    rests += u64::from(matches!(closed.finished(worker, now, outcome, SHORT), Next::Rests { .. }));
                }
                _ => {
                    for permit in permits(&mut closed, now) {
                        assert!(permit.slot < closed.concurrency() && permit.arrival.planned_at <= now);
                        assert!(running.insert(permit.slot), "worker {} has two permits", permit.slot);
                    }
                }
            }
            let tally = closed.tally();
            assert_eq!(tally.sent, ended + running.len() as u64);
            assert_eq!((tally.planned, tally.shed(ShedReason::Backoff)), (tally.sent + rests, rests));
        }
        // All of them are there in the end.
        closed.resume(now);
        closed.resize(now, 8);
        for worker in running {
            closed.finished(worker, now, Outcome::Ok, LONG);
        }
        assert_eq!(permits(&mut closed, now + LONGEST_RAMP + LONGEST_REST).len(), 8);
    }
}
