//! What enters which count, by hand; and the law of conservation after random histories.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::clock::{self, Instant};
use crate::domain::arrival::Arrival;
use crate::domain::timeline::{ConnectPhases, TokenEvent, Usage};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Planned at 0, sent at 10 ms after 4 ms of set-up, one event per given (ms, tokens), ended at 1000 ms.
fn timeline(outcome: Outcome, events: &[(u64, Option<u32>)]) -> Timeline {
    let planned_at = clock::now();
    let at = |n: u64| planned_at + ms(n);
    let tokens: Vec<_> = events.iter().map(|(at_ms, tokens)| TokenEvent { at: at(*at_ms), tokens: *tokens }).collect();
    let usage =
        Usage { completion_tokens: Some(11), prompt_tokens: Some(256), cached_tokens: Some(16), ..Usage::default() };
    let answer = Answer {
        first_answer_at: tokens.last().map(|event| event.at),
        closed_at: Some(at(1000)),
        usage: Some(usage),
        tokens,
        ..Answer::default()
    };
    Timeline {
        arrival: Arrival { index: 0, planned_at },
        request_id: String::new(),
        outcome,
        opened: None,
        setup: ms(4),
        sent_at: Some(at(10)),
        headers_at: Some(at(15)),
        status: Some(200),
        answer,
        ended_at: at(1000),
        resent: false,
        compressed: false,
        retry_after: None,
        detail: None,
    }
}

const CHUNKS: [(u64, Option<u32>); 3] = [(110, None), (210, None), (410, None)];
const TOKENS: [(u64, Option<u32>); 3] = [(110, Some(1)), (210, Some(2)), (410, Some(8))];

fn recorded(timelines: &[Timeline]) -> LoadDelta {
    let mut recorder = Recorder::new(1);
    for timeline in timelines {
        recorder.planned(0, 1);
        recorder.ended(0, timeline, false, &Slo::default());
    }
    recorder.take().loads.remove(0)
}

fn pairs(delta: &LoadDelta, metric: Metric) -> Vec<(u64, u64)> {
    let millis = |duration: Duration| u64::try_from((duration + ms(1) / 2).as_millis()).unwrap();
    delta.tally.counts(metric).iter().map(|(bucket, n)| (millis(bucket.middle()), n)).collect()
}

fn counts(delta: &LoadDelta, quantities: &[Quantity]) -> Vec<u64> {
    quantities.iter().map(|quantity| delta.totals.histogram(*quantity).count()).collect()
}

const LATENCIES: [Quantity; 10] = [
    Quantity::Ttft,
    Quantity::Tpot,
    Quantity::ItlToken,
    Quantity::ItlChunk,
    Quantity::Icl,
    Quantity::E2el,
    Quantity::Ttfo,
    Quantity::CorrectedTtft,
    Quantity::CorrectedE2el,
    Quantity::StreamClose,
];

#[test]
fn an_answered_request_enters_every_latency_it_has() {
    let delta = recorded(&[timeline(Outcome::Ok, &CHUNKS)]);
    assert_eq!(counts(&delta, &LATENCIES), [1, 1, 0, 2, 2, 1, 1, 1, 1, 1]);
    let sum = |quantity| delta.totals.histogram(quantity).sum();
    let near = |quantity, seconds: f64| (sum(quantity) - seconds).abs() < 1e-9;
    assert!(near(Quantity::Ttft, 0.1) && near(Quantity::E2el, 0.4) && near(Quantity::Tpot, 0.03));
    assert!(near(Quantity::CorrectedTtft, 0.11) && near(Quantity::ScheduleLag, 0.006));
    assert!(near(Quantity::ItlChunk, 0.3) && near(Quantity::Icl, 0.3) && near(Quantity::StreamClose, 0.59));
    assert!(near(Quantity::PromptTokens, 256.0) && near(Quantity::GenerationTokens, 11.0));
    assert!(near(Quantity::TokensPerChunk, 11.0 / 3.0));
    assert_eq!(pairs(&delta, Metric::Ttft), [(100, 1)]);
    assert_eq!(pairs(&delta, Metric::Icl), [(100, 1), (200, 1)]);
    assert_eq!(pairs(&delta, Metric::LargestGap), [(200, 1)]);
    assert_eq!(pairs(&delta, Metric::Itl), [], "no ITL on the basis of chunks: it is the ICL");
    let totals = &delta.totals;
    assert_eq!((totals.prompt_tokens, totals.generation_tokens, totals.cached_prompt_tokens), (256, 11, 16));
    assert_eq!((totals.goodput_requests, totals.usage_missing, totals.planned()), (1, 0, 1));
}

