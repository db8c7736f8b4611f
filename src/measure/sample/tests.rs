//! Every quantity from stamps whose values are worked out by hand.

use super::*;
use crate::clock::{self, Instant};
use crate::domain::arrival::Arrival;
use crate::domain::timeline::Usage;

/// Planned at 0, sent at 10 ms after 4 ms of set-up, one event per given (ms, tokens), closed at 1000 ms.
fn timeline(outcome: Outcome, events: &[(u64, Option<u32>)], n: Option<u32>) -> Timeline {
    let planned_at = clock::now();
    let at = |ms: u64| planned_at + Duration::from_millis(ms);
    let tokens: Vec<_> = events.iter().map(|(ms, tokens)| TokenEvent { at: at(*ms), tokens: *tokens }).collect();
    let answer = Answer {
        first_choices_at: Some(at(20)),
        first_answer_at: tokens.last().map(|event| event.at),
        closed_at: Some(at(1000)),
        usage: Some(Usage { completion_tokens: n, ..Usage::default() }),
        tokens,
        ..Answer::default()
    };
    Timeline {
        arrival: Arrival { index: 0, planned_at },
        request_id: String::new(),
        outcome,
        opened: None,
        setup: Duration::from_millis(4),
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

fn ms(duration: Option<Duration>) -> Option<u128> {
    duration.map(|duration| duration.as_millis())
}

const EVENTS: [(u64, Option<u32>); 3] = [(110, None), (210, None), (410, None)];

#[test]
fn every_formula_holds() {
    let s = sample(&timeline(Outcome::Ok, &EVENTS, Some(11)));
    assert_eq!((ms(s.ttft), ms(s.e2el), ms(s.tpot)), (Some(100), Some(400), Some(30)));
    assert_eq!((ms(s.corrected_ttft), ms(s.corrected_e2el)), (Some(110), Some(410)));
    assert_eq!((ms(s.ttfc), ms(s.ttfo), ms(s.stream_close)), (Some(10), Some(400), Some(590)));
    assert_eq!((ms(s.schedule_lag), s.output_tokens), (Some(6), Some(11)));
    assert!((s.tokens_per_chunk.unwrap() - 11.0 / 3.0).abs() < 1e-12);
}

#[test]
fn a_short_output_has_every_latency_but_its_end() {
    let s = sample(&timeline(Outcome::ShortOutput, &EVENTS, Some(11)));
    assert_eq!((ms(s.ttft), ms(s.tpot), s.e2el, s.corrected_e2el), (Some(100), Some(30), None, None));
}

#[test]
fn a_failed_request_has_no_latency_but_our_own_lateness() {
    for outcome in Outcome::ALL.into_iter().filter(|outcome| !outcome.is_answered()) {
        let s = sample(&timeline(outcome, &EVENTS, Some(11)));
        let latencies = [s.ttft, s.tpot, s.e2el, s.ttfo, s.ttfc, s.corrected_ttft, s.corrected_e2el, s.stream_close];
        assert_eq!(latencies, [None; 8], "{outcome}");
        assert_eq!((ms(s.schedule_lag), s.tokens_per_chunk), (Some(6), None), "{outcome}");
    }
}

#[test]
fn tpot_is_absent_without_a_count_or_an_interval() {
    for (events, n, expected) in [
        (&EVENTS[..], None, None),
        (&EVENTS, Some(1), None),
        (&EVENTS, Some(0), None),
        (&EVENTS, Some(2), Some(300)),
        (&EVENTS[..1], Some(1), None),
        (&EVENTS[..1], Some(4), None),
        (&[(110, None), (110, None)], Some(4), None),
        (&[], Some(4), None),
    ] {
        assert_eq!(ms(sample(&timeline(Outcome::Ok, events, n)).tpot), expected, "{} events, n {n:?}", events.len());
    }
}

#[test]
fn n1_is_what_the_server_said_of_the_first_event() {
    let counted = timeline(Outcome::Ok, &[(110, Some(5)), (410, Some(6))], Some(11));
    assert_eq!((first_event_tokens(&counted.answer), ms(sample(&counted).tpot)), (Some(5), Some(50)));
}

#[test]
fn hidden_reasoning_belongs_to_the_first_event_once() {
    for (first, shown, n1) in [(None, false, 5), (None, true, 1), (Some(5), false, 5)] {
        let mut hidden = timeline(Outcome::Ok, &[(110, first), (410, first)], Some(11));
        hidden.answer.usage =
            Some(Usage { completion_tokens: Some(11), reasoning_tokens: Some(4), ..Usage::default() });
        hidden.answer.reasoning_shown = shown;
        assert_eq!(first_event_tokens(&hidden.answer), Some(n1), "first {first:?}, shown {shown}");
    }
}

#[test]
fn itl_is_per_token_where_counts_are_known_and_per_chunk_elsewhere() {
    let pairs = |events: &[(u64, Option<u32>)]| {
        let answer = timeline(Outcome::Ok, events, Some(9)).answer;
        let pairs: Vec<_> = inter_token_latencies(&answer).into_iter().map(|(d, n)| (d.as_millis(), n)).collect();
        (itl_basis(&answer), pairs)
    };
    assert_eq!(pairs(&[(0, Some(1)), (60, Some(3)), (70, Some(1))]), (ItlBasis::Token, vec![(20, 3), (10, 1)]));
    assert_eq!(pairs(&[(0, Some(1)), (60, None), (70, Some(1))]), (ItlBasis::Chunk, vec![(60, 1), (10, 1)]));
    // The time of an event without a token of its own goes to the next.
    assert_eq!(pairs(&[(0, Some(1)), (60, Some(0)), (80, Some(2))]), (ItlBasis::Token, vec![(40, 2)]));
    assert_eq!(pairs(&[(0, Some(1))]), (ItlBasis::Token, vec![]));
    assert_eq!(pairs(&[]).1, vec![]);
}

#[test]
fn icl_is_every_gap() {
    let answer = timeline(Outcome::Ok, &EVENTS, None).answer;
    let gaps: Vec<_> = inter_chunk_latencies(&answer).map(|gap| gap.as_millis()).collect();
    assert_eq!(gaps, [100, 200]);
}

#[test]
fn stamps_that_run_backwards_give_zero_and_no_panic() {
    let mut odd = timeline(Outcome::Ok, &EVENTS, Some(11));
    odd.sent_at = odd.sent_at.map(|at| at + Duration::from_secs(9));
    assert_eq!(sample(&odd).ttft, Some(Duration::ZERO));
    let _: Instant = odd.ended_at;
}
