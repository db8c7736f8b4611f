#![expect(clippy::print_stdout, reason = "a property that fails shows its seed")]

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::clock;
use crate::load::schedule::plan::{Shard, Spacing};

const LATE_CAP: Duration = Duration::from_millis(100);

fn open(rate: f64, spacing: Spacing, start: Instant) -> OpenLoop {
    OpenLoop::new(&Plan::new(9, rate, spacing, Shard::WHOLE).unwrap(), start, 0)
}

#[test]
fn arrivals_carry_their_instant_and_index() {
    let start = clock::now();
    let plan = Plan::new(9, 10.0, Spacing::Constant, Shard::WHOLE).unwrap();
    let mut open = OpenLoop::new(&plan, start, 500);
    open.warm_up(2);
    let due: Vec<Due> = (0..3).map(|_| open.hand_out()).collect();
    let at = |millis, index, warmup| Due {
        arrival: Arrival { index, planned_at: start + Duration::from_millis(millis) },
        warmup,
        slot: 0,
    };
    assert_eq!(due, [at(0, 500, true), at(100, 501, true), at(200, 502, false)]);
    assert_eq!((open.planned(), open.next_at()), (3, start + Duration::from_millis(300)));
}

#[test]
fn after_an_outage_the_plan_goes_on_from_now() {
    let start = clock::now();
    let mut open = open(100.0, Spacing::Constant, start);
    open.hand_out();
    // 10 minutes and 3 ms: 60,001 arrivals up to now, of which the last 100 ms hold ten.
    let now = start + Duration::from_millis(600_003);
    assert_eq!(open.catch_up(now, LATE_CAP), 59_990);
    assert_eq!(open.next_at(), now);
    let due = open.hand_out();
    assert_eq!((due.arrival.index, due.arrival.planned_at), (59_991, now));
    assert_eq!((open.next_at(), open.planned()), (now + Duration::from_millis(10), 59_992));
    assert_eq!(open.catch_up(now, LATE_CAP), 0);
}

#[test]
fn a_stall_within_the_cap_moves_nothing() {
    let start = clock::now();
    let mut open = open(100.0, Spacing::Constant, start);
    assert_eq!(open.catch_up(start + LATE_CAP, LATE_CAP), 0);
    assert_eq!(open.next_at(), start);
    assert_eq!(open.catch_up(start + LATE_CAP + Duration::from_nanos(1), LATE_CAP), 1);
}

#[test]
fn a_pause_sheds_without_moving_the_plan() {
    let start = clock::now();
    let mut open = open(10.0, Spacing::Constant, start + Duration::from_secs(1));
    assert_eq!(open.skip_through(start), 0);
    assert_eq!(open.skip_through(start + Duration::from_secs(2)), 11);
    assert_eq!(open.next_at(), start + Duration::from_millis(2100));
}

#[test]
fn what_is_planned_is_handed_out_or_skipped_once() {
    for seed in 0..50 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let spacing = [Spacing::Constant, Spacing::Poisson, Spacing::Gamma { burstiness: 0.3 }][rng.random_range(0..3)];
        println!("seed {seed}, {spacing:?}");
        let start = clock::now();
        let (mut open, mut now) = (open(200.0, spacing, start), start);
        let (mut handed_out, mut skipped, mut last) = (0, 0, start);
        for _ in 0..300 {
            let longest = [2_000, 90_000, 5_000_000][rng.random_range(0..3)];
            now += Duration::from_micros(rng.random_range(0..longest));
            skipped += if rng.random_bool(0.1) { open.skip_through(now) } else { open.catch_up(now, LATE_CAP) };
            while open.next_at() <= now {
                // Each has an index: those before it have been handed out or skipped, one by one.
                let arrival = open.hand_out().arrival;
                assert_eq!(arrival.index, handed_out + skipped);
                assert!(arrival.planned_at >= last && now - arrival.planned_at <= LATE_CAP);
                (handed_out, last) = (handed_out + 1, arrival.planned_at);
            }
            assert_eq!(open.planned(), handed_out + skipped);
        }
        assert!(handed_out > 0 && skipped > 0);
    }
}