#[test]
fn an_itl_with_counts_is_recorded_once_per_token() {
    let delta = recorded(&[timeline(Outcome::Ok, &TOKENS)]);
    assert_eq!(counts(&delta, &[Quantity::ItlToken, Quantity::ItlChunk, Quantity::Icl]), [10, 0, 2]);
    assert_eq!(pairs(&delta, Metric::Itl), [(25, 8), (50, 2)]);
    assert!((delta.totals.histogram(Quantity::ItlToken).sum() - 0.3).abs() < 1e-9);
}

#[test]
fn a_short_output_enters_all_but_the_end_to_end_latencies() {
    let delta = recorded(&[timeline(Outcome::ShortOutput, &CHUNKS)]);
    assert_eq!(counts(&delta, &LATENCIES), [1, 1, 0, 2, 2, 0, 1, 1, 0, 1]);
    assert_eq!(delta.totals.goodput_requests, 0);
}

#[test]
fn a_failed_request_enters_no_latency_and_no_token_counter() {
    for outcome in Outcome::ALL.into_iter().filter(|outcome| !outcome.is_answered()) {
        let delta = recorded(&[timeline(outcome, &CHUNKS)]);
        assert_eq!(counts(&delta, &LATENCIES), [0; 10], "{outcome}");
        assert!(Metric::ALL.iter().all(|metric| delta.tally.counts(*metric).total() == 0), "{outcome}");
        assert_eq!(delta.totals.histogram(Quantity::ScheduleLag).count(), 1, "our own lateness counts always");
        assert_eq!((delta.totals.generation_tokens, delta.totals.prompt_tokens), (0, 0));
        assert_eq!((delta.totals.outcome(outcome), delta.totals.goodput_requests), (1, 0));
        assert!(delta.totals.is_conserved());
    }
}

/// For each metric whether a request is counted above its top bucket.
fn censored(delta: &LoadDelta) -> Vec<Metric> {
    Metric::ALL.into_iter().filter(|metric| delta.tally.censored_high(*metric) > 0).collect()
}

#[test]
fn only_what_was_too_slow_is_censored_and_only_where_it_was() {
    let slow = [Metric::Ttft, Metric::E2el];
    let stalled = [Metric::Tpot, Metric::E2el, Metric::LargestGap];
    for outcome in Outcome::ALL {
        let before = censored(&recorded(&[timeline(outcome, &[])]));
        let after = censored(&recorded(&[timeline(outcome, &CHUNKS)]));
        let expected: [&[Metric]; 2] = if outcome == Outcome::TimeoutTotal {
            [&slow, &stalled]
        } else if outcome == Outcome::TimeoutFirstToken {
            [&slow, &slow]
        } else if outcome == Outcome::TimeoutIdle {
            [&stalled, &stalled]
        } else {
            [&[], &[]]
        };
        assert_eq!([&before[..], &after[..]], expected, "{outcome}");
    }
    for reason in ShedReason::ALL {
        let mut recorder = Recorder::new(1);
        recorder.planned(0, 1);
        recorder.shed(0, reason, 1);
        let delta = recorder.take().loads.remove(0);
        let expected: &[Metric] = if reason == ShedReason::InflightCap { &slow } else { &[] };
        assert_eq!(censored(&delta), expected, "{reason}");
        assert_eq!((delta.totals.shed(reason), delta.totals.in_flight()), (1, 0));
    }
}

#[test]
fn a_warm_up_counts_and_enters_nothing() {
    let mut recorder = Recorder::new(1);
    for outcome in [Outcome::Ok, Outcome::TimeoutIdle] {
        recorder.planned(0, 1);
        let opened = Some(ConnectPhases { tcp: Some(ms(1)), ..ConnectPhases::default() });
        recorder.ended(0, &Timeline { opened, ..timeline(outcome, &TOKENS) }, true, &Slo::default());
    }
    let delta = recorder.take().loads.remove(0);
    let totals = &delta.totals;
    assert_eq!((totals.planned(), totals.outcome(Outcome::Ok), totals.warmup_requests), (2, 1, 2));
    assert!(totals.histograms.iter().all(|histogram| histogram.count() == 0));
    assert_eq!(delta.tally, Tally::default());
    assert_eq!((totals.generation_tokens, totals.goodput_requests, totals.connections_opened), (0, 0, 2));
    assert_eq!(totals.responses.codes().collect::<Vec<_>>(), [(200, 2)]);
}

