//! One load on its thread: the schedule says when, the prompts say what, and each request is a task of its own.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::prepare::Prompts;
use super::{Change, Job, LinkError, Record, Standing, or_panic};
use crate::clock;
use crate::clock::pacer::Pacer;
use crate::domain::outcome::Outcome;
use crate::domain::shed::ShedReason;
use crate::domain::slo::Slo;
use crate::domain::timeline::ConnectPhases;
use crate::load::client::{Client, Prepared};
use crate::load::schedule::pace::pace;
use crate::load::schedule::{Due, End, Event, Issue, Schedule};

/// News for the schedule that may wait. A request that has ended waits for a place with its task, which costs nothing.
const EVENTS: usize = 1024;

/// Connections that are opened at the same time before a closed loop begins.
const DIALS: usize = 16;

/// One load. What is in cells is changed in place between two events of its thread.
pub(super) struct Driver<R> {
    account: usize,
    schedule: RefCell<Schedule>,
    client: RefCell<Rc<Client>>,
    prompts: RefCell<Prompts>,
    slo: Cell<Slo>,
    grace: Cell<Duration>,
    recorder: Rc<RefCell<R>>,
    events: mpsc::Sender<Event>,
    /// True once the grace period is over.
    over: watch::Sender<bool>,
}

impl<R: Record + 'static> Driver<R> {
    /// A load, and the future that runs it to its end.
    pub(super) fn new(
        job: Job,
        client: Client,
        recorder: Rc<RefCell<R>>,
        pacer: Pacer,
    ) -> (Rc<Self>, impl Future<Output = ()> + 'static) {
        let (events, heard) = mpsc::channel(EVENTS);
        let driver = Rc::new(Self {
            account: job.account,
            schedule: RefCell::new(job.schedule),
            client: RefCell::new(Rc::new(client)),
            prompts: RefCell::new(job.prompts),
            slo: Cell::new(job.slo),
            grace: Cell::new(job.grace),
            recorder,
            events,
            over: watch::Sender::new(false),
        });
        let running = Rc::clone(&driver).run(pacer, heard, job.connections);
        (driver, running)
    }

    /// Tells the schedule at its next turn. When it has more to hear than it can, it hears this after what it hears now.
    pub(super) fn tell(self: &Rc<Self>, event: Event) {
        if let Err(mpsc::error::TrySendError::Full(event)) = self.events.try_send(event) {
            let events = self.events.clone();
            tokio::task::spawn_local(async move { events.send(event).await.ok() });
        }
    }

    /// Changes it in place, or nothing of it.
    pub(super) fn change(&self, change: Change) -> Result<(), LinkError> {
        if let Some(link) = change.link {
            let client = link.client()?;
            self.client.replace(Rc::new(client));
        }
        if let Some(prompts) = change.prompts {
            self.prompts.replace(prompts);
        }
        self.slo.set(change.slo);
        self.grace.set(change.grace);
        Ok(())
    }

    /// How it stands. Prompts of arrivals that were skipped are let go of here, once a second, not at each arrival.
    pub(super) fn standing(&self, now: Instant) -> Standing {
        let mut schedule = self.schedule.borrow_mut();
        self.prompts.borrow_mut().seek(schedule.next_index());
        Standing { at_cap: schedule.is_at_cap(), rested: schedule.rested(now), next_index: schedule.next_index() }
    }

    async fn run(self: Rc<Self>, mut pacer: Pacer, mut heard: mpsc::Receiver<Event>, connections: u32) {
        self.first_prompt().await;
        self.connect(connections).await;
        self.schedule.borrow_mut().begin(clock::now());
        let mut requests = JoinSet::new();
        pace(&self.schedule, &mut pacer, &mut heard, |issue| self.issue(issue, &mut requests)).await;
        drop(heard);
        self.drain(requests).await;
    }

    /// A load does not begin with a request that has nothing to say.
    async fn first_prompt(&self) {
        poll_fn(|cx| self.prompts.borrow_mut().poll_ready(cx)).await;
    }

    /// Opens connections ahead, a few at a time. One that does not come up is the business of the request that needs it.
    async fn connect(&self, connections: u32) {
        let client = Rc::clone(&self.client.borrow());
        let mut dials = JoinSet::new();
        for _ in 0..connections {
            if dials.len() == DIALS
                && let Some(dialed) = dials.join_next().await
                && self.connected(or_panic(dialed)).is_none()
            {
                break;
            }
            let client = Rc::clone(&client);
            dials.spawn_local(async move { client.connect_ahead().await });
        }
        while let Some(dialed) = dials.join_next().await {
            self.connected(or_panic(dialed));
        }
    }

    fn connected(&self, phases: Option<ConnectPhases>) -> Option<()> {
        self.recorder.borrow_mut().connected(self.account, &phases?);
        Some(())
    }

    fn issue(self: &Rc<Self>, issue: Issue, requests: &mut JoinSet<()>) {
        match issue {
            Issue::Planned { count } => self.recorder.borrow_mut().planned(self.account, count),
            Issue::Shed { reason, count } => {
                self.recorder.borrow_mut().shed(self.account, reason, count);
            }
            Issue::Send(due) => {
                while let Some(ended) = requests.try_join_next() {
                    or_panic(ended);
                }
                match self.prompts.borrow_mut().take(due.arrival.index) {
                    Some(prepared) => requests.spawn_local(Rc::clone(self).request(due, prepared)),
                    None => requests.spawn_local(Rc::clone(self).without_prompt(due)),
                };
            }
        }
    }

    async fn request(self: Rc<Self>, due: Due, prepared: Prepared) {
        let client = Rc::clone(&self.client.borrow());
        let mut over = self.over.subscribe();
        let canceled = async move { drop(over.wait_for(|over| *over).await) };
        let timeline = client.send(due.arrival, &prepared, canceled).await;
        if !timeline.outcome.is_answered() {
            let (id, outcome) = (&timeline.request_id, timeline.outcome.name());
            tracing::debug!(request_id = %id, outcome, detail = timeline.detail.as_deref(), "request failed");
        }
        self.recorder.borrow_mut().ended(self.account, &timeline, due.warmup, &self.slo.get());
        let began = timeline.sent_at.unwrap_or(due.arrival.planned_at);
        let duration = timeline.ended_at.saturating_duration_since(began);
        self.free(End { slot: due.slot, at: timeline.ended_at, outcome: timeline.outcome, duration }).await;
    }

    /// Sheds it; its slot is free again. To a closed loop that is a failure, so that it does not ask without end.
    async fn without_prompt(self: Rc<Self>, due: Due) {
        self.recorder.borrow_mut().shed(self.account, ShedReason::NoPrompt, 1);
        let at = clock::now();
        self.free(End { slot: due.slot, at, outcome: Outcome::Local, duration: Duration::ZERO }).await;
    }

    /// After the end of the schedule nobody wants to know.
    async fn free(&self, end: End) {
        self.events.send(Event::Ended(end)).await.ok();
    }

    /// Lets what is in flight end within the grace period, and cancels the rest.
    async fn drain(&self, mut requests: JoinSet<()>) {
        let deadline = clock::now() + self.grace.get();
        loop {
            tokio::select! {
                biased;
                ended = requests.join_next() => match ended {
                    Some(ended) => or_panic(ended),
                    None => return,
                },
                () = sleep_until(deadline), if !*self.over.borrow() => drop(self.over.send_replace(true)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
