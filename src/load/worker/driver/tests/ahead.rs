//! Before the first request, and the workers of a closed loop.

use tokio::time::timeout;

use super::rig::{Gateway, Manner, Rig, closed, job, ms, on_one_thread, open, plan};
use super::*;
use crate::config::sections::Rate;
use crate::load::schedule::closed::{FAST, LONGEST_REST, RAMP_STEP};

const DIAL_TAKES: Duration = ms(30);

fn slow_to_connect() -> Rc<Gateway> {
    let gateway = Gateway::new(QUICK);
    gateway.dial_takes.set(DIAL_TAKES);
    gateway
}

// ---- what is told before the begin ----

#[tokio::test(start_paused = true)]
async fn it_can_be_stopped_while_it_waits_for_its_first_prompt() {
    on_one_thread(async {
        let (_queue, prompts) = by_hand();
        let mut rig = Rig::of(Gateway::new(QUICK), job(open(10.0, 64), prompts));
        rig.at(ms(5000)).await;
        rig.tell(Event::Stop);
        timeout(ms(1), &mut rig.running).await.expect("it waits on").unwrap();
        assert_eq!((rig.book.borrow().planned, rig.gateway.asked.borrow().len()), (0, 0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn it_can_be_stopped_while_it_opens_connections() {
    for schedule in [open(10.0, 64), closed(40)] {
        on_one_thread(async {
            let gateway = Gateway::new(Manner::IsUnreachable);
            let mut rig = Rig::connecting(&gateway, schedule, 40);
            rig.at(ms(100)).await;
            assert_eq!(gateway.dialing.get(), (DIALS, DIALS));
            assert_eq!(rig.stop().await, Duration::ZERO);
            assert_eq!((rig.book.borrow().planned, gateway.dialing.get().0), (0, 0));
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_was_paused_before_it_began_sends_nothing_until_it_may() {
    for schedule in [open(10.0, 64), closed(2)] {
        on_one_thread(async {
            let gateway = slow_to_connect();
            let mut rig = Rig::connecting(&gateway, schedule, 2);
            rig.at(ms(10)).await;
            for event in [Event::Pause, Event::Resume, Event::Pause] {
                rig.tell(event);
            }
            rig.at(ms(20_050)).await;
            assert_eq!(gateway.asked.borrow().len(), 0);
            rig.tell(Event::Resume);
            rig.at(ms(20_950)).await;
            assert!(gateway.asked.borrow().len() >= 6);
            rig.stop().await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_told_before_the_begin_holds_from_the_begin_on() {
    on_one_thread(async {
        let gateway = slow_to_connect();
        let mut rig = Rig::connecting(&gateway, open(10.0, 1), 8);
        rig.at(ms(10)).await;
        for count in [9, 2] {
            rig.tell(Event::WarmUp { count });
        }
        rig.tell(Event::Replan(plan(20.0)));
        rig.tell(Event::Cap { max_in_flight: NonZeroU32::new(64).unwrap(), late_cap: Rate::LATE_CAP });
        rig.at(ms(1000)).await;
        rig.stop().await;
        let since_begin = gateway.instants(rig.start + DIAL_TAKES);
        assert_eq!(since_begin, (0..20).map(|k| ms(50 * k)).collect::<Vec<_>>());
        assert_eq!(rig.book.borrow().ended.iter().filter(|ended| ended.warmup).count(), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn other_prompts_are_waited_for_in_place_of_those_that_do_not_come() {
    on_one_thread(async {
        let (_queue, never) = by_hand();
        let mut rig = Rig::of(Gateway::new(QUICK), job(open(10.0, 64), never));
        rig.at(ms(1000)).await;
        rig.driver.exchange(None, Some(made_here(source("new"))));
        rig.at(ms(1950)).await;
        rig.stop().await;
        assert_eq!(rig.book.borrow().outcomes(), [(Outcome::Ok, 10)].into());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn connections_are_opened_to_the_target_that_the_load_begins_with() {
    on_one_thread(async {
        let (old, new) = (Gateway::new(Manner::IsUnreachable), slow_to_connect());
        let mut rig = Rig::connecting(&old, closed(4), 4);
        rig.at(ms(100)).await;
        rig.driver.exchange(Some(new.client()), None);
        rig.at(ms(125)).await;
        assert_eq!((old.dialing.get().0, new.dialing.get()), (0, (4, 4)));
        rig.at(ms(300)).await;
        assert!(rig.book.borrow().connected == 4 && new.dials.get() == 4 && new.asked.borrow().len() == 4);
        rig.stop().await;
    })
    .await;
}

// ---- a closed loop ----

#[tokio::test(start_paused = true)]
async fn a_closed_loop_connects_first_and_starts_its_workers_one_after_the_other() {
    on_one_thread(async {
        let gateway = slow_to_connect();
        gateway.manner.set(Manner::Answers { after: ms(1000) });
        let mut rig = Rig::connecting(&gateway, closed(40), 40);
        rig.at(ms(85)).await;
        // In three rounds: it does not knock with all of them at once.
        assert_eq!((gateway.dials.get(), gateway.dialing.get(), gateway.asked.borrow().len()), (40, (8, DIALS), 0));
        rig.at(ms(485)).await;
        let steps: Vec<_> = (0..40).map(|k| RAMP_STEP * k).collect();
        assert_eq!(gateway.instants(rig.start + DIAL_TAKES * 3), steps);
        rig.stop().await;
        let book = rig.book.borrow();
        assert_eq!((book.connected, gateway.dials.get()), (40, 40));
        for ended in &book.ended {
            assert_eq!(ended.sent_at, Some(ended.arrival.planned_at), "a connection stood ready");
            assert!(!ended.opened && ended.first_at.unwrap() == ended.arrival.planned_at + ms(1000));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_to_connect_has_it_outside_its_ttft() {
    on_one_thread(async {
        let mut rig = Rig::connecting(&slow_to_connect(), closed(1), 0);
        rig.at(ms(100)).await;
        rig.stop().await;
        let book = rig.book.borrow();
        let sent_at = book.ended[0].sent_at.unwrap();
        assert!(book.ended[0].opened && book.connected == 0);
        assert_eq!((sent_at - rig.start, book.ended[0].first_at.unwrap() - sent_at), (DIAL_TAKES, ms(300)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_not_there_is_not_knocked_at_for_every_worker() {
    on_one_thread(async {
        let gateway = Gateway::new(Manner::IsUnreachable);
        let mut rig = Rig::connecting(&gateway, closed(1000), 1000);
        rig.at(link().target.timeouts.connect - ms(1)).await;
        assert_eq!((gateway.dials.get(), rig.book.borrow().planned), (DIALS, 0));
        rig.at(link().target.timeouts.connect + ms(5)).await;
        // The loop begins all the same: its requests find out, and are counted.
        assert!(rig.book.borrow().planned > 0 && rig.book.borrow().connected == 0);
        rig.driver.grace.set(Duration::ZERO);
        rig.stop().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_concurrency_is_kept() {
    on_one_thread(async {
        let mut rig = Rig::connecting(&Gateway::new(QUICK), closed(8), 8);
        for second in 1..=60 {
            rig.at(ms(second * 1000 + 75)).await;
            assert_eq!((rig.gateway.holds.get(), rig.book.borrow().in_flight()), ((8, 8), 8));
        }
        rig.stop().await;
        // 3.33 a second for each of them.
        assert_eq!((rig.book.borrow().outcomes(), rig.gateway.dials.get()), ([(Outcome::Ok, 8 * 201)].into(), 8));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn fast_failures_rest_so_that_nobody_is_hammered() {
    for manner in [Manner::Refuses, Manner::Status(503), Manner::Status(429)] {
        on_one_thread(async {
            let mut rig = Rig::connecting(&Gateway::new(manner), closed(100), 0);
            rig.at(ms(600_005)).await;
            let tries = rig.book.borrow().ended.len() as u64;
            // Ten minutes: the mean rest grows to 5 s, so each worker tries some 120 times; with full jitter not much more.
            assert!((10_000..16_000).contains(&tries), "{manner:?}: {tries}");
            assert!(rig.driver.standing(clock::now()).rested > ms(590_000));
            assert_eq!(rig.book.borrow().shed, [(ShedReason::Backoff, tries)].into());
            // It is back within the longest rest.
            rig.gateway.manner.set(QUICK);
            rig.at(ms(600_005) + LONGEST_REST).await;
            assert_eq!(rig.gateway.holds.get().0, 100);
            rig.stop().await;
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn slow_failures_do_not_rest() {
    on_one_thread(async {
        let gateway = slow_to_connect();
        gateway.manner.set(Manner::IsUnreachable);
        let mut rig = Rig::connecting(&gateway, closed(1), 0);
        let round = link().target.timeouts.connect;
        assert!(round > FAST);
        rig.at(round * 3 + ms(5)).await;
        assert_eq!((gateway.dials.get(), rig.book.borrow().shed.len()), (4, 0));
        rig.driver.grace.set(Duration::ZERO);
        rig.stop().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_prompts_a_closed_loop_does_not_spin() {
    on_one_thread(async {
        let (queue, prompts) = by_hand();
        queue.try_send((0, prepared(0))).unwrap();
        let mut rig = Rig::of(Gateway::new(QUICK), job(closed(10), prompts));
        rig.at(ms(60_005)).await;
        let shed = rig.book.borrow().shed(ShedReason::NoPrompt);
        assert!((50..400).contains(&shed), "{shed}");
        rig.stop().await;
        assert_eq!(rig.gateway.indices(), [0]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn workers_come_and_go_in_place() {
    on_one_thread(async {
        let mut rig = Rig::connecting(&Gateway::new(QUICK), closed(4), 4);
        for (at, concurrency) in [(1005, 12), (3005, 2), (5005, 0), (7005, 3)] {
            rig.at(ms(at)).await;
            rig.tell(Event::Concurrency { concurrency });
            rig.at(ms(at + 1500)).await;
            assert_eq!(rig.gateway.holds.get().0, concurrency as usize, "at {at}");
        }
        assert_eq!(rig.gateway.holds.get().1, 12);
        assert!(rig.stop().await <= ms(300));
        let book = rig.book.borrow();
        assert_eq!((book.outcomes().len(), book.shed.len()), (1, 0));
        // An index for each that was sent.
        assert_eq!(rig.gateway.indices(), (0..book.planned).collect::<Vec<_>>());
    })
    .await;
}
