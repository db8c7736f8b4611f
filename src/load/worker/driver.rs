//! One load on its thread: the schedule says when, the prompts say what, and each request is a task of its own.
//!
//! What is told to a load that has not begun (it waits for its first prompt, or opens its connections) is kept, and has happened
//! just before it begins: a load that was paused by then sends nothing, and one that was stopped ends at once.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::mem::discriminant;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
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
    /// There is another client, or there are other prompts: what was waited for before the begin is waited for anew.
    changed: Notify,
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
            changed: Notify::new(),
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
        let client = change.link.map(|link| link.client()).transpose()?;
        self.exchange(client, change.prompts);
        self.slo.set(change.slo);
        self.grace.set(change.grace);
        Ok(())
    }

    /// Another client and other prompts from the next request on: both at once, since a body is made for its target.
    fn exchange(&self, client: Option<Client>, prompts: Option<Prompts>) {
        if let Some(client) = client {
            self.client.replace(Rc::new(client));
        }
        if let Some(mut prompts) = prompts {
            prompts.seek(self.schedule.borrow().next_index());
            self.prompts.replace(prompts);
        }
        self.changed.notify_one();
    }

    /// How it stands.
    pub(super) fn standing(&self, now: Instant) -> Standing {
        let mut schedule = self.schedule.borrow_mut();
        Standing { at_cap: schedule.is_at_cap(), rested: schedule.rested(now), next_index: schedule.next_index() }
    }

    /// Lets go of the prompts of arrivals that were skipped. To be called some times a second, as often as the indices may leave
    /// the queue behind: at each arrival it would cost more, and after a pause or at the cap the next one would find no prompt.
    pub(super) fn keep_abreast(&self) {
        self.prompts.borrow_mut().seek(self.schedule.borrow().next_index());
    }

    async fn run(self: Rc<Self>, mut pacer: Pacer, mut heard: mpsc::Receiver<Event>, connections: u32) {
        let early = self.until_ready(&mut heard, connections).await;
        let requests = RefCell::new(JoinSet::new());
        let issue = |issue| self.issue(issue, &mut requests.borrow_mut());
        self.begin(early, issue);
        let pacing = pace(&self.schedule, &mut pacer, &mut heard, issue);
        tokio::select! {
            biased;
            () = pacing => {}
            never = reaped(&requests) => match never {},
        }
        drop(heard);
        self.drain(requests.into_inner()).await;
    }

    /// Waits until the load can begin, or is stopped. Gives what it was told meanwhile.
    async fn until_ready(&self, heard: &mut mpsc::Receiver<Event>, connections: u32) -> Vec<Event> {
        let mut early = Vec::new();
        let mut ready = pin!(self.ready(connections));
        loop {
            tokio::select! {
                biased;
                Some(event) = heard.recv() => {
                    keep_last(&mut early, event);
                    if event == Event::Stop {
                        return early;
                    }
                }
                () = self.changed.notified() => ready.set(self.ready(connections)),
                () = &mut ready => return early,
            }
        }
    }

    fn begin(&self, early: Vec<Event>, mut issue: impl FnMut(Issue)) {
        let now = clock::now();
        let mut schedule = self.schedule.borrow_mut();
        schedule.begin(now);
        let before = now.checked_sub(Duration::from_nanos(1)).unwrap_or(now);
        for event in early {
            schedule.apply(before, event, &mut issue);
        }
    }

    async fn ready(&self, connections: u32) {
        self.first_prompt().await;
        self.connect(connections).await;
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
        let retry_after = timeline.retry_after;
        self.free(End { slot: due.slot, at: timeline.ended_at, outcome: timeline.outcome, duration, retry_after })
            .await;
    }

    /// Sheds it; its slot is free again. To a closed loop that is a failure, so that it does not ask without end.
    async fn without_prompt(self: Rc<Self>, due: Due) {
        self.recorder.borrow_mut().shed(self.account, ShedReason::NoPrompt, 1);
        let at = clock::now();
        let (outcome, duration) = (Outcome::Local, Duration::ZERO);
        self.free(End { slot: due.slot, at, outcome, duration, retry_after: None }).await;
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

/// Of each kind of event the last, in order. A pause and its end are of one kind.
fn keep_last(early: &mut Vec<Event>, event: Event) {
    let is_pause = |event: &Event| matches!(event, Event::Pause | Event::Resume);
    early.retain(|other| discriminant(other) != discriminant(&event) && !(is_pause(other) && is_pause(&event)));
    early.push(event);
}

/// Takes the ends of requests as they come: one that panicked ends the thread even when no other is ever sent.
///
/// To be polled after whatever adds to them, in the same task: while there are none, nothing wakes it.
async fn reaped(requests: &RefCell<JoinSet<()>>) -> Infallible {
    poll_fn(|cx| {
        while let Poll::Ready(Some(ended)) = requests.borrow_mut().poll_join_next(cx) {
            or_panic(ended);
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests;
