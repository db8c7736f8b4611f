//! A load under a paused clock, from its first prompt to its last request.

mod ahead;
mod property;
mod rig;

use std::num::NonZeroU32;

use tokio::time::advance;

use self::rig::{Gateway, Manner, Rig, job, link, ms, on_one_thread, open, plan};
use super::*;
use crate::config::secrets::Header;
use crate::config::sections::Rate;
use crate::domain::secret::Secret;
use crate::load::worker::Link;
use crate::load::worker::prepare::tests::{by_hand, made_here, source};

const QUICK: Manner = Manner::Answers { after: ms(300) };

/// What [`Rig::new`] sets, for a change that leaves it.
fn no_change() -> Change {
    Change { link: None, prompts: None, slo: Slo::default(), grace: ms(30_000) }
}

// ---- the rate and the cap ----

#[tokio::test(start_paused = true)]
async fn an_hour_is_kept_to_the_request() {
    on_one_thread(async {
        let mut rig = Rig::new(QUICK, open(10.0, 64));
        for second in 0..3600 {
            rig.at(ms(second * 1000 + 50)).await;
        }
        rig.at(ms(3_599_950)).await;
        assert_eq!(rig.stop().await, ms(250));
        let instants = rig.gateway.instants(rig.start);
        assert_eq!(instants.len(), 36_000);
        assert!(instants.iter().zip(0..).all(|(at, k)| *at == ms(100 * k)));
        let book = rig.book.borrow();
        assert_eq!((book.planned, book.outcomes()), (36_000, [(Outcome::Ok, 36_000)].into()));
        assert!(book.ended.iter().all(|ended| ended.at == ended.arrival.planned_at + ms(300)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn at_the_cap_what_finds_no_slot_is_shed() {
    on_one_thread(async {
        let mut rig = Rig::new(Manner::Hangs, open(100.0, 5));
        rig.at(ms(45)).await;
        assert!(rig.driver.standing(clock::now()).at_cap);
        rig.at(ms(995)).await;
        // Those planned at 50 to 890 ms have waited for 100 ms, those from 900 ms on still do.
        assert_eq!(rig.book.borrow().shed(ShedReason::InflightCap), 85);
        assert_eq!((rig.gateway.holds.get(), rig.book.borrow().in_flight()), ((5, 5), 15));
        rig.driver.grace.set(Duration::ZERO);
        assert_eq!(rig.stop().await, Duration::ZERO);
        let book = rig.book.borrow();
        assert_eq!((book.shed(ShedReason::Shutdown), book.outcomes()), (10, [(Outcome::Canceled, 5)].into()));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_hangs_for_an_hour_is_asked_no_more_than_the_cap_allows() {
    on_one_thread(async {
        let mut rig = Rig::new(Manner::Hangs, open(10.0, 5));
        for minute in 0..60 {
            rig.at(ms(minute * 60_000 + 50)).await;
        }
        // Each holds its slot until `first_token` has passed.
        let rounds = 3600 / target_timeout().as_secs();
        assert!(rig.gateway.asked.borrow().len() as u64 <= 5 * (rounds + 1));
        assert_eq!(rig.gateway.holds.get().1, 5);
        let outcomes = rig.book.borrow().outcomes();
        assert!(outcomes.keys().all(|outcome| *outcome == Outcome::TimeoutFirstToken), "{outcomes:?}");
        assert!(rig.book.borrow().shed.keys().all(|reason| *reason == ShedReason::InflightCap));
        // When it answers again, so does the load.
        rig.gateway.manner.set(QUICK);
        rig.at(ms(3_900_050)).await;
        let shed = rig.book.borrow().shed(ShedReason::InflightCap);
        rig.at(ms(3_910_050)).await;
        assert_eq!(rig.book.borrow().shed(ShedReason::InflightCap), shed);
        rig.stop().await;
    })
    .await;
}

fn target_timeout() -> Duration {
    link().target.timeouts.first_token
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_refusals_a_second_leave_nothing_behind() {
    on_one_thread(async {
        let mut rig = Rig::new(Manner::Refuses, open(10_000.0, 64));
        rig.at(ms(500)).await;
        assert!(rig.book.borrow().in_flight() <= 10, "what was due in the last millisecond");
        sleep_until(rig.start + Duration::from_micros(999_950)).await;
        rig.stop().await;
        let book = rig.book.borrow();
        // Each dialed once: nothing is tried again.
        let refused = book.outcomes().remove(&Outcome::Connect).unwrap();
        assert_eq!(
            (refused, refused as u64 + book.shed.values().sum::<u64>()),
            (rig.gateway.dials.get(), book.planned)
        );
        assert!((9_990..=10_010).contains(&book.planned), "{}", book.planned);
        assert!(refused > 9_900, "{refused}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn after_ten_minutes_of_standstill_the_plan_goes_on_without_a_burst() {
    on_one_thread(async {
        let mut rig = Rig::new(QUICK, open(100.0, 64));
        rig.at(ms(1005)).await;
        advance(ms(600_000)).await;
        rig.at(ms(602_005)).await;
        let late = rig.book.borrow().shed(ShedReason::Late);
        assert!((59_980..=60_000).contains(&late), "{late}");
        let instants = rig.gateway.instants(rig.start);
        assert!(instants.windows(2).all(|pair| pair[1] - pair[0] >= ms(10)), "{instants:?}");
        rig.stop().await;
        // The prompts of what was skipped are not waited for; the first after them may not be there yet.
        assert!(rig.book.borrow().shed(ShedReason::NoPrompt) <= 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_sends_nothing_and_leaves_what_is_in_flight() {
    on_one_thread(async {
        let mut rig = Rig::new(QUICK, open(10.0, 64));
        rig.at(ms(1050)).await;
        rig.tell(Event::Pause);
        rig.at(ms(1350)).await;
        assert_eq!(rig.book.borrow().outcomes(), [(Outcome::Ok, 11)].into());
        rig.at(ms(599_050)).await;
        rig.tell(Event::Resume);
        rig.at(ms(600_050)).await;
        rig.stop().await;
        let book = rig.book.borrow();
        // 11 before, 10 in the last second; those between are counted and their indices gone.
        assert_eq!((book.outcomes(), book.shed(ShedReason::Paused)), ([(Outcome::Ok, 21)].into(), 5980));
        assert_eq!((book.shed.len(), book.planned, rig.gateway.indices()[11]), (1, 6001, 5991));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn warm_ups_are_marked() {
    on_one_thread(async {
        let mut rig = Rig::new(QUICK, open(10.0, 64));
        rig.tell(Event::WarmUp { count: 3 });
        rig.at(ms(950)).await;
        rig.tell(Event::WarmUp { count: 2 });
        rig.at(ms(1950)).await;
        rig.stop().await;
        let book = rig.book.borrow();
        let mut warm: Vec<u64> =
            book.ended.iter().filter(|ended| ended.warmup).map(|ended| ended.arrival.index).collect();
        warm.sort_unstable();
        assert_eq!((warm, book.ended.len()), (vec![0, 1, 2, 10, 11], 20));
    })
    .await;
}

// ---- the end ----

#[tokio::test(start_paused = true)]
async fn what_ends_within_the_grace_period_is_good_and_the_rest_is_canceled_at_its_end() {
    on_one_thread(async {
        let mut rig = Rig::new(Manner::Answers { after: ms(1000) }, open(10.0, 64));
        rig.at(ms(50)).await;
        rig.gateway.manner.set(Manner::Answers { after: ms(6000) });
        rig.at(ms(150)).await;
        rig.gateway.manner.set(Manner::Hangs);
        rig.at(ms(250)).await;
        rig.driver.grace.set(ms(5000));
        assert_eq!(rig.stop().await, ms(5000));
        let ended = |index| {
            let book = rig.book.borrow();
            let ended = book.ended.iter().find(|ended| ended.arrival.index == index).unwrap();
            (ended.outcome, ended.at - rig.start)
        };
        assert_eq!(ended(0), (Outcome::Ok, ms(1000)));
        assert_eq!([1, 2].map(ended), [(Outcome::Canceled, ms(5250)); 2]);
        // The gateway sees it too.
        tokio::task::yield_now().await;
        assert_eq!((rig.book.borrow().planned, rig.gateway.holds.get().0), (3, 1), "one of them still thinks");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn with_nothing_in_flight_the_end_is_at_once() {
    on_one_thread(async {
        let mut rig = Rig::new(QUICK, open(1.0, 64));
        rig.at(ms(500)).await;
        assert_eq!(rig.stop().await, Duration::ZERO);
        assert_eq!(rig.book.borrow().outcomes(), [(Outcome::Ok, 1)].into());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_grace_what_is_in_flight_is_canceled_at_once() {
    on_one_thread(async {
        let mut rig = Rig::new(QUICK, open(10.0, 64));
        rig.driver.grace.set(Duration::ZERO);
        rig.at(ms(450)).await;
        assert_eq!(rig.stop().await, Duration::ZERO);
        assert_eq!(rig.book.borrow().outcomes(), [(Outcome::Ok, 2), (Outcome::Canceled, 3)].into());
        // Nobody is surprised by what is told too late.
        rig.tell(Event::Stop);
        rig.tell(Event::Resume);
    })
    .await;
}

// ---- changes in place ----

#[tokio::test(start_paused = true)]
async fn link_and_prompts_change_in_place_and_what_is_in_flight_goes_on() {
    on_one_thread(async {
        let mut rig = Rig::new(QUICK, open(10.0, 64));
        rig.at(ms(1050)).await;
        let other = Gateway::new(QUICK);
        rig.driver.exchange(Some(other.client()), Some(made_here(source("new"))));
        rig.at(ms(2050)).await;
        rig.stop().await;
        // Three were under way; they ended where they had begun.
        let book = rig.book.borrow();
        assert_eq!((book.outcomes(), book.shed.len()), ([(Outcome::Ok, 21)].into(), 0));
        let names =
            |gateway: &Gateway| gateway.asked.borrow().iter().map(|asked| asked.load.clone()).collect::<Vec<_>>();
        assert_eq!((names(&rig.gateway), names(&other)), (vec!["old".to_owned(); 11], vec!["new".to_owned(); 10]));
        assert_eq!(other.indices(), (11..21).collect::<Vec<_>>(), "indices go on");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_change_without_a_way_to_the_target_changes_nothing() {
    on_one_thread(async {
        let mut rig = Rig::new(QUICK, open(10.0, 64));
        rig.at(ms(50)).await;
        let bad = Header { name: "no name".to_owned(), value: Secret::new("x"), hidden: false };
        let link = Link { secrets: crate::config::secrets::Secrets { key: None, headers: vec![bad] }, ..link() };
        let (_, nothing) = by_hand();
        let change = Change { link: Some(link), prompts: Some(nothing), grace: Duration::ZERO, ..no_change() };
        assert!(matches!(rig.driver.change(change), Err(LinkError::Client(_))));
        rig.at(ms(950)).await;
        // The grace period too is the one from before.
        assert_eq!(rig.stop().await, ms(250));
        assert_eq!(rig.book.borrow().outcomes(), [(Outcome::Ok, 10)].into());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn grace_and_objectives_change_in_place() {
    on_one_thread(async {
        let mut rig = Rig::new(Manner::Hangs, open(10.0, 64));
        rig.at(ms(50)).await;
        let slo = Slo { ttft: Some(ms(9)), ..Slo::default() };
        rig.driver.change(Change { slo, grace: ms(700), ..no_change() }).unwrap();
        assert_eq!((rig.driver.slo.get(), rig.stop().await), (slo, ms(700)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn another_rate_takes_effect_in_place() {
    on_one_thread(async {
        let mut rig = Rig::new(QUICK, open(10.0, 64));
        rig.at(ms(1050)).await;
        rig.tell(Event::Replan(plan(100.0)));
        rig.at(ms(2045)).await;
        rig.tell(Event::Replan(plan(1.0)));
        rig.at(ms(4000)).await;
        rig.stop().await;
        let mut instants: Vec<u64> = (0..11).map(|k| k * 100).collect();
        instants.extend((0..100).map(|k| 1050 + k * 10));
        instants.extend([2045, 3045]);
        assert_eq!(rig.gateway.instants(rig.start), instants.into_iter().map(ms).collect::<Vec<_>>());
        // No index twice, none left out, and each had its prompt.
        assert_eq!(rig.gateway.indices(), (0..113).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn another_cap_takes_effect_in_place() {
    on_one_thread(async {
        let mut rig = Rig::new(Manner::Hangs, open(100.0, 2));
        rig.at(ms(95)).await;
        rig.tell(Event::Cap { max_in_flight: NonZeroU32::new(5).unwrap(), late_cap: Rate::LATE_CAP });
        rig.at(ms(105)).await;
        assert_eq!(rig.gateway.holds.get(), (5, 5));
        rig.driver.grace.set(Duration::ZERO);
        rig.stop().await;
    })
    .await;
}

// ---- without a prompt, or with a panic ----

#[tokio::test(start_paused = true)]
async fn without_a_prompt_it_is_shed_and_its_slot_is_free_again() {
    on_one_thread(async {
        let (queue, prompts) = by_hand();
        for index in [0, 3, 4] {
            queue.try_send((index, prepared(index))).unwrap();
        }
        let mut rig = Rig::of(Gateway::new(Manner::Answers { after: ms(50) }), job(open(10.0, 1), prompts));
        rig.at(ms(950)).await;
        assert_eq!(rig.gateway.indices(), [0, 3, 4]);
        assert_eq!(rig.book.borrow().shed, [(ShedReason::NoPrompt, 7)].into());
        queue.try_send((12, prepared(12))).unwrap();
        rig.at(ms(1350)).await;
        rig.stop().await;
        assert_eq!(rig.gateway.indices(), [0, 3, 4, 12]);
    })
    .await;
}

fn prepared(index: u64) -> Prepared {
    Prepared { body: "{}".into(), output_tokens: 2, request_id: format!("hand-{index}-0") }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_request_ends_the_load_though_no_other_is_sent() {
    on_one_thread(async {
        // One slot, which the request that panics never frees.
        let rig = Rig::new(QUICK, rig::closed(1));
        rig.book.borrow_mut().breaks = true;
        let ended = tokio::time::timeout(ms(60_000), rig.running).await.expect("nobody noticed");
        assert!(ended.unwrap_err().is_panic());
        assert_eq!(clock::now() - rig.start, ms(300));
    })
    .await;
}
