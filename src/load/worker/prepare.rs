//! Prompts made ahead, so that making one never delays a send.
//!
//! One thread makes them for all loads, each into a bounded queue of its own. A queue that is empty when a request is due
//! means that this thread does not keep up: the request is shed as `no_prompt`, which taints. A load that skips arrivals
//! (a pause, an outage) tells the thread how far it is, so that it neither makes prompts that nobody will send nor has to catch up
//! when the load goes on.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::thread;

use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, yield_now};
use tracing::error;

use super::or_panic;
use crate::config::sections::Target;
use crate::load::client::Prepared;
use crate::load::prompt::{self, Part, Stream};
use crate::load::schedule::plan::Shard;

/// Loads that may wait to have their prompts begun.
const JOBS: usize = 64;

/// The most that the prompts of one load may take in memory, as a guess from their length.
const QUEUE_BYTES: usize = 8 << 20;

/// What a token takes in a body: a word, at most of the built-in list, with its space.
const TOKEN_BYTES: usize = 10;

/// The fewest and the most prompts that are kept ready.
const LEAST: usize = 4;
const MOST: usize = 1024;

/// What a load's prompts are made of.
#[derive(Debug, Clone)]
pub struct Source {
    /// The load, for the request's id.
    pub load: String,
    /// Whose requests they are for.
    pub target: Arc<Target>,
    /// What they hold.
    pub prompts: Arc<prompt::Source>,
    /// Indices begin here, over all shards.
    pub first_index: u64,
    /// The lowest index that is of use: those before it have been sent.
    pub from: u64,
    /// Whose indices are made.
    pub shard: Shard,
    /// How many are needed in a second, about; no promise.
    pub per_second: f64,
}

/// The thread that makes prompts.
pub struct Preparer {
    jobs: mpsc::Sender<Job>,
    thread: thread::JoinHandle<()>,
}

impl fmt::Debug for Preparer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preparer").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Job {
    source: Source,
    queue: mpsc::Sender<(u64, Prepared)>,
    wanted: Arc<AtomicU64>,
}

/// The prompts of one load, in the order of their indices. Belongs to one thread.
#[derive(Debug)]
pub struct Prompts {
    queue: mpsc::Receiver<(u64, Prepared)>,
    /// The first that nobody has taken.
    head: Option<(u64, Prepared)>,
    /// The lowest index that is still of use.
    wanted: Arc<AtomicU64>,
}

impl Preparer {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no thread or no descriptors left.
    pub fn start() -> io::Result<Self> {
        let (jobs, mut received) = mpsc::channel::<Job>(JOBS);
        let runtime = Builder::new_current_thread().build()?;
        let thread = thread::Builder::new().name("prompts".to_owned()).spawn(move || {
            runtime.block_on(async {
                let mut making = JoinSet::new();
                loop {
                    tokio::select! {
                        job = received.recv() => match job {
                            Some(job) => drop(making.spawn(make(job))),
                            None => return,
                        },
                        // A panic goes on: a load whose prompts have ended would shed all it has, for ever.
                        Some(made) = making.join_next() => or_panic(made),
                    }
                }
            });
        })?;
        Ok(Self { jobs, thread })
    }

    /// Begins to make the prompts of a load; ends by itself when they are dropped.
    pub async fn prepare(&self, source: Source) -> Prompts {
        let (prompts, job) = begun(source);
        // Fails when the thread is gone: then the queue is closed, and `is_gone` says so.
        self.jobs.send(job).await.ok();
        prompts
    }

    /// Whether the thread has ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.thread.is_finished()
    }
}

impl Prompts {
    /// The prompt with this index, if it is ready. Those before it are dropped: indices only rise.
    pub fn take(&mut self, index: u64) -> Option<Prepared> {
        self.seek(index);
        self.head.take_if(|(at, _)| *at == index).map(|(_, prepared)| prepared)
    }

    /// No prompt with a lower index will be wanted.
    pub fn seek(&mut self, index: u64) {
        self.wanted.fetch_max(index, Ordering::Relaxed);
        while self.head.as_ref().is_none_or(|(at, _)| *at < index) {
            self.head = self.queue.try_recv().ok();
            if self.head.is_none() {
                return;
            }
        }
    }

    /// Ready when there is a prompt that is still of use, or when there will be none.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let wanted = self.wanted.load(Ordering::Relaxed);
        while self.head.as_ref().is_none_or(|(at, _)| *at < wanted) {
            self.head = ready!(self.queue.poll_recv(cx));
            if self.head.is_none() {
                break;
            }
        }
        Poll::Ready(())
    }
}

fn begun(source: Source) -> (Prompts, Job) {
    let (queue, received) = mpsc::channel(capacity(&source));
    let wanted = Arc::new(AtomicU64::new(source.from));
    (Prompts { queue: received, head: None, wanted: Arc::clone(&wanted) }, Job { source, queue, wanted })
}

/// How many are kept ready: those of a second, within what memory allows.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and the cast saturates")]
fn capacity(source: &Source) -> usize {
    let tokens = usize::try_from(source.prompts.most_input_tokens()).unwrap_or(usize::MAX);
    let affordable = QUEUE_BYTES / tokens.saturating_mul(TOKEN_BYTES).saturating_add(1024);
    (source.per_second.ceil() as usize).clamp(64, MOST).min(affordable).max(LEAST)
}

async fn make(Job { source, queue, wanted }: Job) {
    let stream = Stream { load: source.load.clone(), shard: source.shard, part: Part::Measured };
    let mut n = 0;
    while let Ok(place) = queue.reserve().await {
        n = n.max(ordinal(&source, wanted.load(Ordering::Relaxed)));
        let index = source.first_index + source.shard.position(n);
        let prompt = match source.prompts.prompt(&stream, index) {
            Ok(prompt) => prompt,
            Err(error) => {
                // Its file is not what it was; nothing that is read from it now could be made again.
                error!(load = source.load, %error, "no more prompts: what is due is shed as no_prompt until a reload");
                return;
            }
        };
        place.send((index, Prepared::new(&source.target, &prompt, &source.load, index)));
        n += 1;
        // The other loads' turn.
        yield_now().await;
    }
}

/// Which of its shard the first index at or above this one is.
fn ordinal(source: &Source, index: u64) -> u64 {
    let first = source.first_index + source.shard.position(0);
    let step = source.shard.position(1) - source.shard.position(0);
    index.saturating_sub(first).div_ceil(step)
}

#[cfg(test)]
pub(super) mod tests;
