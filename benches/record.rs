//! What recording costs, beside a bare `hdrhistogram` record of the same values.
//!
//! `tokens`: `Recorder::ended` of answers with 100 events, per token. Without counts from the server a token is three counts
//! (ICL in window and histogram, ITL in its histogram); with them (`true`) four, and the ITL is a division. `requests`: the
//! same with two events, which is what a request costs besides its tokens, nearly all of them being too fast to be kept as notable.
//! `requests_kept` keeps them all, `requests_failed` is what failures cost, which are always kept. `hdr_bare` is the least one could do with a gap.
//! `take` is what a worker pays once a second, `close` what the control side pays once a minute.
//!
//!     cargo bench --bench record

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::hint::black_box;
use std::time::Duration;

use divan::Bencher;
use divan::counter::ItemsCount;
use steadyload::clock::{self, Instant};
use steadyload::domain::arrival::Arrival;
use steadyload::domain::outcome::Outcome;
use steadyload::domain::slo::Slo;
use steadyload::domain::timeline::{Answer, Timeline, TokenEvent, Usage};
use steadyload::measure::histogram::Histogram;
use steadyload::measure::notable::KEPT;
use steadyload::measure::recorder::Recorder;
use steadyload::measure::window::{Length, MINUTE, Metric, Tally, Windows};

const TOKENS: u32 = 100;
const REQUESTS: usize = 100;

fn main() {
    divan::main();
}

/// Gaps that look like decoding: around 20 ms, no two alike.
fn gap(index: u32) -> Duration {
    Duration::from_nanos(15_000_000 + u64::from(index.wrapping_mul(2_654_435_761)) % 10_000_000)
}

