use std::future::poll_fn;
use std::num::NonZeroU32;

use tokio::task::LocalSet;

use super::*;
use crate::config::sections::Workload;
use crate::config::sections::tests::target;
use crate::domain::api::Api;

fn words(n: u32) -> Arc<prompt::Source> {
    let workload = Workload::random(NonZeroU32::new(n).unwrap(), NonZeroU32::new(2).unwrap(), 1);
    let source = prompt::Source::open("w", &workload, Api::OpenAiChat, Arc::new(prompt::Words::default()));
    Arc::new(source.unwrap())
}

/// Prompts for a load with this name, few words each, from index 0 on.
pub(in crate::load::worker) fn source(load: &str) -> Source {
    Source {
        load: load.to_owned(),
        target: Arc::new(target("http://gateway")),
        prompts: words(4),
        first_index: 0,
        from: 0,
        shard: Shard::WHOLE,
        per_second: 1.0,
    }
}

/// Prompts that are made on the thread that sends them, where a paused clock knows of it.
pub(in crate::load::worker) fn made_here(source: Source) -> Prompts {
    let (prompts, job) = begun(source);
    tokio::task::spawn_local(make(job));
    prompts
}

/// Prompts that are there when the test says so.
pub(in crate::load::worker) fn by_hand() -> (mpsc::Sender<(u64, Prepared)>, Prompts) {
    let (queue, received) = mpsc::channel(64);
    (queue, Prompts { queue: received, head: None, wanted: Arc::default() })
}

/// Lets the prompts be made until their queue is full.
async fn let_it_fill() {
    for _ in 0..3 * MOST {
        yield_now().await;
    }
}

/// The indices that are ready, in their order.
fn ready(prompts: &mut Prompts) -> Vec<u64> {
    let head = prompts.head.take();
    head.into_iter().chain(std::iter::from_fn(|| prompts.queue.try_recv().ok())).map(|(index, _)| index).collect()
}

async fn on_one_thread(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn prompts_come_in_the_order_of_their_indices_and_no_more_than_fit() {
    on_one_thread(async {
        let mut prompts = made_here(source("load"));
        let_it_fill().await;
        assert_eq!(ready(&mut prompts), (0..64).collect::<Vec<_>>());
        let_it_fill().await;
        // One place for each that was taken.
        assert_eq!(ready(&mut prompts), (64..128).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn a_prompt_is_the_one_of_its_index() {
    on_one_thread(async {
        let source = source("load");
        let mut prompts = made_here(source.clone());
        let_it_fill().await;
        for index in [0, 1, 5] {
            let prepared = prompts.take(index).unwrap();
            let stream = Stream { load: "load".to_owned(), shard: Shard::WHOLE, part: Part::Measured };
            let want = source.prompts.prompt(&stream, index).unwrap();
            let want = Prepared::new(&source.target, &want, "load", index);
            assert_eq!((&prepared.body, prepared.output_tokens), (&want.body, 2));
            assert!(prepared.request_id.starts_with(&format!("load-{index}-")), "{}", prepared.request_id);
        }
        // Those before it are gone, and it is given once.
        assert!(prompts.take(4).is_none() && prompts.take(5).is_none());
        assert!(prompts.take(6).is_some());
    })
    .await;
}

#[tokio::test]
async fn what_is_passed_over_is_not_made() {
    on_one_thread(async {
        let mut prompts = made_here(source("load"));
        let_it_fill().await;
        prompts.seek(1_000_000_000_000);
        let_it_fill().await;
        // As many as fit at most were there already; a trillion would not be made in any test.
        assert_eq!(ready(&mut prompts), (1_000_000_000_000..1_000_000_000_064).collect::<Vec<_>>());
        // Not back again.
        prompts.seek(3);
        let_it_fill().await;
        assert!(prompts.take(1_000_000_000_064).is_some());
    })
    .await;
}

#[tokio::test]
async fn a_shard_has_its_own_indices() {
    on_one_thread(async {
        let shard = Shard::new(1, NonZeroU32::new(3).unwrap()).unwrap();
        let mut prompts = made_here(Source { first_index: 100, shard, ..source("load") });
        let_it_fill().await;
        assert_eq!(ready(&mut prompts)[..3], [101, 104, 107]);
        prompts.seek(1001);
        let_it_fill().await;
        assert_eq!(ready(&mut prompts).into_iter().find(|index| *index >= 1001), Some(1001));
        // Between two of its indices the next one is meant.
        prompts.seek(2001);
        let_it_fill().await;
        assert_eq!(ready(&mut prompts).into_iter().find(|index| *index >= 2001), Some(2003));
    })
    .await;
}

#[test]
fn as_many_are_kept_as_a_second_needs_and_memory_allows() {
    let kept = |per_second, input| capacity(&Source { per_second, prompts: words(input), ..source("load") });
    assert_eq!([0.5, 200.5, 9e9, f64::NAN].map(|rate| kept(rate, 4)), [64, 201, MOST, 64]);
    assert!((70..90).contains(&kept(1000.0, 10_000)), "{}", kept(1000.0, 10_000));
    assert_eq!(kept(1000.0, u32::MAX), LEAST);
}

#[tokio::test]
async fn readiness_means_a_prompt_that_is_still_of_use() {
    on_one_thread(async {
        let mut prompts = made_here(source("load"));
        let_it_fill().await;
        // The queue is full of those before it.
        prompts.wanted.store(500, Ordering::Relaxed);
        poll_fn(|cx| prompts.poll_ready(cx)).await;
        assert!(prompts.take(500).is_some());
    })
    .await;
}

#[tokio::test]
async fn it_ends_with_the_prompts_that_it_is_for() {
    on_one_thread(async {
        let (prompts, job) = begun(source("load"));
        let made = tokio::task::spawn_local(make(job));
        let_it_fill().await;
        assert!(!made.is_finished());
        drop(prompts);
        made.await.unwrap();
    })
    .await;
}

// ---- on its thread ----

#[tokio::test]
async fn one_thread_makes_the_prompts_of_many_loads() {
    let preparer = Preparer::start().unwrap();
    let mut loads = Vec::new();
    for load in 0..100 {
        loads.push(preparer.prepare(source(&load.to_string())).await);
    }
    for index in 0..200 {
        for (load, prompts) in loads.iter_mut().enumerate() {
            prompts.seek(index);
            poll_fn(|cx| prompts.poll_ready(cx)).await;
            let prepared = prompts.take(index).unwrap();
            assert!(prepared.request_id.starts_with(&format!("{load}-{index}-")), "{}", prepared.request_id);
        }
    }
    assert!(!preparer.is_gone());
    // The prompts outlive the thread; then there will be no more, which nobody waits for.
    drop(preparer);
    for mut prompts in loads {
        while prompts.head.is_some() || prompts.queue.recv().await.is_some() {
            prompts.head = None;
        }
        poll_fn(|cx| prompts.poll_ready(cx)).await;
        assert!(prompts.take(900).is_none());
    }
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn a_panic_ends_the_thread() {
    let preparer = Preparer::start().unwrap();
    // There is no index after the first; sums are checked in a build for tests.
    let mut prompts = preparer.prepare(Source { first_index: u64::MAX, ..source("load") }).await;
    while prompts.queue.recv().await.is_some() {}
    while !preparer.is_gone() {
        yield_now().await;
    }
    // Whoever asks now gets prompts of which there are none.
    let mut none = preparer.prepare(source("late")).await;
    poll_fn(|cx| none.poll_ready(cx)).await;
    assert!(none.take(0).is_none());
}
