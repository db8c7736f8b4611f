//! The thread itself, with real connections on loopback to a simulated gateway on a thread of its own.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::pin::pin;

use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::prepare::Preparer;
use super::prepare::tests::{by_hand, source};
use super::*;
use crate::config::secrets::Header;
use crate::config::sections::tests::target;
use crate::domain::secret::Secret;
use crate::load::client::{Prepared, tls};
use crate::load::schedule::closed::{ClosedLoop, Settings};
use crate::load::schedule::dispatch::Dispatch;
use crate::load::schedule::open::OpenLoop;
use crate::load::schedule::plan::{Plan, Shard, Spacing};
use crate::sim::Gateway;
use crate::sim::settings::{Pace, Settings as SimSettings};

/// What a test wants to have happened, told as it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EndedOn {
    account: usize,
}

/// Counts by account: planned, shed, ended, connected.
type Counts = BTreeMap<usize, [u64; 4]>;

struct Book {
    since: Counts,
    ends: Sender<EndedOn>,
    panics: bool,
}

impl Book {
    fn add(&mut self, account: usize, place: usize, count: u64) {
        self.since.entry(account).or_default()[place] += count;
    }
}

impl Record for Book {
    type Delta = Counts;

    fn planned(&mut self, account: usize, count: u64) {
        self.add(account, 0, count);
    }
    fn shed(&mut self, account: usize, _: ShedReason, count: u64) {
        self.add(account, 1, count);
    }
    fn connected(&mut self, account: usize, _: &ConnectPhases) {
        self.add(account, 3, 1);
    }
    fn ended(&mut self, account: usize, timeline: &Timeline, _: bool, _: &Slo) {
        assert!(!self.panics, "told to");
        assert!(timeline.outcome.is_answered(), "{timeline:?}");
        self.add(account, 2, 1);
        // A test that has seen enough does not look any more.
        self.ends.try_send(EndedOn { account }).ok();
    }
    fn take(&mut self) -> Counts {
        std::mem::take(&mut self.since)
    }
}

/// A gateway on a thread of its own, as long as the sender lives.
fn gateway() -> (SocketAddr, oneshot::Sender<()>) {
    let (stop, stopped) = oneshot::channel::<()>();
    let (address, bound) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let short = Pace::Constant(Duration::from_millis(1));
            let settings = SimSettings { model: "m".to_owned(), ttft: short, gap: short, ..SimSettings::default() };
            let gateway = Gateway::bind(settings, ([127, 0, 0, 1], 0).into()).await.unwrap();
            address.send(gateway.local_addr()).unwrap();
            gateway.run(async { drop(stopped.await) }).await.unwrap();
        });
    });
    (bound.recv().unwrap(), stop)
}

struct Rig {
    worker: Worker<Counts>,
    preparer: Preparer,
    ends: Receiver<EndedOn>,
    link: Link,
    _gateway: oneshot::Sender<()>,
}

fn rig_that(panics: bool) -> Rig {
    let (ends, seen) = channel(10_000);
    let (address, gateway) = gateway();
    let target = Arc::new(target(&format!("http://{address}")));
    let link = Link { target, secrets: Secrets::default(), tls: tls::client_config(None).unwrap() };
    let worker = Worker::start("load-0", move || Book { since: Counts::new(), ends, panics }).unwrap();
    Rig { worker, preparer: Preparer::start().unwrap(), ends: seen, link, _gateway: gateway }
}

fn closed(concurrency: u32) -> Schedule {
    let settings = Settings { concurrency, shard: Shard::WHOLE, seed: 1, first_index: 0, warmup: 0 };
    Schedule::Closed(Box::new(ClosedLoop::new(settings)))
}

fn open(rate: f64) -> Schedule {
    let plan = Plan::new(1, rate, Spacing::Constant, Shard::WHOLE).unwrap();
    let cap = NonZeroU32::new(100).unwrap();
    let open = Dispatch::new(OpenLoop::new(&plan, clock::now(), 0), cap, Duration::from_millis(100));
    Schedule::Open(Box::new(open))
}

impl Rig {
    async fn job(&self, id: u64, schedule: Schedule) -> Job {
        let prompts =
            self.preparer.prepare(prepare::Source { target: Arc::clone(&self.link.target), ..source("w") }).await;
        Job {
            id: DriverId(id),
            account: usize::try_from(id).unwrap(),
            schedule,
            link: self.link.clone(),
            prompts,
            slo: Slo::default(),
            grace: Duration::from_secs(60),
            connections: 2,
        }
    }

