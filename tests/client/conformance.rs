//! Every recorded response of every real server, decoded in five ways: as received, cut in two at every byte, one byte at a
//! time, all at once, and with every LF made CRLF. What must be found was found before by `captures/expected.py` and by eye.

use std::ops::ControlFlow;
use std::time::Duration;

use steadyload::clock::{self, Instant};
use steadyload::domain::outcome::Outcome;
use steadyload::domain::sample::ItlBasis;
use steadyload::domain::timeline::Answer;
use steadyload::load::client::reader::{Ending, Reader};
use steadyload::load::client::sse::{Decoder, Item};
use steadyload::measure::sample::{first_event_tokens, itl_basis};

use crate::capture::{self, Body, Capture, Expected};

/// The zero of the recording, in our clock.
struct Zero(Instant);

impl Zero {
    fn at(&self, ns: u64) -> Instant {
        self.0 + Duration::from_nanos(ns)
    }

    fn ns(&self, at: Option<Instant>) -> Option<u64> {
        at.map(|at| u64::try_from((at - self.0).as_nanos()).unwrap())
    }
}

/// Reads of a body: bytes that arrived at one time.
type Reads = Vec<(Vec<u8>, u64)>;

fn as_received(body: &Body) -> Reads {
    let mut reads: Reads = Vec::new();
    for (byte, at) in &body.bytes {
        match reads.last_mut() {
            Some((bytes, last)) if last == at => bytes.push(*byte),
            _ => reads.push((vec![*byte], *at)),
        }
    }
    reads
}

fn one_byte_at_a_time(body: &Body) -> Reads {
    body.bytes.iter().map(|(byte, at)| (vec![*byte], *at)).collect()
}

fn all_at_once(body: &Body) -> Reads {
    vec![(body.bytes.iter().map(|(byte, _)| *byte).collect(), body.last_at)]
}

fn with_crlf(body: &Body) -> Reads {
    let crlf = body.bytes.iter().flat_map(|(byte, at)| {
        let cr = (*byte == b'\n').then_some((b'\r', *at));
        cr.into_iter().chain([(*byte, *at)])
    });
    as_received(&Body { bytes: crlf.collect(), ..Body::default() })
}

fn decode(body: &Body, reads: &Reads, expected: &Expected, zero: &Zero) -> (Answer, Outcome) {
    let mut reader = Reader::new(expected.api(), expected.fixed_length());
    let over = reads.iter().any(|(bytes, at)| reader.feed(bytes, zero.at(*at)).is_break());
    let ending = match (over, body.complete_at) {
        (true, _) => Ending::Enough,
        (false, Some(_)) => Ending::Complete,
        (false, None) => Ending::Cut,
    };
    let outcome = reader.finish(ending, zero.at(body.complete_at.unwrap_or(body.last_at)));
    (reader.into_parts().0, outcome)
}

/// What does not depend on when the bytes came.
fn check_content(way: &str, name: &str, answer: &Answer, outcome: Outcome, expected: &Expected) {
    assert_eq!(outcome.name(), expected.text("outcome"), "{name}, {way}");
    let usage = answer.usage.unwrap_or_default();
    for (field, found) in [
        ("n", answer.output_tokens()),
        ("n1", first_event_tokens(answer)),
        ("prompt_tokens", usage.prompt_tokens),
        ("cached_tokens", usage.cached_tokens),
        ("reasoning_tokens", usage.reasoning_tokens),
        ("token_events", u32::try_from(answer.tokens.len()).ok()),
    ] {
        assert_eq!(found.map(u64::from), expected.number(field), "{name}, {way}: {field}");
    }
    assert_eq!(answer.finish_reason.as_deref(), expected.word("finish_reason"), "{name}, {way}");
    let basis = (!answer.tokens.is_empty()).then(|| match itl_basis(answer) {
        ItlBasis::Token => "token",
        ItlBasis::Chunk => "chunk",
    });
    assert_eq!(basis, expected.word("basis"), "{name}, {way}");
    if let Some(counts) = expected.token_counts() {
        let found: Vec<_> = answer.tokens.iter().filter_map(|event| event.tokens).collect();
        assert_eq!(found, counts, "{name}, {way}");
    }
}

fn check_stamps(way: &str, name: &str, answer: &Answer, expected: &Expected, zero: &Zero) {
    for (field, found) in [
        ("first_choices_ns", answer.first_choices_at),
        ("first_ns", answer.first_at()),
        ("first_answer_ns", answer.first_answer_at),
        ("last_ns", answer.last_at()),
    ] {
        assert_eq!(zero.ns(found), expected.number(field), "{name}, {way}: {field}");
    }
    // Where the server went on after an error or was cut off, there is no end of the answer to stamp.
    if expected.flag("clean") && expected.text("ended") == "complete" && expected.text("outcome") != "in_band_error" {
        assert_eq!(zero.ns(answer.closed_at), expected.number("closed_ns"), "{name}, {way}: closed_ns");
    }
}

