//! The load threads and what runs on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::indices::Indices;
use super::spec::Spec;
use crate::clock;
use crate::load::schedule::Event;
use crate::load::worker::prepare::Preparer;
use crate::load::worker::{Change, DriverId, Gone, Job, Report, Standing, Worker};
use crate::measure::recorder::{Delta, Recorder};
use crate::watch::client_health::probe::current_thread_id;

/// How long a second's end waits for the load threads. One that takes longer answers with the next.
const PATIENCE: Duration = Duration::from_millis(250);

/// Where a load runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    worker: usize,
    driver: DriverId,
}

/// The load threads.
#[derive(Debug)]
pub(super) struct Fleet {
    workers: Vec<Hand>,
    most: usize,
    preparer: Preparer,
    next_driver: u64,
    indices: Indices,
}

#[derive(Debug)]
struct Hand {
    worker: Worker<Delta>,
    thread: Arc<AtomicU32>,
    loads: usize,
    /// A report that was asked for and has not come.
    asked: Option<oneshot::Receiver<Report<Delta>>>,
}

impl Fleet {
    /// No threads yet but the one that makes prompts. There will be one per core at most.
    pub(super) fn new(indices: Indices) -> anyhow::Result<Self> {
        let most = thread::available_parallelism().map_or(1, usize::from);
        let preparer = Preparer::start().context("cannot start the thread that makes prompts")?;
        Ok(Self { workers: Vec::new(), most, preparer, next_driver: 0, indices })
    }

    /// Starts a load on the thread that carries the fewest. One that is `paused` sends nothing until it is told to go on.
    pub(super) async fn start(&mut self, spec: &Spec, account: usize, paused: bool) -> anyhow::Result<Place> {
        self.indices.begins(&spec.name).await;
        let first_index = self.indices.first(&spec.name);
        let worker = self.least_busy()?;
        let driver = DriverId(self.next_driver);
        let now = clock::now();
        let mut schedule = spec.schedule(first_index, now)?;
        if paused {
            // Before its first instant and not after the start, when it might have sent something. So there is nothing to count.
            schedule.apply(now.checked_sub(Duration::from_nanos(1)).unwrap_or(now), Event::Pause, |_| {});
        }
        let job = Job {
            id: driver,
            account,
            schedule,
            link: spec.link.clone(),
            prompts: self.preparer.prepare(spec.source(first_index, first_index)).await,
            slo: spec.load.slo,
            grace: spec.load.grace,
            connections: spec.connections_ahead(),
        };
        let hand = self.hand(worker)?;
        hand.worker.run(job).await??;
        hand.loads += 1;
        self.next_driver += 1;
        Ok(Place { worker, driver })
    }

    /// Changes a load in place. `link` and `content`: see [`super::spec::Difference`]; `from` is its next index.
    pub(super) async fn change(
        &mut self,
        place: Place,
        spec: &Spec,
        link: bool,
        content: Option<u64>,
    ) -> anyhow::Result<()> {
        let prompts = match content {
            Some(from) => Some(self.preparer.prepare(spec.source(self.indices.first(&spec.name), from)).await),
            None => None,
        };
        let link = link.then(|| spec.link.clone());
        let change = Change { link, prompts, slo: spec.load.slo, grace: spec.load.grace };
        self.hand(place.worker)?.worker.change(place.driver, change).await??;
        Ok(())
    }

    /// Tells a load's schedule.
    pub(super) async fn tell(&self, place: Place, event: Event) -> Result<(), Gone> {
        self.workers.get(place.worker).ok_or(Gone)?.worker.tell(place.driver, event).await
    }

    /// A load has ended, or is about to: another of its name begins behind `next_index`.
    pub(super) fn leaves(&mut self, name: &str, next_index: u64) {
        self.indices.leaves(name, next_index);
    }

    /// Sees to it that no index is used again: these loads have come so far.
    pub(super) fn keep_indices<'a>(&mut self, reached: impl Iterator<Item = (&'a str, u64)>) {
        reached.for_each(|(name, next_index)| self.indices.reached(name, next_index));
        self.indices.keep();
    }

    /// Whether the indices are on disk, if they are to be.
    pub(super) fn are_indices_saved(&self) -> bool {
        self.indices.is_saved()
    }

    /// A load is gone from its thread.
    pub(super) fn ended(&mut self, place: Place) {
        if let Some(hand) = self.workers.get_mut(place.worker) {
            hand.loads = hand.loads.saturating_sub(1);
        }
    }

    /// What the threads have recorded since the last time. Those that do not answer in time are asked no further question until
    /// they have; so nothing is lost and nothing is counted twice.
    pub(super) async fn collect(&mut self) -> Result<Vec<(usize, Report<Delta>)>, Gone> {
        for hand in &mut self.workers {
            if hand.asked.is_none() {
                hand.asked = Some(hand.worker.collect().await?);
            }
        }
        let deadline = clock::now() + PATIENCE;
        let mut reports = Vec::new();
        for (worker, hand) in self.workers.iter_mut().enumerate() {
            let Some(asked) = &mut hand.asked else { continue };
            if let Ok(answer) = timeout_at(deadline, asked).await {
                reports.push((worker, answer.map_err(|_| Gone)?));
                hand.asked = None;
            }
        }
        Ok(reports)
    }

    /// How a load stands, if its thread has reported and has it.
    pub(super) fn standing(reports: &[(usize, Report<Delta>)], place: Place) -> Option<Option<Standing>> {
        let (_, report) = reports.iter().find(|(worker, _)| *worker == place.worker)?;
        Some(report.drivers.get(&place.driver).copied())
    }

    /// The system's ids of the load threads.
    pub(super) fn threads(&self) -> Vec<u32> {
        self.workers.iter().map(|hand| hand.thread.load(Ordering::Relaxed)).filter(|id| *id != 0).collect()
    }

    /// Whether every thread is alive.
    pub(super) fn is_whole(&self) -> bool {
        !self.preparer.is_gone() && self.workers.iter().all(|hand| !hand.worker.is_gone())
    }

    fn hand(&mut self, worker: usize) -> Result<&mut Hand, Gone> {
        self.workers.get_mut(worker).ok_or(Gone)
    }

    fn least_busy(&mut self) -> anyhow::Result<usize> {
        let idlest = self.workers.iter().enumerate().min_by_key(|(_, hand)| hand.loads);
        let idlest = idlest.map(|(worker, hand)| (worker, hand.loads));
        if let Some((worker, loads)) = idlest
            && (loads == 0 || self.workers.len() >= self.most)
        {
            return Ok(worker);
        }
        let worker = self.workers.len();
        let thread = Arc::new(AtomicU32::new(0));
        let noted = Arc::clone(&thread);
        let started = Worker::start(&format!("load-{worker}"), move || {
            noted.store(current_thread_id(), Ordering::Relaxed);
            Recorder::new(0)
        });
        let started = started.context("cannot start a load thread")?;
        self.workers.push(Hand { worker: started, thread, loads: 0, asked: None });
        Ok(worker)
    }
}
