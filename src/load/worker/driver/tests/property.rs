//! Whatever a load is told, and whatever its gateway does.

#![expect(clippy::print_stdout, reason = "a property that fails shows its seed")]

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::rig::{Gateway, Manner, Rig, closed, ms, on_one_thread, open, plan};
use super::*;
use crate::config::sections::Rate;

const MANNERS: [Manner; 6] = [
    QUICK,
    Manner::Answers { after: ms(7) },
    Manner::Hangs,
    Manner::Refuses,
    Manner::IsUnreachable,
    Manner::Status(503),
];

fn event(rng: &mut ChaCha8Rng) -> Event {
    match rng.random_range(0..8) {
        0 => Event::Pause,
        1..4 => Event::Resume,
        4 => Event::Replan(plan([3.0, 40.0, 200.0][rng.random_range(0..3)])),
        5 => Event::Cap { max_in_flight: NonZeroU32::new(rng.random_range(1..20)).unwrap(), late_cap: Rate::LATE_CAP },
        6 => Event::Concurrency { concurrency: rng.random_range(0..12) },
        _ => Event::WarmUp { count: rng.random_range(0..5) },
    }
}

#[tokio::test(start_paused = true)]
async fn the_law_holds_and_no_index_is_sent_twice() {
    for seed in 0..40 {
        on_one_thread(async {
            println!("seed {seed}");
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let gateway = Gateway::new(MANNERS[rng.random_range(0..MANNERS.len())]);
            gateway.dial_takes.set(ms(rng.random_range(0..40)));
            let schedule = if rng.random_bool(0.5) { open(50.0, 10) } else { closed(6) };
            let mut rig = Rig::connecting(&gateway, schedule, rng.random_range(0..8));
            for _ in 0..rng.random_range(0..120) {
                match rng.random_range(0..12) {
                    0..3 => rig.gateway.manner.set(MANNERS[rng.random_range(0..MANNERS.len())]),
                    3..9 => rig.tell(event(&mut rng)),
                    9 => rig.driver.exchange(None, Some(made_here(source("new")))),
                    // The same gateway by another client, as after a change of a header.
                    10 => rig.driver.exchange(Some(gateway.client()), None),
                    _ => rig.driver.keep_abreast(),
                }
                let longest = [20, 500, 5000][rng.random_range(0..3)];
                sleep_until(clock::now() + Duration::from_micros(rng.random_range(0..longest * 1000))).await;
                // Whatever is due now happens first.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                rig.check();
            }
            rig.driver.grace.set(ms(rng.random_range(0..2000)));
            assert!(rig.stop().await <= rig.driver.grace.get() + ms(100), "an answer that is whole is read to its end");
            rig.check();
            let book = rig.book.borrow();
            assert_eq!(book.planned, book.shed.values().sum::<u64>() + book.ended.len() as u64);
        })
        .await;
    }
}
