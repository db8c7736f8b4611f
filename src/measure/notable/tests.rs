//! The lists against sorting everything, whatever was merged into what.

use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::clock;
use crate::domain::arrival::Arrival;
use crate::domain::timeline::{Answer, TokenEvent, Usage};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Sent at once, first token half way, last token and end after so many milliseconds.
fn timeline(start: Instant, index: u64, outcome: Outcome, took: u64) -> Timeline {
    let token = |at: Duration| TokenEvent { at: start + at, tokens: None };
    let usage = Usage { completion_tokens: Some(7), ..Usage::default() };
    Timeline {
        arrival: Arrival { index, planned_at: start },
        request_id: format!("canary-{index}-00ff"),
        outcome,
        opened: None,
        setup: Duration::ZERO,
        sent_at: Some(start + ms(1)),
        headers_at: Some(start + ms(2)),
        status: Some(200),
        answer: Answer { tokens: vec![token(ms(took) / 2), token(ms(took))], usage: Some(usage), ..Answer::default() },
        ended_at: start + ms(took),
        resent: false,
        compressed: false,
        retry_after: None,
        detail: (!outcome.is_answered()).then(|| format!("{index} went wrong")),
    }
}

/// A finished request: what `Notables::ended` is told of it.
type Ended = (Timeline, Option<Duration>, bool);

fn of(ended: &[Ended]) -> Notables {
    let mut notables = Notables::default();
    ended.iter().for_each(|(timeline, e2el, warmup)| notables.ended(timeline, *e2el, *warmup));
    notables
}

fn indices<'a>(requests: impl IntoIterator<Item = &'a Notable>) -> Vec<u64> {
    requests.into_iter().map(|request| request.index).collect()
}

fn lists(notables: &Notables) -> [Vec<u64>; 2] {
    [indices(notables.slowest()), indices(notables.failed())]
}

/// The same by sorting everything.
fn oracle(ended: &[Ended]) -> [Vec<u64>; 2] {
    let (mut slow, mut failed) = (Vec::new(), Vec::new());
    for (timeline, e2el, warmup) in ended {
        let index = timeline.arrival.index;
        if !timeline.outcome.is_answered() {
            failed.push((Reverse(timeline.ended_at), Reverse(index)));
        } else if let (Some(e2el), false) = (e2el, warmup) {
            slow.push((Reverse(*e2el), index));
        }
    }
    slow.sort();
    failed.sort();
    let slow = slow.into_iter().map(|(_, index)| index).take(50).collect();
    [slow, failed.into_iter().map(|(_, Reverse(index))| index).take(50).collect()]
}

/// So many requests, in an order of their own, with many ties.
fn ended(rng: &mut ChaCha8Rng, start: Instant, n: u64) -> Vec<Ended> {
    let mut some: Vec<_> = (0..n)
        .map(|index| {
            let outcome = [Outcome::Ok, Outcome::ShortOutput, Outcome::Http5xx][rng.random_range(0..3)];
            let took = rng.random_range(10..90);
            let e2el = (outcome == Outcome::Ok).then(|| ms(took));
            (timeline(start, index, outcome, took), e2el, rng.random_bool(0.1))
        })
        .collect();
    some.shuffle(rng);
    some
}

