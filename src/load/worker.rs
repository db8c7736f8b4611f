//! The threads that carry the loads: one current-thread runtime per core, each load on one of them.
//!
//! ```text
//! prepare (own thread) ─► bounded queue ─► driver: schedule ─► request ─► client ─► Timeline ─► recorder
//!                                          └──────────── one worker's thread ──────────────────────────┘
//! ```
//!
//! # Decisions
//! * **A load lives on one thread**, with its schedule, its connections and its recorder. Nothing on the path of an event is
//!   shared or locked, and the other loads' threads cannot make it late. One core carries more than a million streamed tokens a second;
//!   whoever needs more makes two loads of one.
//! * **Control comes as a message and goes as one.** Once a second the owner asks for what was recorded; the answer is made
//!   between two events, so it is consistent in itself. A worker that does not answer in time answers later: nothing is lost.
//! * **What is recorded is not this part's business**: the worker is given a [`Record`].
//! * **A panic is not survived.** A worker whose thread is gone shows as closed, and the owner ends the process; counts that might
//!   be wrong are worth less than none.

pub mod prepare;

mod driver;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep_until};

use self::driver::Driver;
use self::prepare::Prompts;
use crate::clock;
use crate::clock::pacer::Pacer;
use crate::config::secrets::Secrets;
use crate::config::sections::Target;
use crate::domain::shed::ShedReason;
use crate::domain::slo::Slo;
use crate::domain::timeline::{ConnectPhases, Timeline};
use crate::load::client::dial::{DialerError, NetDialer};
use crate::load::client::tls::TlsConfig;
use crate::load::client::{Client, ClientError};
use crate::load::schedule::{Event, Schedule};

/// Commands that may wait for a worker.
const COMMANDS: usize = 64;

/// How often a worker looks whether it still comes to its events in time, and its loads whether their prompts do.
const BEAT: Duration = Duration::from_millis(20);

/// What happens to the requests of a worker, for whoever counts it. Belongs to one thread.
pub trait Record {
    /// What was recorded in some time.
    type Delta: Send + 'static;

    /// The schedule planned so many requests: each of them will be shed or end.
    fn planned(&mut self, account: usize, count: u64);
    /// So many were dropped unsent.
    fn shed(&mut self, account: usize, reason: ShedReason, count: u64);
    /// A connection was opened ahead of its request.
    fn connected(&mut self, account: usize, phases: &ConnectPhases);
    /// A request ended, whatever its outcome.
    fn ended(&mut self, account: usize, timeline: &Timeline, warmup: bool, slo: &Slo);
    /// Everything since the last time.
    fn take(&mut self) -> Self::Delta;
}

/// One life of a load on a worker. A load that is started anew has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverId(pub u64);

/// Everything that a load needs to run.
#[derive(Debug)]
pub struct Job {
    /// Which.
    pub id: DriverId,
    /// Under which account its requests are recorded.
    pub account: usize,
    /// When they leave. It has not begun.
    pub schedule: Schedule,
    /// Where they go.
    pub link: Link,
    /// What they hold.
    pub prompts: Prompts,
    /// What a good one keeps.
    pub slo: Slo,
    /// How long they may go on when the schedule has stopped.
    pub grace: Duration,
    /// How many connections are opened before the schedule begins.
    pub connections: u32,
}

/// The way to a target: what a client is made of.
#[derive(Debug, Clone)]
pub struct Link {
    /// The target.
    pub target: Arc<Target>,
    /// Its key and secret headers.
    pub secrets: Secrets,
    /// Whom it trusts.
    pub tls: TlsConfig,
}

/// Why there is no way to a target. Each is a fault that the check of the configuration should have found.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The URL cannot be connected to.
    #[error(transparent)]
    Dialer(#[from] DialerError),
    /// A header cannot be sent.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl Link {
    /// A client for the target.
    ///
    /// # Errors
    /// When the URL cannot be connected to, or a header cannot be sent.
    pub fn client(&self) -> Result<Client, LinkError> {
        let dialer = NetDialer::new(&self.target.request_url(), &self.tls)?;
        Ok(Client::new(&self.target, self.secrets.clone(), Box::new(dialer))?)
    }
}

