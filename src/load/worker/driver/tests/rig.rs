//! A driver under a paused clock, the gateway that it asks, and the book in which it is recorded.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::sleep;

use super::*;
use crate::config::secrets::Secrets;
use crate::config::sections::tests::target;
use crate::domain::arrival::Arrival;
use crate::domain::timeline::Timeline;
use crate::load::client::dial::{Dial, DialError, Dialed, Dialing};
use crate::load::client::tls;
use crate::load::schedule::closed::{ClosedLoop, Settings};
use crate::load::schedule::dispatch::Dispatch;
use crate::load::schedule::open::OpenLoop;
use crate::load::schedule::plan::{Plan, Shard, Spacing};
use crate::load::worker::prepare::tests::{made_here, source};
use crate::load::worker::{BEAT, DriverId, Link};

const BODY: &str = concat!(
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}],\"usage\":{\"completion_tokens\":2}}\n\n",
    "data: [DONE]\n\n"
);

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Runs a test where a load can run. The clock is the test's own, and paused.
pub(super) async fn on_one_thread(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}

// ---- the gateway ----

/// What it does with the requests and connections that come from now on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Manner {
    Answers {
        after: Duration,
    },
    /// Says nothing to a request, for ever.
    Hangs,
    /// An empty answer with this status, at once.
    Status(u16),
    /// No connection comes up, at once.
    Refuses,
    /// No connection comes up, and nobody says so.
    IsUnreachable,
}

/// A request as it arrived there.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    pub(super) at: Instant,
    /// The load's name in its id.
    pub(super) load: String,
    pub(super) index: u64,
}

#[derive(Debug)]
pub(super) struct Gateway {
    pub(super) manner: Cell<Manner>,
    pub(super) dial_takes: Cell<Duration>,
    pub(super) dials: Cell<usize>,
    /// Dials under way now, and the most there were.
    pub(super) dialing: Cell<(usize, usize)>,
    /// Requests not yet answered, and the most there were.
    pub(super) holds: Cell<(usize, usize)>,
    pub(super) asked: RefCell<Vec<Asked>>,
}

impl Gateway {
    pub(super) fn new(manner: Manner) -> Rc<Self> {
        Rc::new(Self {
            manner: Cell::new(manner),
            dial_takes: Cell::new(Duration::ZERO),
            dials: Cell::new(0),
            dialing: Cell::new((0, 0)),
            holds: Cell::new((0, 0)),
            asked: RefCell::default(),
        })
    }

    pub(super) fn client(self: &Rc<Self>) -> Client {
        Client::new(&target("http://gateway"), Secrets::default(), Box::new(Line(Rc::clone(self)))).unwrap()
    }

    pub(super) fn indices(&self) -> Vec<u64> {
        self.asked.borrow().iter().map(|asked| asked.index).collect()
    }

    /// When each request came.
    pub(super) fn instants(&self, since: Instant) -> Vec<Duration> {
        self.asked.borrow().iter().map(|asked| asked.at - since).collect()
    }

