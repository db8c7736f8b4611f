//! The model against a clock: a task keeps it up with the present, and each request waits at its ticket.
//!
//! The model's times are exact and the task is late by what the machine takes: a token is delivered late, but never made late,
//! so that one slow moment of the gateway does not add to the next.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock::{self, pacer::Pacer};
use crate::sim::ask::Ask;
use crate::sim::model::{Engine, Event, Job, Spent, Status};

/// Which clock the task follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ticking {
    /// The machine's, to some microseconds.
    Precise,
    /// Tokio's, paused or not, to its millisecond.
    Tokio,
}

/// A modelled engine at work.
#[derive(Debug)]
pub(crate) struct LiveEngine {
    shared: Arc<Shared>,
    ticking: Ticking,
    /// The task, from the first request on; it ends with the engine.
    driver: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Shared {
    start: Instant,
    state: Mutex<State>,
    submitted: Notify,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    lines: HashMap<u64, Arc<Mutex<Line>>>,
    next_id: u64,
    /// Empty between two calls.
    events: Vec<Event>,
}

/// What the engine has done for one request and nobody has taken yet.
#[derive(Debug, Default)]
struct Line {
    is_admitted: bool,
    cached_tokens: u32,
    /// Tokens so far, and when that many had been made.
    made: VecDeque<(u32, Duration)>,
    spent: Option<Spent>,
    waiter: Option<Waker>,
}

/// A request's place in the engine. The engine drops what nobody waits for any more.
#[derive(Debug)]
pub(crate) struct Ticket {
    id: u64,
    shared: Arc<Shared>,
    line: Arc<Mutex<Line>>,
    received_at: Instant,
    factor: f64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LiveEngine {
    /// An engine whose time begins at `start`.
    pub(crate) fn new(engine: Engine, start: Instant, ticking: Ticking) -> Self {
        let state = State { engine, lines: HashMap::new(), next_id: 0, events: Vec::new() };
        let shared = Arc::new(Shared { start, state: Mutex::new(state), submitted: Notify::new() });
        Self { shared, ticking, driver: Mutex::new(JoinSet::new()) }
    }

    /// Hands a request to the engine. `factor` stretches all of its times, as seen from outside.
    pub(crate) fn submit(&self, ask: &Ask, received_at: Instant, factor: f64) -> Ticket {
        let line = Arc::new(Mutex::new(Line::default()));
        let id = {
            let mut state = lock(&self.shared.state);
            let id = state.next_id;
            state.next_id += 1;
            state.lines.insert(id, Arc::clone(&line));
            let job = Job {
                id,
                prompt_tokens: ask.prompt_tokens,
                blocks: Arc::clone(&ask.blocks),
                output_tokens: ask.tokens,
            };
            state.engine.submit(received_at.saturating_duration_since(self.shared.start), job);
            id
        };
        let mut driver = lock(&self.driver);
        if driver.is_empty() {
            driver.spawn(drive(Arc::clone(&self.shared), self.ticking));
        }
        drop(driver);
        self.shared.submitted.notify_one();
        Ticket { id, shared: Arc::clone(&self.shared), line, received_at, factor }
    }
}

impl LiveEngine {
    /// How the engine stands.
    pub(crate) fn status(&self) -> Status {
        lock(&self.shared.state).engine.status()
    }
}

async fn drive(shared: Arc<Shared>, ticking: Ticking) {
    let mut pacer = match ticking {
        Ticking::Precise => Pacer::precise(),
        Ticking::Tokio => Pacer::simulated(),
    };
    loop {
        match shared.advance(clock::now()) {
            None => shared.submitted.notified().await,
            Some(next) => tokio::select! {
                () = pacer.until(next) => {}
                () = shared.submitted.notified() => {}
            },
        }
    }
}

impl Shared {
    /// Brings the engine up to `now` and tells those who wait; when something happens next.
    fn advance(&self, now: Instant) -> Option<Instant> {
        let mut state = lock(&self.state);
        let State { engine, lines, events, .. } = &mut *state;
        engine.advance(now.saturating_duration_since(self.start), events);
        for event in events.drain(..) {
            match event {
                Event::Admitted { id, cached_tokens, .. } => {
                    tell(lines.get(&id), |line| (line.is_admitted, line.cached_tokens) = (true, cached_tokens));
                }
                Event::Token { id, at, made } => tell(lines.get(&id), |line| line.made.push_back((made, at))),
                Event::Finished { id, spent } => tell(lines.remove(&id).as_ref(), |line| line.spent = Some(spent)),
            }
        }
        engine.next().map(|at| self.start + at)
    }
}

fn tell(line: Option<&Arc<Mutex<Line>>>, change: impl FnOnce(&mut Line)) {
    let Some(line) = line else { return };
    let mut line = lock(line);
    change(&mut line);
    let waiter = line.waiter.take();
    drop(line);
    if let Some(waiter) = waiter {
        waiter.wake();
    }
}

impl Ticket {
    /// Returns once so many tokens have been made, with the instant at which they had; for none, once the request is admitted.
    pub(crate) async fn made(&self, tokens: u32) -> Instant {
        let after = poll_fn(|cx| {
            let mut line = lock(&self.line);
            while line.made.front().is_some_and(|(made, _)| *made < tokens) {
                line.made.pop_front();
            }
            match line.made.front() {
                Some((_, at)) if tokens > 0 => return Poll::Ready(*at),
                _ if tokens == 0 && line.is_admitted => return Poll::Ready(Duration::ZERO),
                _ => {}
            }
            line.waiter = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        let at = self.shared.start + after;
        let spent = at.saturating_duration_since(self.received_at);
        self.received_at + Duration::try_from_secs_f64(spent.as_secs_f64() * self.factor).unwrap_or(spent)
    }

    /// Where the time went, once the last token has been made.
    pub(crate) fn spent(&self) -> Option<Spent> {
        lock(&self.line).spent
    }

    /// Prompt tokens that the prefix cache had; 0 before the request is admitted.
    pub(crate) fn cached_tokens(&self) -> u32 {
        lock(&self.line).cached_tokens
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        if state.lines.remove(&self.id).is_some() {
            state.engine.cancel(self.id);
        }
    }
}