/// What can be changed of a load that runs; requests in flight go on as they were.
#[derive(Debug)]
pub struct Change {
    /// Another way to the target.
    pub link: Option<Link>,
    /// Other prompts, of the same shard. [`Prompts::seek`] tells them beforehand where the load is ([`Standing::next_index`]).
    pub prompts: Option<Prompts>,
    /// The objectives.
    pub slo: Slo,
    /// The grace period.
    pub grace: Duration,
}

enum Command<D> {
    Start { job: Box<Job>, reply: oneshot::Sender<Result<(), LinkError>> },
    Tell { driver: DriverId, event: Event },
    Change { driver: DriverId, change: Box<Change>, reply: oneshot::Sender<Result<(), LinkError>> },
    Collect { reply: oneshot::Sender<Report<D>> },
}

/// What a worker has to say, once a second.
#[derive(Debug)]
pub struct Report<D> {
    /// What was recorded since the last one.
    pub delta: D,
    /// How each load stands.
    pub drivers: BTreeMap<DriverId, Standing>,
    /// The longest time since the last one that the thread came late to a timer; up to 1 ms of it is the timer's own.
    pub event_loop_delay: Duration,
}

/// How a load stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// As many requests are under way as may be.
    pub at_cap: bool,
    /// Time at rest since its start, as a share of the workers.
    pub rested: Duration,
    /// The index of the next request.
    pub next_index: u64,
}

/// That a worker's thread has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a load thread has ended")]
pub struct Gone;

/// A thread that carries loads. Dropping it ends the thread, after [`Worker::join`] for certain.
pub struct Worker<D> {
    commands: mpsc::Sender<Command<D>>,
    thread: thread::JoinHandle<()>,
}

impl<D> fmt::Debug for Worker<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("thread", &self.thread.thread().name()).finish_non_exhaustive()
    }
}

impl<D: Send + 'static> Worker<D> {
    /// Starts a thread. `made` runs on it first: it makes the recorder, and may note which thread it is.
    ///
    /// # Errors
    /// When the system has no thread or no descriptors left.
    pub fn start<R: Record<Delta = D> + 'static>(
        name: &str,
        made: impl FnOnce() -> R + Send + 'static,
    ) -> io::Result<Self> {
        let (commands, received) = mpsc::channel(COMMANDS);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let recorder = made();
            LocalSet::new().block_on(&runtime, Core::new(recorder).run(received));
            // A look-up of a name that hangs in the system's resolver cannot be ended, and is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { commands, thread })
    }

    /// Starts a load.
    ///
    /// # Errors
    /// [`Gone`]; or, within, that there is no way to its target.
    pub async fn run(&self, job: Job) -> Result<Result<(), LinkError>, Gone> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Start { job: Box::new(job), reply }).await?;
        answer.await.map_err(|_| Gone)
    }

    /// Tells the schedule of a load. One that has ended does not hear it.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn tell(&self, driver: DriverId, event: Event) -> Result<(), Gone> {
        self.send(Command::Tell { driver, event }).await
    }

    /// Changes a load in place, once the first of its other prompts is ready: until then it goes on as it was, and sheds nothing.
    ///
    /// # Errors
    /// [`Gone`]; or, within, that there is no way to its target. Then nothing has changed.
    pub async fn change(&self, driver: DriverId, mut change: Change) -> Result<Result<(), LinkError>, Gone> {
        if let Some(prompts) = &mut change.prompts {
            poll_fn(|cx| prompts.poll_ready(cx)).await;
        }
        let (reply, answer) = oneshot::channel();
        self.send(Command::Change { driver, change: Box::new(change), reply }).await?;
        answer.await.map_err(|_| Gone)
    }

    /// Asks for what was recorded since the last time. The answer may be taken later, but has to be: it is made once, and what is
    /// in it is in no other.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn collect(&self) -> Result<oneshot::Receiver<Report<D>>, Gone> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Collect { reply }).await?;
        Ok(answer)
    }

    /// Whether the thread has ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the thread and everything on it; what was recorded since the last report is lost.
    ///
    /// # Errors
    /// [`Gone`] when it panicked.
    pub fn join(self) -> Result<(), Gone> {
        drop(self.commands);
        self.thread.join().map_err(|_| Gone)
    }

    async fn send(&self, command: Command<D>) -> Result<(), Gone> {
        self.commands.send(command).await.map_err(|_| Gone)
    }
}

