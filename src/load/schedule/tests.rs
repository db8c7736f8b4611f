//! What the open and the closed loop have in common, and how each of them takes what it is told.

#![expect(clippy::print_stdout, reason = "a property that fails shows its seed")]

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::clock;
use crate::config::sections::Rate;
use crate::load::schedule::closed::{RAMP_STEP, STANDSTILL, Settings};
use crate::load::schedule::open::OpenLoop;
use crate::load::schedule::plan::{Shard, Spacing};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn plan(rate: f64, shard: Shard) -> Plan {
    Plan::new(3, rate, Spacing::Constant, shard).unwrap()
}

fn cap(max_in_flight: u32) -> NonZeroU32 {
    NonZeroU32::new(max_in_flight).unwrap()
}

/// An open loop, not begun: made a minute ago, as if its prompts had taken that long.
fn open_of(shard: Shard, rate: f64, max_in_flight: u32, now: Instant) -> Schedule {
    let open = OpenLoop::new(&plan(rate, shard), now - ms(60_000), 100);
    Schedule::Open(Box::new(Dispatch::new(open, cap(max_in_flight), ms(100))))
}

fn open(rate: f64, max_in_flight: u32, now: Instant) -> Schedule {
    let mut schedule = open_of(Shard::WHOLE, rate, max_in_flight, now);
    schedule.begin(now);
    schedule
}

fn closed(concurrency: u32, now: Instant) -> Schedule {
    let settings = Settings { concurrency, shard: Shard::WHOLE, seed: 3, first_index: 100, warmup: 0 };
    let mut schedule = Schedule::Closed(Box::new(ClosedLoop::new(settings)));
    schedule.begin(now);
    schedule
}

fn both(now: Instant) -> [Schedule; 2] {
    [open(100.0, 3, now), closed(3, now)]
}

fn ended(slot: u32, at: Instant, outcome: Outcome) -> Event {
    Event::Ended(End { slot, at, outcome, duration: ms(5), retry_after: None })
}

/// Everything that an event brings about.
fn issued(schedule: &mut Schedule, now: Instant, event: Event) -> Vec<Issue> {
    let mut issues = Vec::new();
    schedule.apply(now, event, |issue| issues.push(issue));
    issues
}

/// Runs it until `until` as the pacer does, nothing else happening. Gives what is sent, and when.
fn run(schedule: &mut Schedule, until: Instant) -> Vec<(Instant, Due)> {
    let mut sent = Vec::new();
    while let Some(at) = schedule.wake_at().filter(|at| *at <= until) {
        schedule.apply(at, Event::Due, |issue| match issue {
            Issue::Send(due) => sent.push((at, due)),
            Issue::Planned { .. } | Issue::Shed { .. } => {}
        });
    }
    sent
}

fn indices(sent: &[(Instant, Due)]) -> Vec<u64> {
    sent.iter().map(|(_, due)| due.arrival.index).collect()
}

fn shed(issues: &[Issue]) -> Vec<(ShedReason, u64)> {
    let shed = |issue: &Issue| match issue {
        Issue::Shed { reason, count } => Some((*reason, *count)),
        Issue::Planned { .. } | Issue::Send(_) => None,
    };
    issues.iter().filter_map(shed).collect()
}

// ---- both ----

#[test]
fn what_is_planned_is_said_last_and_only_if_there_is_any() {
    let now = clock::now();
    for mut schedule in both(now) {
        let issues = issued(&mut schedule, now, Event::Due);
        assert!(matches!(issues[..], [Issue::Send(_), Issue::Planned { count: 1 }]), "{issues:?}");
        assert_eq!(issued(&mut schedule, now, Event::WarmUp { count: 1 }), []);
        assert_eq!(issued(&mut schedule, now, Event::Resume), []);
    }
    // Also when several are, and some of them are shed at once.
    let mut schedule = open(100.0, 3, now);
    let issues = issued(&mut schedule, now + ms(95), Event::Stop);
    assert_eq!((issues.len(), issues.last()), (11, Some(&Issue::Planned { count: 10 })));
}

#[test]
fn after_the_end_nothing_is_planned_whatever_is_said() {
    let start = clock::now();
    for mut schedule in both(start) {
        let sent = run(&mut schedule, start + ms(25));
        assert_eq!(sent.len(), 3);
        let now = start + ms(28);
        assert!(!schedule.is_stopped());
        issued(&mut schedule, now, Event::Stop);
        assert!(schedule.is_stopped());
        let (tally, next) = (*schedule.tally(), schedule.next_index());
        for event in [
            ended(0, now, Outcome::Connect),
            ended(1, now, Outcome::Ok),
            Event::Due,
            Event::Pause,
            Event::Resume,
            Event::WarmUp { count: 9 },
            Event::Replan(plan(1000.0, Shard::WHOLE)),
            Event::Cap { max_in_flight: cap(99), late_cap: Rate::LATE_CAP },
            Event::Concurrency { concurrency: 99 },
            ended(2, now, Outcome::Connect),
            Event::Stop,
        ] {
            assert_eq!(issued(&mut schedule, now + ms(9000), event), [], "{event:?}");
        }
        assert_eq!((*schedule.tally(), schedule.next_index(), schedule.wake_at()), (tally, next, None));
    }
}