    async fn run(&self, id: u64, schedule: Schedule) {
        self.worker.run(self.job(id, schedule).await).await.unwrap().unwrap();
    }

    async fn collect(&self) -> Report<Counts> {
        self.worker.collect().await.unwrap().await.unwrap()
    }

    /// Waits until so many requests of an account have ended.
    async fn until_ended(&mut self, account: usize, count: usize) {
        let mut left = count;
        while left > 0 {
            left -= usize::from(self.ends.recv().await.unwrap().account == account);
        }
    }

    /// Collects until no load is left.
    async fn until_all_have_ended(&self, counts: &mut Counts) {
        loop {
            let report = self.collect().await;
            add(counts, report.delta);
            if report.drivers.is_empty() {
                return;
            }
        }
    }
}

fn add(counts: &mut Counts, delta: Counts) {
    for (account, delta) in delta {
        let sum = counts.entry(account).or_default();
        for (sum, delta) in sum.iter_mut().zip(delta) {
            *sum += delta;
        }
    }
}

#[tokio::test]
async fn several_loads_run_on_one_thread_and_each_count_is_given_once() {
    let mut rig = rig_that(false);
    rig.run(1, closed(3)).await;
    rig.run(2, open(200.0)).await;
    rig.run(3, open(50.0)).await;
    let mut counts = Counts::new();
    for _ in 0..20 {
        rig.until_ended(2, 5).await;
        add(&mut counts, rig.collect().await.delta);
    }
    let report = rig.collect().await;
    add(&mut counts, report.delta);
    assert_eq!(report.drivers.keys().map(|id| id.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(report.drivers[&DriverId(2)].next_index >= 100 && !report.drivers[&DriverId(2)].at_cap);
    for id in [1, 2, 3] {
        rig.worker.tell(DriverId(id), Event::Stop).await.unwrap();
    }
    rig.until_all_have_ended(&mut counts).await;
    for (account, [planned, shed, ended, connected]) in &counts {
        assert_eq!((*planned, *connected), (shed + ended, 2), "account {account}");
        assert!(*ended > 0);
    }
    assert_eq!(counts.len(), 3);
    // Nothing is left to be given a second time.
    assert!(rig.collect().await.delta.is_empty());
    rig.worker.join().unwrap();
}

#[tokio::test]
async fn a_load_that_has_ended_leaves_and_another_life_of_it_begins() {
    let mut rig = rig_that(false);
    for id in [1, 2] {
        rig.run(id, closed(1)).await;
        rig.until_ended(usize::try_from(id).unwrap(), 3).await;
        rig.worker.tell(DriverId(id), Event::Stop).await.unwrap();
        rig.until_all_have_ended(&mut Counts::new()).await;
        // What is told to it now concerns nobody.
        rig.worker.tell(DriverId(id), Event::Resume).await.unwrap();
        let change = Change { link: None, prompts: None, slo: Slo::default(), grace: Duration::ZERO };
        rig.worker.change(DriverId(id), change).await.unwrap().unwrap();
    }
    assert!(!rig.worker.is_gone());
}

#[tokio::test]
async fn a_question_that_nobody_waits_for_takes_nothing_away() {
    let (ends, _seen) = channel(1);
    let mut core = Core::new(Book { since: Counts::new(), ends, panics: false });
    core.recorder.borrow_mut().planned(1, 5);
    let mut beat = Beat::new();
    let (reply, answer) = oneshot::channel();
    drop(answer);
    core.obey(Command::Collect { reply }, &mut beat);
    let (reply, answer) = oneshot::channel();
    core.obey(Command::Collect { reply }, &mut beat);
    assert_eq!(answer.await.unwrap().delta, Counts::from([(1, [5, 0, 0, 0])]));
}

#[tokio::test]
async fn without_a_way_to_the_target_there_is_no_load() {
    let rig = rig_that(false);
    let bad = Header { name: "no name".to_owned(), value: Secret::new("x"), hidden: false };
    let secrets = Secrets { key: None, headers: vec![bad] };
    let link = Link { secrets, ..rig.link.clone() };
    let job = Job { link: link.clone(), ..rig.job(1, closed(1)).await };
    assert!(matches!(rig.worker.run(job).await.unwrap(), Err(LinkError::Client(_))));
    assert!(rig.collect().await.drivers.is_empty());
    // Nor does one that runs change.
    rig.run(2, closed(1)).await;
    let change = Change { link: Some(link), prompts: None, slo: Slo::default(), grace: Duration::ZERO };
    assert!(rig.worker.change(DriverId(2), change).await.unwrap().is_err());
}

#[tokio::test]
async fn other_prompts_are_waited_for_while_the_load_goes_on_with_the_old_ones() {
    let mut rig = rig_that(false);
    rig.run(1, closed(1)).await;
    let (queue, prompts) = by_hand();
    let change = Change { link: None, prompts: Some(prompts), slo: Slo::default(), grace: Duration::ZERO };
    {
        let seen = &mut rig.ends;
        let mut changing = pin!(rig.worker.change(DriverId(1), change));
        for _ in 0..5 {
            tokio::select! {
                biased;
                changed = &mut changing => unreachable!("there is none: {changed:?}"),
                ended = seen.recv() => assert_eq!(ended, Some(EndedOn { account: 1 })),
            }
        }
        let (body, request_id) = (bytes::Bytes::new(), "by-hand".to_owned());
        queue.try_send((0, Prepared { body, output_tokens: 1, request_id })).unwrap();
        changing.await.unwrap().unwrap();
    }
    // They belong to the load now.
    assert!(!queue.is_closed());
    drop(rig.worker);
    queue.closed().await;
}

#[tokio::test]
async fn a_panic_in_a_record_shows_as_gone() {
    let rig = rig_that(true);
    rig.run(1, closed(1)).await;
    // The answer does not come, or the question does not arrive.
    while let Ok(report) = rig.worker.collect().await {
        if report.await.is_err() {
            break;
        }
    }
    while !rig.worker.is_gone() {
        tokio::task::yield_now().await;
    }
    assert_eq!(rig.worker.tell(DriverId(1), Event::Stop).await, Err(Gone));
    let job = rig.job(2, closed(1)).await;
    assert!(matches!(rig.worker.run(job).await, Err(Gone)));
    assert_eq!(rig.worker.join(), Err(Gone));
}

#[tokio::test]
async fn dropping_it_ends_the_thread_and_all_on_it() {
    let mut rig = rig_that(false);
    rig.run(1, closed(2)).await;
    rig.run(2, open(100.0)).await;
    rig.until_ended(1, 3).await;
    drop(rig.worker);
    // The recorder lives as long as the thread, and with it the other end of this.
    while rig.ends.recv().await.is_some() {}
}

/// Says when the thread lets go of it, and holds a thread of its runtime until then, as a hanging resolver does.
struct Hanging {
    started: std::sync::mpsc::Sender<()>,
    released: Option<std::sync::mpsc::Receiver<()>>,
}

impl Record for Hanging {
    type Delta = ();

    fn planned(&mut self, _: usize, _: u64) {}
    fn shed(&mut self, _: usize, _: ShedReason, _: u64) {}
    fn connected(&mut self, _: usize, _: &ConnectPhases) {}
    fn ended(&mut self, _: usize, _: &Timeline, _: bool, _: &Slo) {}
    fn take(&mut self) {
        if let Some(released) = self.released.take() {
            let started = self.started.clone();
            drop(tokio::task::spawn_blocking(move || {
                started.send(()).unwrap();
                released.recv().ok();
            }));
        }
    }
}

#[tokio::test]
async fn a_look_up_that_hangs_does_not_keep_the_thread() {
    let (started, has_started) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let worker = Worker::start("load-0", move || Hanging { started, released: Some(released) }).unwrap();
    worker.collect().await.unwrap().await.unwrap();
    has_started.recv().unwrap();
    worker.join().unwrap();
    drop(release);
}

#[tokio::test(start_paused = true)]
async fn a_thread_that_comes_late_to_its_beat_says_by_how_much() {
    let mut beat = Beat::new();
    beat.next().await;
    assert!(beat.take(clock::now()) <= Duration::from_millis(1));
    tokio::time::advance(BEAT + Duration::from_millis(300)).await;
    // Also while it still is.
    let late = beat.take(clock::now());
    assert!(late >= Duration::from_millis(299), "{late:?}");
    beat.next().await;
    assert!(beat.take(clock::now()) >= Duration::from_millis(299));
    assert_eq!(beat.take(clock::now()), Duration::ZERO);
}