/// What lives on the thread.
struct Core<R: Record> {
    recorder: Rc<RefCell<R>>,
    drivers: BTreeMap<DriverId, Rc<Driver<R>>>,
    tasks: JoinSet<DriverId>,
}

impl<R: Record + 'static> Core<R> {
    fn new(recorder: R) -> Self {
        Self { recorder: Rc::new(RefCell::new(recorder)), drivers: BTreeMap::new(), tasks: JoinSet::new() }
    }

    /// Until the owner is gone.
    async fn run(mut self, mut commands: mpsc::Receiver<Command<R::Delta>>) {
        let mut beat = Beat::new();
        loop {
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => self.obey(command, &mut beat),
                    None => return,
                },
                Some(ended) = self.tasks.join_next() => drop(self.drivers.remove(&or_panic(ended))),
                () = beat.next() => self.drivers.values().for_each(|driver| driver.keep_abreast()),
            }
        }
    }

    fn obey(&mut self, command: Command<R::Delta>, beat: &mut Beat) {
        // Whoever asked may have gone away meanwhile: then the answer concerns nobody.
        match command {
            Command::Start { job, reply } => drop(reply.send(self.start(*job))),
            Command::Tell { driver, event } => {
                if let Some(driver) = self.drivers.get(&driver) {
                    driver.tell(event);
                }
            }
            Command::Change { driver, change, reply } => {
                let changed = self.drivers.get(&driver).map_or(Ok(()), |driver| driver.change(*change));
                drop(reply.send(changed));
            }
            // Nobody waits any more: what was recorded stays for the next who asks.
            Command::Collect { reply } if reply.is_closed() => {}
            Command::Collect { reply } => {
                let now = clock::now();
                let drivers = self.drivers.iter().map(|(id, driver)| (*id, driver.standing(now))).collect();
                let delta = self.recorder.borrow_mut().take();
                drop(reply.send(Report { delta, drivers, event_loop_delay: beat.take(now) }));
            }
        }
    }

    fn start(&mut self, job: Job) -> Result<(), LinkError> {
        let client = job.link.client()?;
        let id = job.id;
        let (driver, running) = Driver::new(job, client, Rc::clone(&self.recorder), Pacer::precise());
        self.drivers.insert(id, driver);
        self.tasks.spawn_local(async move {
            running.await;
            id
        });
        Ok(())
    }
}

/// Looks whether the thread comes to its timers in time.
#[derive(Debug)]
struct Beat {
    due: Instant,
    longest: Duration,
}

impl Beat {
    fn new() -> Self {
        Self { due: clock::now() + BEAT, longest: Duration::ZERO }
    }

    async fn next(&mut self) {
        sleep_until(self.due).await;
        let now = clock::now();
        self.longest = self.longest.max(now.saturating_duration_since(self.due));
        self.due = now + BEAT;
    }

    /// The longest delay since the last time; one that is still going on counts too.
    fn take(&mut self, now: Instant) -> Duration {
        std::mem::take(&mut self.longest).max(now.saturating_duration_since(self.due))
    }
}

/// What a task returned. A panic goes on: see the module's header.
fn or_panic<T>(ended: Result<T, tokio::task::JoinError>) -> T {
    match ended {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests;