#[test]
fn what_is_meant_for_the_other_kind_changes_nothing() {
    let start = clock::now();
    let [mut open, mut closed] = both(start);
    for event in
        [Event::Replan(plan(1.0, Shard::WHOLE)), Event::Cap { max_in_flight: cap(1), late_cap: Rate::LATE_CAP }]
    {
        assert_eq!(issued(&mut closed, start, event).len(), usize::from(matches!(event, Event::Replan(_))) * 2);
    }
    issued(&mut open, start, Event::Concurrency { concurrency: 0 });
    for mut schedule in [open, closed] {
        run(&mut schedule, start + ms(25));
        assert_eq!(schedule.tally().sent, 3);
    }
}

#[test]
fn warm_up_goes_to_those_that_are_sent_next() {
    let start = clock::now();
    for mut schedule in both(start) {
        issued(&mut schedule, start, Event::Pause);
        issued(&mut schedule, start + ms(1), Event::WarmUp { count: 2 });
        let mut warm = Vec::new();
        schedule.apply(start + ms(1001), Event::Resume, |issue| {
            if let Issue::Send(due) = issue {
                warm.push(due.warmup);
            }
        });
        warm.extend(run(&mut schedule, start + ms(1100)).iter().map(|(_, due)| due.warmup));
        // What was sent before, or shed in the pause, used none up. Three is the open loop's cap, of which one is taken.
        assert!(warm == [true, true] || warm == [true, true, false], "{warm:?}");
    }
}

