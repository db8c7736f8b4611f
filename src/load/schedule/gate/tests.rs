use super::*;
use crate::clock;
use crate::domain::arrival::Arrival;

const LATE_CAP: Duration = Duration::from_millis(100);

struct Bench {
    start: Instant,
    gate: Gate,
}

impl Bench {
    fn new(max_in_flight: u32) -> Self {
        let cap = NonZeroU32::new(max_in_flight).unwrap();
        Self { start: clock::now(), gate: Gate::new(cap, LATE_CAP) }
    }

    fn at(&self, millis: u64) -> Instant {
        self.start + Duration::from_millis(millis)
    }

    fn arrive(&mut self, planned: u64, now: u64) -> Decision {
        let arrival = Arrival { index: planned, planned_at: self.at(planned) };
        self.gate.arrive(Due { arrival, warmup: false, slot: 0 }, self.at(now))
    }

    fn ended(&mut self, at: u64, now: u64) -> Vec<(u64, Decision)> {
        let mut decided = Vec::new();
        self.gate.ended(self.at(at), self.at(now), |due, decision| decided.push((due.arrival.index, decision)));
        decided
    }

    fn expire(&mut self, now: u64) -> Vec<(u64, Decision)> {
        let mut decided = Vec::new();
        self.gate.expire(self.at(now), |due, decision| decided.push((due.arrival.index, decision)));
        decided
    }
}

const CAP: Decision = Decision::Shed(ShedReason::InflightCap);
const LATE: Decision = Decision::Shed(ShedReason::Late);

#[test]
fn below_the_cap_it_leaves_at_once() {
    let mut bench = Bench::new(2);
    assert_eq!(
        [bench.arrive(0, 0), bench.arrive(1, 90), bench.arrive(2, 90)],
        [Decision::Send, Decision::Send, Decision::Wait]
    );
    assert_eq!((bench.gate.in_flight(), bench.gate.waiting()), (2, 1));
}

#[test]
fn at_the_cap_it_waits_for_a_slot() {
    let mut bench = Bench::new(1);
    bench.arrive(0, 0);
    assert_eq!([bench.arrive(10, 10), bench.arrive(20, 20)], [Decision::Wait; 2]);
    assert_eq!(bench.gate.wake_at(), Some(bench.at(110)));
    assert_eq!(bench.expire(109), []);
    assert_eq!(bench.ended(109, 109), [(10, Decision::Send)]);
    assert_eq!(bench.gate.wake_at(), Some(bench.at(120)));
    // In order: whoever comes now stands behind.
    assert_eq!(bench.arrive(110, 110), Decision::Wait);
    assert_eq!(bench.ended(111, 111), [(20, Decision::Send)]);
}

#[test]
fn without_a_slot_within_the_cap_it_is_the_gateways_doing() {
    let mut bench = Bench::new(1);
    bench.arrive(0, 0);
    bench.arrive(10, 10);
    assert_eq!(bench.expire(110), [(10, CAP)]);
    assert_eq!(bench.arrive(10, 150), CAP);
    // The slot came too late for the one at 200, although we hear of both only now.
    bench.arrive(200, 200);
    assert_eq!(bench.ended(301, 400), [(200, CAP)]);
    assert_eq!([bench.arrive(200, 400), bench.arrive(300, 400)], [CAP, Decision::Send]);
}

#[test]
fn with_a_slot_that_we_missed_it_is_our_doing() {
    let mut bench = Bench::new(1);
    assert_eq!(bench.arrive(0, 101), LATE);
    bench.arrive(100, 100);
    bench.arrive(110, 110);
    bench.arrive(450, 450);
    assert_eq!(bench.ended(200, 500), [(110, LATE), (450, Decision::Send)]);
}

#[test]
fn a_lower_cap_lets_those_in_flight_end() {
    let mut bench = Bench::new(3);
    (0..3).for_each(|n| assert_eq!(bench.arrive(n, n), Decision::Send));
    bench.gate.resize(NonZeroU32::MIN, LATE_CAP, bench.at(5), |_, _| unreachable!("nobody waits"));
    assert_eq!(bench.arrive(6, 6), Decision::Wait);
    assert_eq!(bench.ended(7, 7), []);
    assert_eq!(bench.ended(8, 8), []);
    assert_eq!(bench.ended(9, 9), [(6, Decision::Send)]);
}

#[test]
fn a_higher_cap_serves_those_that_wait() {
    let mut bench = Bench::new(1);
    assert_eq!([0, 1, 2].map(|n| bench.arrive(n, n)), [Decision::Send, Decision::Wait, Decision::Wait]);
    let mut sent = Vec::new();
    let now = bench.at(50);
    bench
        .gate
        .resize(NonZeroU32::new(3).unwrap(), LATE_CAP, now, |due, decision| sent.push((due.arrival.index, decision)));
    assert_eq!(sent, [(1, Decision::Send), (2, Decision::Send)]);
}