#[test]
fn facts_of_the_transport_are_counted_whatever_the_outcome() {
    let phases = ConnectPhases { dns: Some(ms(2)), tcp: Some(ms(3)), tls: None };
    let delta = recorded(&[
        Timeline { opened: Some(phases), status: Some(503), ..timeline(Outcome::Http5xx, &[]) },
        Timeline { resent: true, compressed: true, ..timeline(Outcome::Ok, &CHUNKS) },
        Timeline { status: None, sent_at: None, ..timeline(Outcome::Dns, &[]) },
    ]);
    let totals = &delta.totals;
    assert_eq!(counts(&delta, &[Quantity::ConnectDns, Quantity::ConnectTcp, Quantity::ConnectTls]), [1, 1, 0]);
    assert_eq!((totals.connections_opened, totals.stale_connection_resends, totals.compressed_responses), (1, 1, 1));
    assert_eq!(totals.responses.codes().collect::<Vec<_>>(), [(200, 1), (503, 1)]);
    assert_eq!(totals.histogram(Quantity::ScheduleLag).count(), 2, "what was never sent has no lag");
}

#[test]
fn an_answer_without_usage_is_counted_and_has_no_tpot() {
    let mut without = timeline(Outcome::Ok, &CHUNKS);
    without.answer.usage = None;
    let delta = recorded(&[without]);
    assert_eq!(delta.totals.usage_missing, 1);
    assert_eq!(counts(&delta, &[Quantity::Tpot, Quantity::GenerationTokens, Quantity::Ttft]), [0, 0, 1]);
}

#[test]
fn goodput_is_counted_against_the_objectives() {
    let mut recorder = Recorder::new(1);
    for limit in [99, 100, 101] {
        recorder.planned(0, 1);
        let slo = Slo { ttft: Some(ms(limit)), ..Slo::default() };
        recorder.ended(0, &timeline(Outcome::Ok, &CHUNKS), false, &slo);
    }
    assert_eq!(recorder.take().loads[0].totals.goodput_requests, 2);
}

#[test]
fn a_load_that_a_reload_added_makes_room_for_itself() {
    let mut recorder = Recorder::new(0);
    recorder.planned(2, 1);
    let delta = recorder.take();
    assert_eq!(delta.loads().iter().map(|load| load.totals.planned()).collect::<Vec<_>>(), [0, 0, 1]);
    let mut merged = Delta::default();
    merged.merge(&delta);
    assert_eq!(merged.loads()[2].totals.in_flight(), 1);
}

#[test]
fn what_was_taken_is_not_taken_again() {
    let mut recorder = Recorder::new(1);
    recorder.planned(0, 1);
    recorder.ended(0, &timeline(Outcome::Ok, &TOKENS), false, &Slo::default());
    drop(recorder.take());
    recorder.planned(0, 1);
    let first = recorder.take();
    assert_eq!((first.loads[0].totals.planned(), first.loads[0].totals.in_flight()), (1, 1));
    let second = recorder.take();
    let totals = &second.loads[0].totals;
    assert_eq!((totals.planned(), totals.responses.total(), totals.last_success_at), (0, 0, None));
    assert!(totals.histograms.iter().all(|histogram| histogram.count() == 0 && histogram.buckets().count() == 0));
    assert_eq!(second.loads[0].tally, Tally::default());
    assert_eq!(second.loads[0].notables.slowest().count(), 0);
}

#[test]
fn notable_requests_are_kept_with_the_quantities_of_semantics() {
    let mut recorder = Recorder::new(1);
    let [ok, short, failed] = [Outcome::Ok, Outcome::ShortOutput, Outcome::Http5xx].map(|o| timeline(o, &CHUNKS));
    for (timeline, warmup) in [(&ok, false), (&ok, true), (&short, false), (&failed, false), (&failed, true)] {
        recorder.planned(0, 1);
        recorder.ended(0, timeline, warmup, &Slo::default());
    }
    let delta = recorder.take();
    let mut merged = Delta::default();
    merged.merge(&delta);
    for notables in [&delta.loads[0].notables, &merged.loads[0].notables] {
        assert_eq!(notables.slowest().map(|slow| slow.e2el).collect::<Vec<_>>(), [Some(ms(400))]);
        let failed: Vec<_> = notables.failed().map(|failed| (failed.outcome, failed.warmup)).collect();
        assert_eq!(failed.len(), 2);
        assert!(failed.contains(&(Outcome::Http5xx, false)) && failed.contains(&(Outcome::Http5xx, true)));
    }
}