#[test]
fn whatever_happens_the_law_holds_and_indices_rise() {
    for seed in 0..200 {
        println!("seed {seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut now = clock::now();
        let mut schedule = if seed % 2 == 0 { open(200.0, 6, now) } else { closed(6, now) };
        let (mut planned, mut gone, mut last, mut floor) = (0, 0, None, 0);
        let mut running: Vec<Due> = Vec::new();
        for _ in 0..1000 {
            let longest = [500, 20_000, 400_000][rng.random_range(0..3)];
            now += Duration::from_micros(rng.random_range(0..longest));
            let event = match rng.random_range(0..60) {
                0 => Event::Pause,
                1..4 => Event::Resume,
                4 => Event::WarmUp { count: rng.random_range(0..9) },
                5 => Event::Replan(plan([1.0, 50.0, 700.0][rng.random_range(0..3)], Shard::WHOLE)),
                6 => Event::Cap { max_in_flight: cap(rng.random_range(1..12)), late_cap: Rate::LATE_CAP },
                7 => Event::Concurrency { concurrency: rng.random_range(0..12) },
                8..40 if !running.is_empty() => {
                    let due = running.swap_remove(rng.random_range(0..running.len()));
                    let outcome = [Outcome::Ok, Outcome::Connect, Outcome::TimeoutTotal][rng.random_range(0..3)];
                    let retry_after = rng.random_bool(0.1).then(|| ms(rng.random_range(0..3000)));
                    Event::Ended(End { slot: due.slot, at: now, outcome, duration: ms(5), retry_after })
                }
                _ => Event::Due,
            };
            for issue in issued(&mut schedule, now, event) {
                match issue {
                    Issue::Planned { count } => planned += count,
                    Issue::Shed { count, .. } => gone += count,
                    Issue::Send(due) => {
                        let index = due.arrival.index;
                        assert!(last.is_none_or(|last| last < index) && index >= floor, "{index} after {last:?}");
                        assert!(due.arrival.planned_at <= now);
                        last = Some(index);
                        gone += 1;
                        running.push(due);
                    }
                }
            }
            let waiting = match &schedule {
                Schedule::Open(open) => open.gate().waiting() as u64,
                Schedule::Closed(_) => 0,
            };
            assert_eq!((planned, planned), (schedule.tally().planned, gone + waiting));
            assert!(schedule.next_index() >= floor, "a prompt that was let go of is wanted");
            floor = schedule.next_index();
        }
        assert!(planned > 50, "{planned}");
    }
}

#[test]
fn a_gateway_that_asks_for_patience_is_sent_nothing_until_it_is_over() {
    let start = clock::now();
    for mut schedule in both(start) {
        let sent = run(&mut schedule, start + ms(25));
        assert_eq!(sent.len(), 3);
        let (now, until) = (start + ms(30), start + ms(7026));
        let last = sent[2].1.slot;
        let end = End {
            slot: last,
            at: start + ms(26),
            outcome: Outcome::Http429,
            duration: ms(5),
            retry_after: Some(ms(7000)),
        };
        issued(&mut schedule, now, Event::Ended(end));
        // Those that are in flight end meanwhile, and bring no other.
        issued(&mut schedule, now + ms(1), ended(sent[0].1.slot, now + ms(1), Outcome::Ok));
        assert_eq!(run(&mut schedule, until - ms(1)), []);
        assert!(schedule.tally().shed(ShedReason::Backoff) >= 2, "{:?}", schedule.tally());
        let rested = schedule.rested(until);
        assert!(rested > ms(4600) && rested <= ms(7000), "{rested:?}");
        let after = run(&mut schedule, until + ms(100));
        assert!(after.len() == 2 && after.iter().all(|(at, due)| *at == due.arrival.planned_at), "{after:?}");
        assert!(after[1].0 - after[0].0 >= ms(10), "{after:?}");
        assert_eq!(schedule.tally().shed(ShedReason::Late), 0);
    }
}

#[test]
fn patience_that_is_over_before_it_is_heard_of_holds_nothing_back() {
    let start = clock::now();
    for mut schedule in both(start) {
        let sent = run(&mut schedule, start + ms(25));
        let at = start + ms(26);
        let end = End { slot: sent[0].1.slot, at, outcome: Outcome::Ok, duration: ms(5), retry_after: Some(ms(3)) };
        issued(&mut schedule, start + ms(29), Event::Ended(end));
        run(&mut schedule, start + ms(35));
        assert_eq!(schedule.tally().sent, 4);
        assert_eq!(schedule.tally().shed_total(), 0);
    }
}

// ---- open ----

#[test]
fn the_first_arrival_is_at_the_begin_however_long_ago_the_plan_was_made() {
    let now = clock::now();
    let mut schedule = open_of(Shard::WHOLE, 10.0, 9, now);
    schedule.begin(now);
    let sent = run(&mut schedule, now + ms(200));
    assert_eq!(sent.iter().map(|(at, _)| *at - now).collect::<Vec<_>>(), [0, 100, 200].map(ms));
    assert_eq!((indices(&sent), schedule.tally().shed_total()), (vec![100, 101, 102], 0));
}

#[test]
fn another_plan_begins_at_once_and_indices_go_on() {
    let start = clock::now();
    let mut schedule = open(10.0, 99, start);
    run(&mut schedule, start + ms(250));
    // Told late: what was due under the old plan still leaves.
    let issues = issued(&mut schedule, start + ms(310), Event::Replan(plan(100.0, Shard::WHOLE)));
    assert!(matches!(issues[..], [Issue::Send(_), Issue::Planned { count: 1 }]), "{issues:?}");
    let sent = run(&mut schedule, start + ms(340));
    assert_eq!(sent.iter().map(|(at, _)| *at - start).collect::<Vec<_>>(), [310, 320, 330, 340].map(ms));
    assert_eq!(indices(&sent), [104, 105, 106, 107]);
}

#[test]
fn another_plan_of_a_shard_keeps_to_its_indices() {
    let start = clock::now();
    let shard = Shard::new(1, cap(3)).unwrap();
    let mut schedule = open_of(shard, 30.0, 99, start);
    schedule.begin(start);
    let before = run(&mut schedule, start + ms(250));
    issued(&mut schedule, start + ms(250), Event::Replan(plan(3.0, shard)));
    let after = run(&mut schedule, start + ms(1600));
    assert_eq!((indices(&before), indices(&after)), (vec![101, 104, 107], vec![110, 113]));
}

#[test]
fn what_waits_keeps_its_place_when_the_plan_changes() {
    let start = clock::now();
    let mut schedule = open(100.0, 1, start);
    run(&mut schedule, start + ms(25));
    assert!(schedule.is_at_cap());
    issued(&mut schedule, start + ms(25), Event::Replan(plan(1.0, Shard::WHOLE)));
    // Those at 10 and 20 ms wait, and so does the first of the new plan.
    assert_eq!(schedule.next_index(), 101);
    let issues = issued(&mut schedule, start + ms(30), Event::Cap { max_in_flight: cap(9), late_cap: Rate::LATE_CAP });
    let sent: Vec<_> = issues.iter().filter(|issue| matches!(issue, Issue::Send(_))).collect();
    assert_eq!((sent.len(), schedule.is_at_cap()), (2, false));
    assert_eq!(indices(&run(&mut schedule, start + ms(30))), [103]);
}

#[test]
fn a_plan_that_came_in_a_pause_is_held_back_like_the_old_one() {
    let start = clock::now();
    let mut schedule = open(10.0, 9, start);
    issued(&mut schedule, start, Event::Pause);
    let issues = issued(&mut schedule, start + ms(950), Event::Replan(plan(100.0, Shard::WHOLE)));
    assert_eq!(shed(&issues), [(ShedReason::Paused, 9)]);
    let issues = issued(&mut schedule, start + ms(1945), Event::Resume);
    assert_eq!(shed(&issues), [(ShedReason::Paused, 100)]);
    assert_eq!(indices(&run(&mut schedule, start + ms(1955))), [210]);
}

#[test]
fn an_open_loop_never_rests() {
    let start = clock::now();
    let mut schedule = open(10.0, 9, start);
    run(&mut schedule, start + ms(500));
    issued(&mut schedule, start + ms(500), ended(0, start + ms(500), Outcome::Connect));
    assert_eq!(schedule.rested(start + ms(9000)), Duration::ZERO);
}

// ---- closed ----

#[test]
fn an_end_gives_its_worker_the_next_request_at_once_or_a_rest() {
    let start = clock::now();
    let mut schedule = closed(2, start);
    run(&mut schedule, start + ms(10));
    let now = start + ms(1500);
    let issues = issued(&mut schedule, now, ended(1, now, Outcome::Ok));
    let arrival = Arrival { index: 102, planned_at: now };
    assert_eq!(issues, [Issue::Send(Due { arrival, warmup: false, slot: 1 }), Issue::Planned { count: 1 }]);
    let issues = issued(&mut schedule, now, ended(0, now, Outcome::Connect));
    assert_eq!(issues, [Issue::Shed { reason: ShedReason::Backoff, count: 1 }, Issue::Planned { count: 1 }]);
    // A rest uses up no index.
    assert_eq!((schedule.next_index(), schedule.is_at_cap()), (103, false));
    let back = schedule.wake_at().unwrap();
    assert_eq!(indices(&run(&mut schedule, back)), [103]);
    assert_eq!(schedule.rested(back), (back - now) / 2);
}

#[test]
fn workers_are_added_and_taken_away() {
    let start = clock::now();
    let mut schedule = closed(1, start);
    run(&mut schedule, start);
    let now = start + ms(1000);
    let first = issued(&mut schedule, now, Event::Concurrency { concurrency: 3 });
    assert_eq!((first.len(), indices(&run(&mut schedule, now + RAMP_STEP))), (2, vec![102]));
    assert_eq!(issued(&mut schedule, now, Event::Concurrency { concurrency: 1 }), []);
    assert_eq!(issued(&mut schedule, now, ended(2, now, Outcome::Ok)), []);
    assert_eq!(issued(&mut schedule, now, ended(0, now, Outcome::Ok)).len(), 2);
}

#[test]
fn a_pause_plans_nothing_and_its_end_is_spread() {
    let start = clock::now();
    let mut schedule = closed(3, start);
    run(&mut schedule, start + ms(20));
    let now = start + ms(2000);
    issued(&mut schedule, now, Event::Pause);
    for slot in 0..3 {
        assert_eq!(issued(&mut schedule, now, ended(slot, now, Outcome::Ok)), []);
    }
    assert_eq!(schedule.wake_at(), None);
    let back = now + ms(60_000);
    assert_eq!(issued(&mut schedule, back, Event::Resume).len(), 2);
    let sent = run(&mut schedule, back + ms(1000));
    assert_eq!(sent.iter().map(|(at, _)| *at - back).collect::<Vec<_>>(), [RAMP_STEP, RAMP_STEP * 2]);
}

#[test]
fn after_a_standstill_the_workers_that_it_kept_return_spread() {
    let start = clock::now();
    let mut schedule = closed(50, start);
    // Half a second of ramp, and nobody there for ten minutes of it.
    run(&mut schedule, start + ms(95));
    let now = start + ms(600_000);
    let issues = issued(&mut schedule, now, Event::Due);
    assert_eq!((shed(&issues), issues.len()), (vec![(ShedReason::Late, 40)], 3));
    let sent = run(&mut schedule, now + ms(1000));
    assert_eq!(indices(&sent), (111..150).collect::<Vec<_>>(), "what was shed uses up no index");
    assert!(sent.iter().zip(1..).all(|((at, due), k)| *at == now + RAMP_STEP * k && due.arrival.planned_at == *at));
}

#[test]
fn a_short_stall_moves_no_worker() {
    let start = clock::now();
    let mut schedule = closed(3, start);
    let issues = issued(&mut schedule, start + STANDSTILL, Event::Due);
    let planned = issues.iter().filter_map(|issue| match issue {
        Issue::Send(due) => Some(due.arrival.planned_at - start),
        Issue::Planned { .. } | Issue::Shed { .. } => None,
    });
    assert_eq!(planned.collect::<Vec<_>>(), [0, 10, 20].map(ms), "their lag says so");
}