    async fn serve(self: Rc<Self>, mut stream: DuplexStream) {
        let mut bytes = Vec::new();
        while let Some(asked) = request(&mut stream, &mut bytes).await {
            self.asked.borrow_mut().push(asked);
            let held = Held::one_more(&self.holds);
            let response = match self.manner.get() {
                Manner::Status(status) => format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n"),
                Manner::Answers { after } => {
                    let length = BODY.len();
                    sleep(after).await;
                    format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n{BODY}"
                    )
                }
                Manner::Hangs | Manner::Refuses | Manner::IsUnreachable => {
                    // Until the client hangs up.
                    stream.read_buf(&mut bytes).await.ok();
                    return;
                }
            };
            drop(held);
            if stream.write_all(response.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// One more in a cell of (now, most), as long as this lives.
struct Held<'a>(&'a Cell<(usize, usize)>);

impl<'a> Held<'a> {
    fn one_more(cell: &'a Cell<(usize, usize)>) -> Self {
        let (now, most) = cell.get();
        cell.set((now + 1, most.max(now + 1)));
        Self(cell)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let (now, most) = self.0.get();
        self.0.set((now - 1, most));
    }
}

/// Reads one request; `None` when the client has hung up.
async fn request(stream: &mut DuplexStream, bytes: &mut Vec<u8>) -> Option<Asked> {
    loop {
        let text = String::from_utf8_lossy(bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let value = |name| head.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
            let length: usize = value("content-length:").parse().unwrap();
            if body.len() >= length {
                bytes.drain(..head.len() + 4 + length);
                let mut id = value("x-request-id:").split('-');
                let (load, index) = (id.next().unwrap().to_owned(), id.next().unwrap().parse().unwrap());
                return Some(Asked { at: clock::now(), load, index });
            }
        }
        if stream.read_buf(bytes).await.unwrap() == 0 {
            return None;
        }
    }
}

struct Line(Rc<Gateway>);

impl Dial for Line {
    fn dial(&self, deadline: Instant) -> Dialing<'_> {
        let gateway = &self.0;
        Box::pin(async move {
            gateway.dials.set(gateway.dials.get() + 1);
            let _dialing = Held::one_more(&gateway.dialing);
            match gateway.manner.get() {
                Manner::IsUnreachable => {
                    let began = clock::now();
                    sleep_until(deadline).await;
                    return Err(DialError::Timeout { phase: "tcp", after: deadline - began });
                }
                Manner::Refuses => {
                    let source = std::io::ErrorKind::ConnectionRefused.into();
                    return Err(DialError::Connect { address: ([127, 0, 0, 1], 1).into(), source });
                }
                Manner::Answers { .. } | Manner::Hangs | Manner::Status(_) => {}
            }
            sleep(gateway.dial_takes.get()).await;
            let (near, far) = duplex(64 << 10);
            spawn_local(Rc::clone(gateway).serve(far));
            let phases = ConnectPhases { dns: None, tcp: Some(gateway.dial_takes.get()), tls: None };
            Ok(Dialed { stream: Box::new(near), phases })
        })
    }
}

// ---- the book ----

#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) arrival: Arrival,
    pub(super) outcome: Outcome,
    pub(super) warmup: bool,
    pub(super) at: Instant,
    pub(super) sent_at: Option<Instant>,
    pub(super) first_at: Option<Instant>,
    /// A connection was opened for it.
    pub(super) opened: bool,
}

/// Everything that was recorded. It holds the law up to anyone who records an end.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) planned: u64,
    pub(super) shed: BTreeMap<ShedReason, u64>,
    pub(super) ended: Vec<Ended>,
    pub(super) connected: usize,
    /// Ending a request is to panic.
    pub(super) breaks: bool,
}

impl Book {
    pub(super) fn shed(&self, reason: ShedReason) -> u64 {
        self.shed.get(&reason).copied().unwrap_or(0)
    }

    /// Planned, and neither shed nor ended.
    pub(super) fn in_flight(&self) -> u64 {
        self.planned.checked_sub(self.shed.values().sum::<u64>() + self.ended.len() as u64).expect("more than planned")
    }

    /// Requests by how they ended.
    pub(super) fn outcomes(&self) -> BTreeMap<Outcome, usize> {
        let mut outcomes = BTreeMap::new();
        for ended in &self.ended {
            *outcomes.entry(ended.outcome).or_insert(0) += 1;
        }
        outcomes
    }
}

impl Record for Book {
    type Delta = ();

    fn planned(&mut self, account: usize, count: u64) {
        assert!(account == 7 && count > 0);
        self.planned += count;
    }
    fn shed(&mut self, account: usize, reason: ShedReason, count: u64) {
        assert!(account == 7 && count > 0);
        *self.shed.entry(reason).or_insert(0) += count;
    }
    fn connected(&mut self, account: usize, _: &ConnectPhases) {
        assert_eq!(account, 7);
        self.connected += 1;
    }
    fn ended(&mut self, account: usize, timeline: &Timeline, warmup: bool, _: &Slo) {
        assert!(account == 7 && !self.breaks, "told to");
        self.ended.push(Ended {
            arrival: timeline.arrival,
            outcome: timeline.outcome,
            warmup,
            at: timeline.ended_at,
            sent_at: timeline.sent_at,
            first_at: timeline.answer.first_at(),
            opened: timeline.opened.is_some(),
        });
        self.in_flight();
    }
    fn take(&mut self) {}
}

// ---- both, and the load between them ----