fn timeline(planned_at: Instant, request: u32, events: u32, per_token: bool) -> Timeline {
    let mut at = planned_at + Duration::from_millis(200) + gap(request) * 5;
    let mut event = |index| {
        at += gap(request * TOKENS + index);
        TokenEvent { at, tokens: per_token.then_some(1) }
    };
    let tokens: Vec<_> = (0..events).map(&mut event).collect();
    let usage = Usage { completion_tokens: Some(events), prompt_tokens: Some(256), ..Usage::default() };
    Timeline {
        arrival: Arrival { index: request.into(), planned_at },
        request_id: format!("canary-{request}-0123456789abcdef"),
        outcome: Outcome::Ok,
        opened: None,
        setup: Duration::ZERO,
        sent_at: Some(planned_at + Duration::from_micros(40)),
        headers_at: None,
        status: Some(200),
        answer: Answer {
            first_answer_at: Some(at),
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

fn timelines(events: u32, per_token: bool) -> Vec<Timeline> {
    let now = clock::now();
    (0..REQUESTS).map(|request| timeline(now, u32::try_from(request).unwrap(), events, per_token)).collect()
}

fn record(recorder: &mut Recorder, timelines: &[Timeline]) {
    for timeline in timelines {
        recorder.planned(0, 1);
        recorder.ended(0, timeline, false, &Slo::default());
    }
}

#[divan::bench]
fn requests(bencher: Bencher<'_, '_>) {
    let (timelines, mut recorder) = (timelines(2, false), Recorder::new(1));
    bencher.counter(ItemsCount::new(REQUESTS)).bench_local(|| record(&mut recorder, black_box(&timelines)));
}

/// Half a list each second: there is always room.
#[divan::bench]
fn requests_kept(bencher: Bencher<'_, '_>) {
    let (timelines, mut recorder) = (timelines(2, false), Recorder::new(1));
    bencher.counter(ItemsCount::new(REQUESTS)).bench_local(|| {
        for half in black_box(&timelines).chunks(KEPT / 2) {
            record(&mut recorder, half);
            black_box(recorder.take());
        }
    });
}

#[divan::bench]
fn requests_failed(bencher: Bencher<'_, '_>) {
    let (mut timelines, mut recorder) = (timelines(0, false), Recorder::new(1));
    for timeline in &mut timelines {
        (timeline.outcome, timeline.detail) = (Outcome::Connect, Some("connection refused".into()));
        timeline.ended_at = timeline.arrival.planned_at;
    }
    bencher.counter(ItemsCount::new(REQUESTS)).bench_local(|| {
        // Later than those before, so that each has a place.
        timelines.iter_mut().for_each(|timeline| timeline.ended_at += Duration::from_millis(1));
        record(&mut recorder, black_box(&timelines));
    });
}

#[divan::bench(args = [false, true])]
fn tokens(bencher: Bencher<'_, '_>, per_token: bool) {
    let (timelines, mut recorder) = (timelines(TOKENS, per_token), Recorder::new(1));
    bencher
        .counter(ItemsCount::new(REQUESTS * TOKENS as usize))
        .bench_local(|| record(&mut recorder, black_box(&timelines)));
}

fn gaps() -> Vec<Duration> {
    (0..u32::try_from(REQUESTS).unwrap() * TOKENS).map(gap).collect()
}

#[divan::bench]
fn hdr_bare(bencher: Bencher<'_, '_>) {
    let gaps = gaps();
    let mut hdr = hdrhistogram::Histogram::<u32>::new_with_bounds(1, 600_000_000, 3).unwrap();
    bencher.counter(ItemsCount::new(gaps.len())).bench_local(|| {
        for gap in black_box(&gaps) {
            hdr.saturating_record(u64::try_from(gap.as_micros()).unwrap());
        }
    });
}

#[divan::bench]
fn hdr_pages(bencher: Bencher<'_, '_>) {
    let (gaps, mut counts) = (gaps(), steadyload::measure::hdr::Counts::default());
    bencher.counter(ItemsCount::new(gaps.len())).bench_local(|| {
        for gap in black_box(&gaps) {
            counts.record(*gap, 1);
        }
    });
}

#[divan::bench]
fn native(bencher: Bencher<'_, '_>) {
    let (gaps, mut histogram) = (gaps(), Histogram::default());
    bencher.counter(ItemsCount::new(gaps.len())).bench_local(|| {
        for gap in black_box(&gaps) {
            histogram.record(gap.as_secs_f64(), 1);
        }
    });
}

#[divan::bench]
fn take(bencher: Bencher<'_, '_>) {
    let (timelines, mut recorder) = (timelines(TOKENS, true), Recorder::new(1));
    bencher.bench_local(|| {
        recorder.planned(0, 1);
        recorder.ended(0, &timelines[0], false, &Slo::default());
        black_box(recorder.take())
    });
}

#[divan::bench]
fn close(bencher: Bencher<'_, '_>) {
    let (mut recorder, mut windows, mut minute) = (Recorder::new(1), Windows::default(), 0);
    record(&mut recorder, &timelines(TOKENS, true));
    let delta = recorder.take();
    bencher.bench_local(|| {
        windows.absorb(&delta.loads()[0].tally);
        minute += 60;
        windows.close(minute, MINUTE, false);
        windows.gauges()
    });
}

/// What the drift test does at its longest scale: 24 h of minutes of 600 requests, counted above the P99 and the P50.
#[divan::bench(args = [0.99, 0.5])]
fn above_in_a_day(bencher: Bencher<'_, '_>, p: f64) {
    let mut windows = Windows::default();
    for minute in 0..1440 {
        let mut tally = Tally::default();
        // Log-normal with s = 0.5 around 200 ms, near enough: the sum of four uniform variables.
        let uniform = |at: u32| f64::from(at.wrapping_mul(2_654_435_761)) / f64::from(u32::MAX);
        for at in (minute * 2400..).step_by(4).take(600) {
            let normal = ((0..4).map(|add| uniform(at + add)).sum::<f64>() - 2.0) * 3_f64.sqrt();
            tally.record(Metric::Ttft, Duration::from_secs_f64(0.2 * (0.5 * normal).exp()), 1);
        }
        windows.absorb(&tally);
        windows.close(u64::from(minute) * 60, MINUTE, false);
    }
    let counts = windows.counts(Length::Day, Metric::Ttft);
    let rank = if p > 0.9 { counts.total() / 100 * 99 } else { counts.total() / 2 };
    let bucket = counts.at_rank(rank).unwrap();
    bencher.bench_local(|| windows.minutes().map(|minute| minute.metric(Metric::Ttft).above(bucket)).sum::<u64>());
}
