//! What one event of a stream costs, beside the least that a client in this language could do.
//!
//! `bare` splits at blank lines and reads the same fields with serde_json, without SSE's rules, limits, checks or an outcome.
//! `client` is what the load path does with each read: `Reader::feed`. Both get one vLLM stream in reads of one event each,
//! and coalesced into reads of 16 kB. Read the ratio of the two medians within a run, not the times.
//!
//!     cargo bench --bench decode

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::hint::black_box;

use divan::Bencher;
use divan::counter::ItemsCount;
use serde::Deserialize;
use steadyload::clock::{self, Instant};
use steadyload::domain::api::Api;
use steadyload::load::client::reader::{Ending, Reader};

const EVENTS: usize = 2000;

fn main() {
    divan::main();
}

/// An answer as vLLM streams it, with a count in every event.
fn events() -> Vec<String> {
    let event = |index: usize| {
        format!(
            "data: {{\"id\":\"chatcmpl-92b63adee15bd35a\",\"object\":\"chat.completion.chunk\",\"created\":1796104584,\
             \"model\":\"Qwen3.5-35B-A3B\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word{}\"}},\
             \"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}}],\
             \"usage\":{{\"prompt_tokens\":256,\"total_tokens\":{},\"completion_tokens\":{index}}}}}\n\n",
            index % 10,
            256 + index
        )
    };
    (1..=EVENTS).map(event).collect()
}

fn reads(coalesced: bool) -> Vec<Vec<u8>> {
    if coalesced {
        events().concat().into_bytes().chunks(16 << 10).map(<[u8]>::to_vec).collect()
    } else {
        events().into_iter().map(String::into_bytes).collect()
    }
}

#[derive(Deserialize)]
struct Chunk {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Delta,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: u32,
}

fn bare(reads: &[Vec<u8>], at: Instant) -> (u32, Vec<Instant>) {
    let (mut n, mut stamps, mut rest) = (0, Vec::new(), Vec::new());
    for read in reads {
        rest.extend_from_slice(read);
        let mut from = 0;
        while let Some(end) = memchr::memmem::find(&rest[from..], b"\n\n") {
            let chunk: Chunk = serde_json::from_slice(&rest[from + 6..from + end]).unwrap();
            let choice = chunk.choices.first().unwrap();
            if choice.delta.content.as_deref().is_some_and(|text| !text.is_empty()) && choice.finish_reason.is_none() {
                stamps.push(at);
            }
            n = chunk.usage.map_or(n, |usage| usage.completion_tokens);
            from += end + 2;
        }
        rest.drain(..from);
    }
    (n, stamps)
}

fn client(reads: &[Vec<u8>], at: Instant) -> usize {
    let mut reader = Reader::new(Api::OpenAiChat, None);
    for read in reads {
        assert!(reader.feed(read, at).is_continue());
    }
    reader.finish(Ending::Complete, at);
    reader.answer().tokens.len()
}

#[divan::bench(args = [false, true])]
fn bare_client(bencher: Bencher<'_, '_>, coalesced: bool) {
    let (reads, at) = (reads(coalesced), clock::now());
    assert_eq!(bare(&reads, at).1.len(), EVENTS);
    bencher.counter(ItemsCount::new(EVENTS)).bench(|| bare(black_box(&reads), at));
}

#[divan::bench(args = [false, true])]
fn load_client(bencher: Bencher<'_, '_>, coalesced: bool) {
    let (reads, at) = (reads(coalesced), clock::now());
    assert_eq!(client(&reads, at), EVENTS);
    bencher.counter(ItemsCount::new(EVENTS)).bench(|| client(black_box(&reads), at));
}