#[test]
fn a_delta_can_go_through_a_channel() {
    fn is_send<T: Send + 'static>() {}
    is_send::<Delta>();
}

/// A history of random events over several recorders and loads.
struct History {
    rng: ChaCha8Rng,
    recorders: Vec<Recorder>,
    /// Per recorder and load, what is in flight.
    in_flight: Vec<[u64; LOADS]>,
    /// Everything again, in one recorder that is never taken from.
    whole: Recorder,
}

const LOADS: usize = 3;

impl History {
    fn step(&mut self) {
        let (worker, load) = (self.rng.random_range(0..self.recorders.len()), self.rng.random_range(0..LOADS));
        let in_flight = &mut self.in_flight[worker][load];
        let both = [&mut self.recorders[worker], &mut self.whole];
        if *in_flight == 0 || self.rng.random_bool(0.5) {
            *in_flight += 1;
            both.into_iter().for_each(|recorder| recorder.planned(load, 1));
        } else if self.rng.random_bool(0.2) {
            *in_flight -= 1;
            let reason = ShedReason::ALL[self.rng.random_range(0..ShedReason::ALL.len())];
            both.into_iter().for_each(|recorder| recorder.shed(load, reason, 1));
        } else {
            *in_flight -= 1;
            let outcome = Outcome::ALL[self.rng.random_range(0..Outcome::ALL.len())];
            let mut at = 20;
            let mut event = |_| {
                at += self.rng.random_range(0..300);
                (at, self.rng.random_bool(0.9).then(|| self.rng.random_range(0..4)))
            };
            let events: Vec<_> = (0..8).map(&mut event).collect();
            let timeline = timeline(outcome, &events[..self.rng.random_range(0..8)]);
            let warmup = self.rng.random_bool(0.1);
            both.into_iter().for_each(|recorder| recorder.ended(load, &timeline, warmup, &Slo::default()));
        }
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "a failing test shows its seed")]
fn the_law_of_conservation_holds_after_any_history() {
    for seed in 31..36 {
        println!("seed {seed}");
        let recorders: Vec<_> = (0..4).map(|_| Recorder::new(LOADS)).collect();
        let mut history = History {
            rng: ChaCha8Rng::seed_from_u64(seed),
            in_flight: vec![[0; LOADS]; recorders.len()],
            recorders,
            whole: Recorder::new(LOADS),
        };
        let mut merged = Recorder::new(LOADS).take();
        for step in 0..2000 {
            history.step();
            if history.rng.random_bool(0.02) {
                let worker = history.rng.random_range(0..history.recorders.len());
                let delta = history.recorders[worker].take();
                merged.merge(&delta);
                assert!(merged.loads.iter().all(|load| load.totals.is_conserved()), "seed {seed}, step {step}");
            }
        }
        history.recorders.iter_mut().for_each(|recorder| merged.merge(&recorder.take()));
        let whole = history.whole.take();
        for (load, (ours, theirs)) in merged.loads.iter().zip(&whole.loads).enumerate() {
            let in_flight: u64 = history.in_flight.iter().map(|loads| loads[load]).sum();
            assert_eq!(u64::try_from(ours.totals.in_flight()).unwrap(), in_flight);
            assert!(ours.totals.is_conserved() && in_flight > 0);
            assert_eq!(ours.tally, theirs.tally);
            assert_eq!(ours.totals.outcomes, theirs.totals.outcomes);
            assert_eq!(ours.totals.responses, theirs.totals.responses);
            for (ours, theirs) in ours.totals.histograms.iter().zip(&theirs.totals.histograms) {
                assert!(ours.buckets().eq(theirs.buckets()) && ours.count() == theirs.count());
            }
        }
    }
}

#[test]
fn the_last_success_is_the_latest_of_all_workers() {
    let (early, late) = (timeline(Outcome::Ok, &CHUNKS), timeline(Outcome::Ok, &CHUNKS));
    let failed = Timeline { ended_at: late.ended_at + ms(5), ..timeline(Outcome::Empty, &[]) };
    let mut merged = Totals::default();
    for timelines in [&[late.clone(), failed][..], &[early]] {
        merged.merge(&recorded(timelines).totals);
    }
    let last: Option<Instant> = merged.last_success_at;
    assert_eq!(last, Some(late.ended_at));
}