/// The captures whose body is read as an answer, with a 2xx; the others are judged by their status.
fn answers() -> impl Iterator<Item = (Capture, Expected, Body)> {
    capture::all().into_iter().filter_map(|(capture, expected)| {
        let body = capture.body();
        (200..300).contains(&body.status).then_some((capture, expected, body))
    })
}

#[test]
fn a_refusal_is_judged_by_its_status() {
    let mut refusals = 0;
    for (capture, expected) in capture::all() {
        let body = capture.body();
        assert_eq!(Some(u64::from(body.status)), expected.number("status"), "{}", capture.name);
        if let Some(outcome) = Outcome::of_status(body.status) {
            assert_eq!(outcome.name(), expected.text("outcome"), "{}", capture.name);
            refusals += 1;
        }
    }
    assert!(refusals > 40, "{refusals} refusals");
}

#[test]
fn every_answer_decodes_as_received_byte_by_byte_at_once_and_with_crlf() {
    let zero = Zero(clock::now());
    let mut decoded = 0;
    for (Capture { name, .. }, expected, body) in answers() {
        for (way, reads, stamped) in [
            ("as received", as_received(&body), true),
            ("one byte at a time", one_byte_at_a_time(&body), true),
            ("with CRLF", with_crlf(&body), true),
            ("all at once", all_at_once(&body), false),
        ] {
            let (answer, outcome) = decode(&body, &reads, &expected, &zero);
            check_content(way, &name, &answer, outcome, &expected);
            if stamped {
                check_stamps(way, &name, &answer, &expected, &zero);
            }
        }
        decoded += 1;
    }
    let tally = Expected::tally(capture::all().iter().map(|(_, expected)| expected));
    assert!(decoded > 130, "{decoded} answers, {tally:?}");
    for outcome in ["ok", "short_output", "truncated", "in_band_error", "bad_response", "empty", "http_429"] {
        assert!(tally.contains_key(outcome), "no capture ends as {outcome}: {tally:?}");
    }
}

/// An item that owns its bytes.
#[derive(Debug, PartialEq, Eq)]
enum Owned {
    Event(Vec<u8>, Vec<u8>),
    Stray(Vec<u8>),
    Blank,
}

fn items(decoder: &mut Decoder, bytes: &[u8]) -> Vec<Owned> {
    let mut items = Vec::new();
    decoder
        .feed(bytes, |item| {
            items.push(match item {
                Item::Event(event) => Owned::Event(event.kind.to_vec(), event.data.to_vec()),
                Item::Stray(line) => Owned::Stray(line.to_vec()),
                Item::Blank => Owned::Blank,
            });
            ControlFlow::Continue(())
        })
        .unwrap();
    items
}

#[test]
fn every_answer_decodes_alike_cut_in_two_at_every_byte() {
    for (Capture { name, .. }, _, body) in answers() {
        for crlf in [false, true] {
            let reads = if crlf { with_crlf(&body) } else { all_at_once(&body) };
            let bytes: Vec<u8> = reads.into_iter().flat_map(|(bytes, _)| bytes).collect();
            let mut decoder = Decoder::default();
            for event in events(&bytes) {
                let mut uncut = decoder.clone();
                let expected = items(&mut uncut, event);
                // The decoder walks through the event byte by byte; at each a copy of it takes the rest at once.
                let mut begun = Vec::new();
                for cut in 0..event.len() {
                    let rest = items(&mut decoder.clone(), &event[cut..]);
                    let found: Vec<_> = begun.iter().chain(&rest).collect();
                    assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{name}, CRLF {crlf}, byte {cut}");
                    begun.extend(items(&mut decoder, &event[cut..=cut]));
                }
                assert_eq!(begun, expected, "{name}");
            }
        }
    }
}

/// The stretches of a body from one blank line to the next.
fn events(bytes: &[u8]) -> Vec<&[u8]> {
    let mut events = Vec::new();
    let mut rest = bytes;
    while let Some(end) =
        (1..rest.len()).find(|at| rest[*at] == b'\n' && (rest[at - 1] == b'\n' || rest[..*at].ends_with(b"\n\r")))
    {
        let (event, after) = rest.split_at(end + 1);
        events.push(event);
        rest = after;
    }
    events.push(rest);
    events
}