#[test]
#[expect(clippy::print_stdout, reason = "a failing test shows its seed")]
fn merging_in_any_order_and_grouping_is_like_sorting_everything() {
    let start = clock::now();
    for seed in 71..121 {
        println!("seed {seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let n = rng.random_range(0..600);
        let ended = ended(&mut rng, start, n);
        let expected = oracle(&ended);
        assert_eq!(lists(&of(&ended)), expected);

        let mut parts: Vec<_> = ended.chunks(rng.random_range(1..80)).map(of).collect();
        parts.shuffle(&mut rng);
        while parts.len() > 1 {
            // Any two, and either into the other.
            let part = parts.swap_remove(rng.random_range(0..parts.len()));
            let other = rng.random_range(0..parts.len());
            if rng.random_bool(0.5) {
                parts[other].merge(&part);
            } else {
                let (mut part, other) = (part, &mut parts[other]);
                part.merge(other);
                *other = part;
            }
        }
        assert_eq!(parts.first().map(lists).unwrap_or_default(), expected);
    }
}

#[test]
fn a_request_that_has_no_place_is_never_made_into_an_entry() {
    let start = clock::now();
    let entry = |index| Arc::new(Notable::of(&timeline(start, index, Outcome::Ok, 9), None, false));
    let mut top = Top::default();
    (0..50).for_each(|index| top.offer((ms(10 + index), Reverse(index)), || entry(index)));
    for key in [(ms(9), Reverse(0)), (ms(10), Reverse(1)), (ms(10), Reverse(0))] {
        top.offer(key, || unreachable!("{key:?} has no place"));
    }
    let mut was_made = false;
    top.offer((ms(10) + Duration::from_nanos(1), Reverse(99)), || {
        was_made = true;
        entry(99)
    });
    assert!(was_made && top.iter().count() == KEPT && !top.iter().any(|entry| entry.index == 0));
}

#[test]
fn an_entry_has_everything_that_is_shown() {
    let start = clock::now();
    let failed = Timeline { status: Some(503), ..timeline(start, 4, Outcome::Http5xx, 80) };
    let notables = of(&[(failed, None, false), (timeline(start, 5, Outcome::Ok, 60), Some(ms(59)), false)]);
    let expected = Notable {
        index: 4,
        planned_at: start,
        request_id: "canary-4-00ff".into(),
        sent_at: Some(start + ms(1)),
        headers_at: Some(start + ms(2)),
        first_at: Some(start + ms(40)),
        last_at: Some(start + ms(80)),
        ended_at: start + ms(80),
        e2el: None,
        output_tokens: Some(7),
        outcome: Outcome::Http5xx,
        status: Some(503),
        detail: Some("4 went wrong".into()),
        warmup: false,
    };
    assert_eq!(notables.failed().collect::<Vec<_>>(), [&expected]);
    let slow: Vec<_> = notables.slowest().map(|slow| (slow.index, slow.e2el, slow.outcome, slow.ended_at)).collect();
    assert_eq!(slow, [(5, Some(ms(59)), Outcome::Ok, start + ms(60))]);
}

#[test]
fn of_warm_ups_only_the_failed_are_kept_and_they_say_so() {
    let start = clock::now();
    let notables = of(&[
        (timeline(start, 1, Outcome::Ok, 900), Some(ms(900)), true),
        (timeline(start, 2, Outcome::Empty, 10), None, true),
        (timeline(start, 3, Outcome::ShortOutput, 900), None, false),
    ]);
    assert_eq!(lists(&notables), [vec![], vec![2]]);
    assert!(notables.failed().all(|failed| failed.warmup));
}

#[test]
fn both_hours_are_shown_together_and_the_one_before_is_forgotten_in_time() {
    let start = clock::now();
    let hour = |first: u64, took: u64| {
        let ok = |index| (timeline(start, index, Outcome::Ok, took), Some(ms(took)), false);
        let failed = |index| (timeline(start + ms(index), index, Outcome::Reset, 5), None, false);
        of(&(first..first + 30).flat_map(|index| [ok(index), failed(100 + index)]).collect::<Vec<_>>())
    };
    let mut requests = Arc::new(Requests::default());
    Requests::turn_hour(&mut requests);
    Requests::absorb(&mut requests, &hour(0, 500));
    Requests::turn_hour(&mut requests);
    assert_eq!(indices(requests.slowest()), (0..30).collect::<Vec<_>>(), "a fresh hour is not empty");
    Requests::absorb(&mut requests, &hour(30, 400));
    assert_eq!(indices(requests.slowest()), (0..50).collect::<Vec<_>>());
    assert_eq!(indices(requests.failed()), (110..160).rev().collect::<Vec<_>>());
    assert_eq!(indices(requests.running().slowest()), (30..60).collect::<Vec<_>>());
    assert_eq!(indices(requests.previous().failed()), (100..130).rev().collect::<Vec<_>>());
    Requests::turn_hour(&mut requests);
    assert_eq!(indices(requests.slowest()), (30..60).collect::<Vec<_>>());
    Requests::turn_hour(&mut requests);
    assert!(requests.slowest().is_empty() && requests.failed().is_empty());
}

#[test]
fn what_a_reader_holds_stays_and_is_copied_only_for_a_change() {
    let start = clock::now();
    let slow = |index, took| of(&[(timeline(start, index, Outcome::Ok, took), Some(ms(took)), false)]);
    let mut requests = Arc::new(Requests::default());
    (0..50).for_each(|index| Requests::absorb(&mut requests, &slow(index, 100)));
    let held = Arc::clone(&requests);
    Requests::absorb(&mut requests, &slow(50, 100));
    Requests::absorb(&mut requests, &Notables::default());
    assert!(Arc::ptr_eq(&held, &requests), "nothing that counts was added");
    Requests::absorb(&mut requests, &slow(51, 101));
    assert!(!Arc::ptr_eq(&held, &requests));
    assert_eq!(indices(held.slowest()), (0..50).collect::<Vec<_>>());
    assert_eq!(indices(requests.slowest()).first(), Some(&51));
    let entry = |requests: &Arc<Requests>, at: usize| std::ptr::from_ref(requests.slowest()[at]);
    assert_eq!(entry(&held, 0), entry(&requests, 1), "entries themselves are shared");

    let mut idle = Arc::new(Requests::default());
    let held = Arc::clone(&idle);
    Requests::turn_hour(&mut idle);
    assert!(Arc::ptr_eq(&held, &idle));
}

#[test]
fn no_text_makes_an_entry_larger_than_its_bound() {
    let start = clock::now();
    let hostile = |index| Timeline {
        request_id: "\u{e9}x".repeat(5000),
        detail: Some("\u{1f600}".repeat(5000)),
        ..timeline(start, index, Outcome::Parse, 10)
    };
    let many: Vec<_> = (0..1000).map(|index| (hostile(index), None, false)).collect();
    let mut notables = of(&many);
    notables.merge(&of(&many));
    notables.ended(&timeline(start, 0, Outcome::Ok, 10), Some(ms(10)), false);
    assert_eq!((notables.failed.0.len(), notables.failed.0.capacity()), (KEPT, KEPT));
    assert_eq!(notables.slowest.0.capacity(), KEPT);
    for entry in notables.failed() {
        let texts = entry.request_id.len() + entry.detail.as_deref().unwrap_or_default().len();
        assert!((390..=400).contains(&texts), "{texts}");
        let (counts, place) = (16, size_of::<(Lateness, Arc<Notable>)>());
        assert!(size_of::<Notable>() + counts + place + texts <= MAX_BYTES);
    }
    const { assert!(4 * KEPT * MAX_BYTES <= 150_000, "the bound in the header") };
    const { assert!(size_of::<Lateness>() >= size_of::<Slowness>(), "the larger of the two counts") };
}