pub(super) struct Rig {
    pub(super) gateway: Rc<Gateway>,
    pub(super) book: Rc<RefCell<Book>>,
    pub(super) driver: Rc<Driver<Book>>,
    pub(super) running: JoinHandle<()>,
    /// When it was started; without anything to wait for, also when it began.
    pub(super) start: Instant,
}

pub(super) fn plan(rate: f64) -> Plan {
    Plan::new(5, rate, Spacing::Constant, Shard::WHOLE).unwrap()
}

pub(super) fn open(rate: f64, max_in_flight: u32) -> Schedule {
    // Made long before it begins, as a configuration is.
    let open = OpenLoop::new(&plan(rate), clock::now() - ms(60_000), 0);
    Schedule::Open(Box::new(Dispatch::new(open, NonZeroU32::new(max_in_flight).unwrap(), ms(100))))
}

pub(super) fn closed(concurrency: u32) -> Schedule {
    let settings = Settings { concurrency, shard: Shard::WHOLE, seed: 5, first_index: 0, warmup: 0 };
    Schedule::Closed(Box::new(ClosedLoop::new(settings)))
}

pub(super) fn link() -> Link {
    let target = std::sync::Arc::new(target("http://gateway"));
    Link { target, secrets: Secrets::default(), tls: tls::client_config(None).unwrap() }
}

pub(super) fn job(schedule: Schedule, prompts: Prompts) -> Job {
    let (id, slo, grace) = (DriverId(1), Slo::default(), ms(30_000));
    Job { id, account: 7, schedule, link: link(), prompts, slo, grace, connections: 0 }
}

impl Rig {
    /// Runs a load with prompts that are always there.
    pub(super) fn new(manner: Manner, schedule: Schedule) -> Self {
        Self::of(Gateway::new(manner), job(schedule, made_here(source("old"))))
    }

    /// The same after its connections have been opened.
    pub(super) fn connecting(gateway: &Rc<Gateway>, schedule: Schedule, connections: u32) -> Self {
        Self::of(Rc::clone(gateway), Job { connections, ..job(schedule, made_here(source("old"))) })
    }

    pub(super) fn of(gateway: Rc<Gateway>, job: Job) -> Self {
        let book = Rc::new(RefCell::new(Book::default()));
        let (driver, running) = Driver::new(job, gateway.client(), Rc::clone(&book), Pacer::simulated());
        Self { gateway, book, driver, running: spawn_local(running), start: clock::now() }
    }

    /// So long after the start. Everything that is due before that has happened, its thread's beat included.
    pub(super) async fn at(&self, since_start: Duration) {
        let until = self.start + since_start;
        while clock::now() < until {
            self.driver.keep_abreast();
            sleep_until(until.min(clock::now() + BEAT)).await;
        }
        self.check();
    }

    pub(super) fn tell(&self, event: Event) {
        self.driver.tell(event);
    }

    /// Tells it to stop and waits for its end. Gives how long that took.
    pub(super) async fn stop(&mut self) -> Duration {
        let told = clock::now();
        self.tell(Event::Stop);
        (&mut self.running).await.unwrap();
        assert_eq!(self.book.borrow().in_flight(), 0, "what was planned was shed or has ended");
        self.check_indices();
        clock::now() - told
    }

    /// The law, between what was recorded and what the schedule knows; while nothing is due.
    pub(super) fn check(&self) {
        let (book, schedule) = (self.book.borrow(), self.driver.schedule.borrow());
        let tally = schedule.tally();
        assert_eq!(book.planned, tally.planned);
        let no_prompt = book.shed(ShedReason::NoPrompt);
        assert_eq!(book.shed.values().sum::<u64>(), tally.shed_total() + no_prompt);
        let waiting = match &*schedule {
            Schedule::Open(open) => open.gate().waiting() as u64,
            Schedule::Closed(_) => 0,
        };
        assert_eq!(book.in_flight(), tally.sent - no_prompt - book.ended.len() as u64 + waiting);
        if let (Schedule::Open(open), false) = (&*schedule, schedule.is_stopped()) {
            assert_eq!(book.in_flight(), u64::from(open.gate().in_flight()) + waiting);
        }
    }

    /// No index was sent twice. Those that have to connect first may come after later ones.
    pub(super) fn check_indices(&self) {
        let mut indices = self.gateway.indices();
        indices.sort_unstable();
        let twice: Vec<_> = indices.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}
