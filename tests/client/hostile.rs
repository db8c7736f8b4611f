//! Real answers with random damage, through the whole client: whatever the bytes are, one request gives one outcome, in
//! bounded time and memory, without a panic.

use std::collections::BTreeMap;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use steadyload::domain::outcome::Outcome;
use steadyload::load::client::reader::{MAX_DETAIL, MAX_EVENTS};

use crate::capture;
use crate::replay::{Player, asked, target};
use crate::sending;

const SEED: u64 = 20_261_201;
const VARIANTS: usize = 60;

/// Damages the bytes in one of the ways in which bytes are damaged.
fn damage(bytes: &mut Vec<u8>, rng: &mut ChaCha8Rng) {
    let at = rng.random_range(0..bytes.len());
    let to = (at + rng.random_range(1..200)).min(bytes.len());
    let interesting = [b'\0', b'\n', b'\r', b':', b'{', b'}', b'[', b'"', b'\\', b'0', b'9', b'-', 0xff, 0xc3, 0xe6];
    let one = interesting[rng.random_range(0..interesting.len())];
    match rng.random_range(0..7) {
        0 => bytes[at] = rng.random(),
        1 => bytes[at] = one,
        2 => drop(bytes.drain(at..to)),
        3 => {
            let piece = bytes[at..to].to_vec();
            let other = rng.random_range(0..=bytes.len());
            bytes.splice(other..other, piece);
        }
        4 => drop(bytes.splice(at..at, std::iter::repeat_n(one, rng.random_range(1..3000)))),
        5 => bytes.truncate(at),
        _ => bytes.iter_mut().skip(at).step_by(rng.random_range(1..50)).take(20).for_each(|byte| *byte ^= 0x20),
    }
}

#[tokio::test(start_paused = true)]
async fn damaged_answers_end_in_one_outcome_and_never_in_a_panic() {
    println!("seed {SEED}");
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut tally: BTreeMap<Outcome, u32> = BTreeMap::new();
    for (mut capture, expected) in capture::all() {
        // A long stream is damaged at its beginning as well as a short one, and takes less time.
        capture.reads.truncate(60);
        for variant in 0..VARIANTS {
            let mut damaged = capture.clone();
            for _ in 0..rng.random_range(1..4) {
                let read = rng.random_range(0..damaged.reads.len());
                let bytes = &mut damaged.reads[read].1;
                if !bytes.is_empty() {
                    damage(bytes, &mut rng);
                }
            }
            damaged.reads.retain(|(_, bytes)| !bytes.is_empty());
            let name = format!("{}, variant {variant}", capture.name);
            let mut target = target("http://damaged", &expected);
            target.timeouts = steadyload::config::sections::Timeouts::default();
            let client = sending::over(&target, Box::new(Player::new(&damaged, rng.random_range(1..2000))));
            let timeline = sending::send(&client, "damaged", "{}", asked(&expected)).await;
            *tally.entry(timeline.outcome).or_default() += 1;
            assert_eq!(timeline.detail.is_none(), timeline.outcome == Outcome::Ok, "{name}: {timeline:?}");
            assert!(timeline.detail.is_none_or(|detail| detail.len() <= 3 * MAX_DETAIL + 300), "{name}");
            assert!(timeline.answer.tokens.len() <= MAX_EVENTS, "{name}");
            let stamps: Vec<_> = timeline.answer.tokens.iter().map(|event| event.at).collect();
            assert!(stamps.is_sorted() && stamps.first().is_none_or(|at| Some(*at) >= timeline.sent_at), "{name}");
        }
    }
    println!("{tally:?}");
    // The damage reaches every layer: HTTP, event stream, JSON, and the answer itself.
    for outcome in [Outcome::Ok, Outcome::Parse, Outcome::Truncated, Outcome::Empty, Outcome::BadResponse] {
        assert!(tally.contains_key(&outcome), "{outcome} never came: {tally:?}");
    }
}
