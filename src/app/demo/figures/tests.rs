//! Differences of pictures that real recorders and ledgers made.

use super::*;
use crate::clock;
use crate::config::sections::Rate;
use crate::domain::arrival::Arrival;
use crate::domain::sample::ItlBasis;
use crate::domain::slo::Slo;
use crate::domain::timeline::{Answer, Timeline, TokenEvent, Usage};
use crate::export::view::{ClientView, PauseReason, Phase, ReloadView};
use crate::measure::recorder::Recorder;
use crate::measure::snapshot::Ledger;
use crate::watch::client_health::Second;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A daemon with one load, of which pictures are taken.
struct Rig {
    begun_at: Instant,
    ledger: Ledger,
    client: ClientView,
    load: LoadView,
    track: Track,
}

impl Rig {
    fn new() -> Self {
        let begun_at = clock::now();
        let load = LoadView {
            name: LOAD.to_owned(),
            target: "simulated".to_owned(),
            model: "sim-model".to_owned(),
            pace: Some(Pace::Rate(Rate::of(3.0))),
            paused: None,
            not_kept: false,
            failing: Vec::new(),
            last_success_unix: None,
            itl_basis: ItlBasis::Token,
        };
        let track = Track { begun_at, lines: VecDeque::new() };
        Self { begun_at, ledger: Ledger::new(1), client: ClientView::default(), load, track }
    }

    fn record(&mut self, work: impl FnOnce(&mut Recorder)) {
        let mut recorder = Recorder::new(1);
        work(&mut recorder);
        self.ledger.absorb(&recorder.take());
    }

    fn view(&mut self, secs: u64) -> Arc<View> {
        Arc::new(View {
            taken_at: self.begun_at + Duration::from_secs(secs),
            snapshot: self.ledger.snapshot(Duration::from_secs(1_800_000_000 + secs)),
            loads: vec![self.load.clone()],
            phase: Phase::Running,
            client: self.client,
            reload: ReloadView::default(),
            state: None,
            dropped: Vec::new(),
            events: Vec::new().into(),
        })
    }

    fn line(&mut self, secs: u64) -> Figures {
        let view = self.view(secs);
        self.track.line(&view)
    }

    /// So many requests, answered with this TTFT, a TPOT of 20 ms and 11 tokens.
    fn answer(&mut self, count: u64, ttft: u64) {
        self.end(count, Outcome::Ok, ttft);
    }

    fn end(&mut self, count: u64, outcome: Outcome, ttft: u64) {
        self.record(|recorder| {
            for _ in 0..count {
                recorder.planned(0, 1);
                recorder.ended(0, &timeline(outcome, ttft), false, &Slo::default());
            }
        });
    }
}

fn timeline(outcome: Outcome, ttft: u64) -> Timeline {
    let planned_at = clock::now();
    let at = |n: u64| planned_at + ms(n);
    let tokens = (0..11).map(|n| TokenEvent { at: at(ttft + 20 * n), tokens: None }).collect();
    let usage = Usage { completion_tokens: Some(11), prompt_tokens: Some(256), ..Usage::default() };
    Timeline {
        arrival: Arrival { index: 0, planned_at },
        request_id: String::new(),
        outcome,
        opened: None,
        setup: Duration::ZERO,
        sent_at: Some(planned_at),
        headers_at: Some(planned_at),
        status: Some(200),
        answer: Answer { usage: Some(usage), tokens, ..Answer::default() },
        ended_at: at(ttft + 200),
        resent: false,
        compressed: false,
        retry_after: None,
        detail: None,
    }
}

/// Within 1.1 %.
fn is(told: Option<Duration>, millis: u64) -> bool {
    told.is_some_and(|told| (told.as_secs_f64() / ms(millis).as_secs_f64() - 1.0).abs() < 0.011)
}

