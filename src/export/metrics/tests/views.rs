//! Views of loads that have had traffic, made by real recorders and ledgers.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::*;
use crate::clock;
use crate::config::sections::{Pace, Rate};
use crate::domain::arrival::Arrival;
use crate::domain::outcome::Outcome;
use crate::domain::sample::ItlBasis;
use crate::domain::shed::ShedReason;
use crate::domain::slo::Slo;
use crate::domain::timeline::{Answer, ConnectPhases, Timeline, TokenEvent, Usage};
use crate::export::view::{ClientView, Event, LoadView, Phase, ReloadView, StateView};
use crate::measure::recorder::Recorder;
use crate::measure::snapshot::Ledger;
use crate::watch::client_health::Process;

pub(crate) const TAKEN: Duration = Duration::from_secs(1_800_000_000);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// An answer of ten tokens, each request a little slower than the one before; with counts per event when `counted`.
fn timeline(index: u32, outcome: Outcome, status: u16, counted: bool) -> Timeline {
    let planned_at = clock::now();
    let at = |n: u64| planned_at + ms(n) + Duration::from_micros(37) * index;
    let event = |n: u64| TokenEvent { at: at(100 + 20 * n), tokens: counted.then_some(1) };
    let usage =
        Usage { completion_tokens: Some(10), prompt_tokens: Some(256), cached_tokens: Some(16), ..Usage::default() };
    Timeline {
        arrival: Arrival { index: index.into(), planned_at },
        request_id: String::new(),
        outcome,
        opened: index.is_multiple_of(7).then_some(ConnectPhases {
            dns: Some(ms(1)),
            tcp: Some(ms(2)),
            tls: Some(ms(5)),
        }),
        setup: Duration::ZERO,
        sent_at: Some(at(1)),
        headers_at: Some(at(50)),
        status: Some(status),
        answer: Answer {
            first_answer_at: Some(at(100)),
            closed_at: Some(at(400)),
            usage: Some(usage),
            tokens: (0..10).map(event).collect(),
            ..Answer::default()
        },
        ended_at: at(400),
        resent: index % 50 == 3,
        compressed: index % 50 == 4,
        retry_after: None,
        detail: None,
    }
}

fn record(recorder: &mut Recorder, load: usize) {
    let counted = load.is_multiple_of(2);
    for index in 0..400 {
        recorder.planned(load, 1);
        recorder.ended(load, &timeline(index, Outcome::Ok, 200, counted), index < 5, &Slo::default());
    }
    for (index, outcome) in (0..).zip(Outcome::ALL) {
        recorder.planned(load, 1);
        recorder.ended(load, &timeline(index, outcome, 503, counted), false, &Slo::default());
    }
    for reason in ShedReason::ALL {
        recorder.planned(load, 1);
        recorder.shed(load, reason, 1);
    }
    (0..=load).for_each(|_| recorder.planned(load, 1));
}

fn loads(loads: usize) -> Vec<LoadView> {
    let view = |load: usize| LoadView {
        name: format!("load{load}"),
        target: "staging".to_owned(),
        model: "Qwen3.5-35B-A3B".to_owned(),
        pace: Some(if load.is_multiple_of(2) {
            Pace::Rate(Rate::of(3.5))
        } else {
            Pace::Concurrency(8.try_into().unwrap())
        }),
        paused: None,
        not_kept: false,
        failing: Vec::new(),
        last_success_unix: None,
        itl_basis: ItlBasis::Token,
    };
    (0..loads).map(view).collect()
}

/// Just started: nothing has happened, and the system says nothing of the process.
pub(crate) fn quiet(count: usize) -> View {
    View {
        taken_at: clock::now(),
        snapshot: Ledger::new(count).snapshot(TAKEN),
        loads: loads(count),
        phase: Phase::Starting,
        client: ClientView::default(),
        reload: ReloadView { successful: true, succeeded_unix: TAKEN, failure: None, wants_restart: Vec::new() },
        state: None,
        dropped: Vec::new(),
        events: Vec::new().into(),
    }
}

/// At work: a closed minute with 400 answers, one of each outcome and reason, and requests under way. Nothing is absent
/// if there are two loads.
pub(crate) fn traffic(count: usize) -> View {
    let (mut ledger, mut recorder) = (Ledger::new(count), Recorder::new(count));
    (0..count).for_each(|load| record(&mut recorder, load));
    ledger.absorb(&recorder.take());
    for load in 0..count {
        ledger.close(load, TAKEN.as_secs(), Duration::from_secs(60), load == 0);
    }
    let mut loads = loads(count);
    loads.iter_mut().for_each(|load| load.last_success_unix = Some(TAKEN.as_secs_f64() - 0.25));
    let process = Process {
        cpu_seconds: Some(1.5),
        open_fds: Some(20),
        max_fds: Some(1024),
        resident_bytes: Some(12 << 20),
        virtual_bytes: Some(100 << 20),
        start_time_unix: Some(TAKEN.as_secs_f64() - 100.0),
        threads: Some(4),
    };
    View {
        taken_at: clock::now(),
        snapshot: ledger.snapshot(TAKEN),
        loads,
        phase: Phase::Running,
        client: ClientView { process, event_loop_delay: Duration::from_micros(300), ..ClientView::default() },
        state: Some(StateView { saved: true, saved_unix: Some(TAKEN) }),
        dropped: vec![("events", 2)],
        events: vec![Event { at_unix: TAKEN, kind: "started", load: None, text: "started".to_owned() }].into(),
        ..quiet(count)
    }
}

/// The TTFTs of the first load from 10 µs to 10 000 s, so that 300 native buckets do not hold them.
pub(super) fn spread(view: &mut View) {
    let mut recorder = Recorder::new(1);
    let mut micros = 10.0;
    while micros < 1e10 {
        let mut answered = timeline(1, Outcome::Ok, 200, false);
        let sent_at = answered.sent_at.unwrap();
        answered.answer.tokens.truncate(1);
        answered.answer.tokens[0].at = sent_at + Duration::from_secs_f64(micros / 1e6);
        recorder.planned(0, 1);
        recorder.ended(0, &answered, false, &Slo::default());
        micros *= 1.02;
    }
    absorb(view, &mut recorder);
}

/// Responses with every status from 100 to 999.
pub(super) fn invented_codes(view: &mut View) {
    let mut recorder = Recorder::new(1);
    for status in 100..1000 {
        recorder.planned(0, 1);
        recorder.ended(0, &timeline(1, Outcome::Http5xx, status, false), false, &Slo::default());
    }
    absorb(view, &mut recorder);
}

fn absorb(view: &mut View, recorder: &mut Recorder) {
    let mut ledger = Ledger::new(1);
    ledger.absorb(&recorder.take());
    view.snapshot = ledger.snapshot(TAKEN);
}

/// Gives the loads names in which every format has something to escape.
pub(crate) fn odd_names(view: &mut View) -> BTreeSet<[String; 3]> {
    for (at, load) in view.loads.iter_mut().enumerate() {
        load.name = format!("a\"b\\c\nd{at}");
        load.target = "<b>\"模型\" \\ &amp;".to_owned();
        load.model = "{le=\"1\"} # EOF\n\\n\u{0}\r\t é".to_owned();
    }
    view.loads.iter().map(|load| [load.name.clone(), load.target.clone(), load.model.clone()]).collect()
}
