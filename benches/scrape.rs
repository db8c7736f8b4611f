//! What a scrape costs, and the picture that it reads.
//!
//! `snapshot` is paid once a second by the control side. `text`, `open_metrics` and `protobuf` are one scrape in that form,
//! `text_gzip` and `protobuf_gzip` compressed as most scrapers ask for. Every load has had a thousand answers of a hundred
//! tokens, log-normal enough to fill the buckets that a real one fills, and a closed minute in its windows. The goal is
//! 10 ms with ten loads.
//!
//!     cargo bench --bench scrape

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use divan::Bencher;
use divan::counter::BytesCount;
use flate2::Compression;
use flate2::write::GzEncoder;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use steadyload::clock;
use steadyload::config::sections::{Pace, Rate};
use steadyload::domain::arrival::Arrival;
use steadyload::domain::outcome::Outcome;
use steadyload::domain::sample::ItlBasis;
use steadyload::domain::slo::Slo;
use steadyload::domain::timeline::{Answer, Timeline, TokenEvent, Usage};
use steadyload::export::metrics::{self, Format};
use steadyload::export::view::{ClientView, LoadView, Phase, ReloadView, View};
use steadyload::measure::recorder::Recorder;
use steadyload::measure::snapshot::Ledger;
use steadyload::measure::window::MINUTE;

const LOADS: [usize; 3] = [1, 10, 100];
const REQUESTS: u64 = 1000;
const TOKENS: u32 = 100;
const TAKEN: Duration = Duration::from_secs(1_800_000_000);

fn main() {
    divan::main();
}

/// About log-normal: the product of twelve factors around 1.
fn spread(rng: &mut ChaCha8Rng, median: f64) -> Duration {
    let factor: f64 = (0..12).map(|_| rng.random_range(0.8..1.25)).product();
    Duration::from_secs_f64(median * factor)
}

fn timeline(rng: &mut ChaCha8Rng, index: u64) -> Timeline {
    let planned_at = clock::now();
    let sent_at = planned_at + spread(rng, 0.000_05);
    let mut at = sent_at + spread(rng, 0.3);
    let mut tokens = Vec::new();
    for _ in 0..TOKENS {
        tokens.push(TokenEvent { at, tokens: Some(1) });
        at += spread(rng, 0.02);
    }
    let usage = Usage { completion_tokens: Some(TOKENS), prompt_tokens: Some(256), ..Usage::default() };
    Timeline {
        arrival: Arrival { index, planned_at },
        request_id: String::new(),
        outcome: Outcome::Ok,
        opened: None,
        setup: Duration::ZERO,
        sent_at: Some(sent_at),
        headers_at: None,
        status: Some(200),
        answer: Answer {
            first_answer_at: tokens.first().map(|event| event.at),
            closed_at: Some(at),
            usage: Some(usage),
            tokens,
            ..Answer::default()
        },
        ended_at: at,
        resent: false,
        compressed: false,
        retry_after: None,
        detail: None,
    }
}

fn ledger(loads: usize) -> Ledger {
    let (mut ledger, mut recorder) = (Ledger::new(loads), Recorder::new(loads));
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let timelines: Vec<_> = (0..REQUESTS).map(|index| timeline(&mut rng, index)).collect();
    for load in 0..loads {
        for timeline in &timelines {
            recorder.planned(load, 1);
            recorder.ended(load, timeline, false, &Slo::default());
        }
    }
    ledger.absorb(&recorder.take());
    for load in 0..loads {
        ledger.close(load, TAKEN.as_secs(), MINUTE, false);
    }
    ledger
}

fn view(loads: usize) -> Arc<View> {
    let load = |at: usize| LoadView {
        name: format!("canary-{at}"),
        target: "staging".to_owned(),
        model: "Qwen3.5-35B-A3B".to_owned(),
        pace: Some(Pace::Rate(Rate::of(3.5))),
        paused: None,
        not_kept: false,
        failing: Vec::new(),
        last_success_unix: Some(TAKEN.as_secs_f64()),
        itl_basis: ItlBasis::Token,
    };
    Arc::new(View {
        taken_at: clock::now(),
        snapshot: ledger(loads).snapshot(TAKEN),
        loads: (0..loads).map(load).collect(),
        phase: Phase::Running,
        client: ClientView::default(),
        reload: ReloadView::default(),
        state: None,
        dropped: Vec::new(),
        events: Vec::new().into(),
    })
}

#[divan::bench(args = LOADS)]
fn snapshot(bencher: Bencher<'_, '_>, loads: usize) {
    let mut ledger = ledger(loads);
    bencher.bench_local(move || ledger.snapshot(TAKEN));
}

fn plain(bencher: Bencher<'_, '_>, loads: usize, format: Format) {
    let view = view(loads);
    let scrape = || {
        let mut body = Vec::new();
        metrics::write(&view, false, format, &mut body).unwrap();
        body
    };
    bencher.counter(BytesCount::new(scrape().len())).bench_local(scrape);
}

fn zipped(bencher: Bencher<'_, '_>, loads: usize, format: Format) {
    let view = view(loads);
    let scrape = || {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        metrics::write(&view, false, format, &mut gzip).unwrap();
        gzip.finish().unwrap()
    };
    bencher.counter(BytesCount::new(scrape().len())).bench_local(scrape);
}

#[divan::bench(args = LOADS)]
fn text(bencher: Bencher<'_, '_>, loads: usize) {
    plain(bencher, loads, Format::Text);
}

#[divan::bench(args = LOADS)]
fn open_metrics(bencher: Bencher<'_, '_>, loads: usize) {
    plain(bencher, loads, Format::OpenMetrics);
}

#[divan::bench(args = LOADS)]
fn protobuf(bencher: Bencher<'_, '_>, loads: usize) {
    plain(bencher, loads, Format::Protobuf);
}

#[divan::bench(args = LOADS)]
fn text_gzip(bencher: Bencher<'_, '_>, loads: usize) {
    zipped(bencher, loads, Format::Text);
}

#[divan::bench(args = LOADS)]
fn open_metrics_gzip(bencher: Bencher<'_, '_>, loads: usize) {
    zipped(bencher, loads, Format::OpenMetrics);
}

#[divan::bench(args = LOADS)]
fn protobuf_gzip(bencher: Bencher<'_, '_>, loads: usize) {
    zipped(bencher, loads, Format::Protobuf);
}