#[test]
fn a_line_counts_what_happened_since_the_one_before() {
    let mut rig = Rig::new();
    rig.answer(10, 60);
    let first = rig.line(5);
    let load = first.load.unwrap();
    assert_eq!((first.elapsed, first.lasted), (ms(5000), ms(5000)));
    assert_eq!((load.planned, load.sent(), load.answered(), load.in_flight, load.output_tokens), (10, 10, 10, 0, 110));

    rig.answer(2, 60);
    rig.end(1, Outcome::Http5xx, 60);
    rig.record(|recorder| {
        recorder.planned(0, 7);
        recorder.shed(0, ShedReason::InflightCap, 3);
    });
    rig.load.not_kept = true;
    rig.load.paused = Some(PauseReason::Api);
    let second = rig.line(9);
    let load = second.load.unwrap();
    assert_eq!((second.elapsed, second.lasted), (ms(9000), ms(4000)));
    assert_eq!((load.planned, load.sent(), load.answered(), load.in_flight), (10, 7, 2, 4));
    assert_eq!(load.ended, [(Outcome::Ok, 2), (Outcome::Http5xx, 1)]);
    assert_eq!(load.shed, [(ShedReason::InflightCap, 3)]);
    assert!(load.not_kept && load.paused);
}

#[test]
fn latencies_are_those_of_the_last_minute_and_failures_are_not_in_them() {
    let mut rig = Rig::new();
    let mut ttfts = Vec::new();
    for line in 1..=24 {
        // A minute of 1 s, then one of 60 ms.
        rig.answer(10, if line <= 12 { 1000 } else { 60 });
        rig.end(1, Outcome::Http5xx, 5);
        let load = rig.line(5 * line).load.unwrap();
        assert_eq!(load.ttft.n, 10 * line.min(12), "line {line}");
        assert!(is(load.tpot.p99, 20), "{:?}", load.tpot);
        ttfts.push(load.ttft);
    }
    assert!(is(ttfts[11].p50, 1000) && is(ttfts[12].p99, 1000), "{ttfts:?}");
    assert!(is(ttfts[17].p50, 60) && is(ttfts[17].p99, 1000), "half and half: {:?}", ttfts[17]);
    assert!(is(ttfts[23].p50, 60) && is(ttfts[23].p99, 60), "{:?}", ttfts[23]);

    let view = rig.view(120);
    let whole = rig.track.whole(&view).load.unwrap();
    assert_eq!((whole.planned, whole.ttft.n, whole.e2el.n), (264, 240, 240));
    assert!(is(whole.ttft.p50, 60) || is(whole.ttft.p50, 1000));
    assert!(is(whole.e2el.p99, 1200), "{:?}", whole.e2el);
}

#[test]
fn without_answers_there_is_no_latency() {
    let mut rig = Rig::new();
    rig.end(3, Outcome::Connect, 5);
    let load = rig.line(5).load.unwrap();
    assert_eq!([load.ttft, load.tpot, load.e2el], [Latency::default(); 3]);
    assert_eq!((load.answered(), load.sent()), (0, 3));
}

#[test]
fn seconds_of_ours_are_said_of_the_line_they_fell_into() {
    let mut rig = Rig::new();
    let mut second = Second { event_loop_delay: ms(500), lasted: ms(1000), ..Second::default() };
    rig.client.health.step(&second);
    second.late = 1;
    rig.client.health.step(&second);
    let unwell = rig.line(5).unwell.unwrap();
    assert_eq!(unwell.seconds, 2);
    assert_eq!(unwell.reasons, [TaintReason::Late, TaintReason::EventLoopDelay]);
    assert_eq!(rig.line(10).unwell, None);
    let view = rig.view(10);
    assert_eq!(rig.track.whole(&view).unwell.unwrap().seconds, 2);
}

#[test]
fn a_load_that_is_no_longer_configured_has_no_figures_and_one_that_comes_back_begins_at_zero() {
    let mut rig = Rig::new();
    rig.answer(10, 60);
    rig.line(5);
    let name = std::mem::replace(&mut rig.load.name, "another".to_owned());
    assert!(rig.line(10).load.is_none());
    rig.load.name = name;
    // Another target behind the same name is another account.
    rig.ledger = Ledger::new(1);
    rig.ledger.remove(0);
    let account = rig.ledger.open();
    let mut recorder = Recorder::new(account + 1);
    recorder.planned(account, 4);
    rig.ledger.absorb(&recorder.take());
    assert_eq!(rig.line(15).load.unwrap().planned, 4);
}
