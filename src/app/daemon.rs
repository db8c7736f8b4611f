//! `steadyload run`: the daemon, from its configuration to its end.
//!
//! ```text
//! signals, API ─► control (this task) ─► fleet: load threads, prompts
//!                     │  once a second ◄─ deltas
//!                     ├─► View ─► export (own thread)
//!                     └─► minutes ─► journal (own thread)
//! ```
//!
//! # Life
//! Signals are taken over before anything else is started. What cannot work is said before anything is sent: the configuration
//! (exit code 2), the port, the state, the descriptors, the secrets (4). SIGTERM or SIGINT stops the schedules, lets
//! requests in flight end within their `grace`, writes the last minute, and only then takes `/metrics` away; a second signal
//! ends the process at once. SIGHUP or `POST /-/reload` read the configuration again: a valid one is taken over load by load, and
//! only what changed restarts; a bad one changes nothing. Neither is listened to once the end has begun.
//!
//! A thread that ends unasked ends the process: whatever supervises it starts a whole one.

mod events;
mod fleet;
mod indices;
mod journal;
mod minute;
mod notify;
mod recording;
mod reload;
mod spec;
mod state;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use self::fleet::Fleet;
use self::indices::Indices;
use self::journal::Journal;
use self::notify::Supervisor;
use self::spec::Spec;
use self::state::{Ending, State};
use crate::app::online::in_container;
use crate::app::signals::{Asked, Signals};
use crate::clock;
use crate::config::sections::{Buckets, Config, LogLevel};
use crate::config::{Environment, LoadRequest, Loaded};
use crate::domain::secret::Secret;
use crate::export::http::{self, Server, Surface};
use crate::export::view::{Change, Phase, Refusal, Request, View};
use crate::load::client::hint::Surroundings;
use crate::load::schedule::Event;
use crate::watch::client_health::descriptors::{DescriptorError, check_descriptors};

/// How often the picture is made.
const SECOND: Duration = Duration::from_secs(1);

/// How often it is looked whether the last requests have ended.
const LOOK: Duration = Duration::from_millis(50);

/// Changes asked for over the API that may wait.
const REQUESTS: usize = 16;

/// Descriptors beside those of the loads: for the API's connections, files, timers, and the runtimes.
const OTHER_DESCRIPTORS: u64 = 200;

/// What a load may need beside its connections while they are replaced.
const SPARE_PERCENT: u64 = 125;

/// What the daemon is started with.
pub struct Settings {
    /// Where the configuration is read from, at the start and at each reload.
    pub request: LoadRequest,
    /// The environment at the start.
    pub environment: Environment,
    /// The configuration as it was loaded.
    pub loaded: Loaded,
    /// Listens already, on what the configuration says; without one, the daemon takes `server.listen` itself.
    pub listener: Option<TcpListener>,
    /// Sets what is logged; does nothing where the command line has decided that.
    pub set_log_level: Box<dyn Fn(LogLevel) + Send>,
    /// How many lines of the log were dropped because nobody read them.
    pub dropped_log_lines: Box<dyn Fn() -> u64 + Send>,
    /// Sees every picture that exporters see. It must not block: the daemon's seconds would.
    pub watching: Box<dyn Fn(Arc<View>) + Send>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("request", &self.request).finish_non_exhaustive()
    }
}

/// What happens to the daemon.
enum Happened {
    Asked(Asked),
    Wants(Request),
    Second,
    /// Whether the last requests have ended.
    Look,
}

/// The running daemon.
struct Daemon {
    settings: Settings,
    /// The configuration in force.
    config: Config,
    state: State,
    server: Server,
    views: watch::Sender<Arc<View>>,
    admin: watch::Sender<Option<Secret>>,
    supervisor: Supervisor,
    next_second: Instant,
}

/// Runs until it is asked to stop. `signals` must have been armed before anything else was started.
///
/// # Errors
/// When it cannot start, or a part of it ended unasked.
pub async fn run(settings: Settings, mut signals: Signals) -> anyhow::Result<()> {
    let (wants, mut wanted) = mpsc::channel(REQUESTS);
    let mut daemon = Daemon::start(settings, wants).await?;
    loop {
        let happened = tokio::select! {
            biased;
            asked = signals.asked() => Happened::Asked(asked),
            Some(request) = wanted.recv() => Happened::Wants(request),
            () = daemon.server.ended() => bail!("the server of metrics and API has ended unasked; its last words are above"),
            () = sleep_until(daemon.next_second) => Happened::Second,
            () = sleep_until(clock::now() + LOOK), if daemon.state.phase == Phase::Draining => Happened::Look,
        };
        match happened {
            Happened::Asked(Asked::Stop) => daemon.drain().await?,
            Happened::Asked(Asked::Reload) if daemon.state.phase == Phase::Running => drop(daemon.reload().await),
            Happened::Asked(Asked::Reload) => {
                tracing::warn!("the configuration is not read again: {}", Refusal::Stopping)
            }
            Happened::Wants(request) => daemon.obey(request).await?,
            Happened::Second => daemon.second().await?,
            Happened::Look => daemon.state.look().await?,
        }
        if daemon.state.phase == Phase::Draining && daemon.state.has_ended() {
            return daemon.finish().await;
        }
    }
}

impl Daemon {
    async fn start(mut settings: Settings, wants: mpsc::Sender<Request>) -> anyhow::Result<Self> {
        let config = settings.loaded.config.clone();
        let specs = Spec::all(&config, &settings.environment)?;
        check_connections(&specs)?;
        let listener = match settings.listener.take() {
            Some(listener) => listener,
            None => http::bind(config.server.listen)?,
        };
        let (journal, saved) = open_state(&config)?;
        let indices = Indices::open(config.state.dir.as_deref()).context("the indices of prompts (state.dir)")?;
        let admin = watch::Sender::new(admin_token(&config, &settings.environment)?);

        let mut state = State::new(Fleet::new(indices)?, journal, Surroundings { in_container: in_container() });
        let (views, server) = serve(listener, &config, state.view_now(), wants, admin.subscribe())?;
        let address = server.address();
        for spec in specs {
            let name = spec.name.clone();
            state.start(spec, None, false).await.with_context(|| format!("loads.{name} cannot be started"))?;
        }
        state.restore(saved);
        state.phase = Phase::Running;
        let (supervisor, next_second) = (Supervisor::new(), clock::now());
        let mut daemon = Self { settings, config, state, server, views, admin, supervisor, next_second };
        daemon.second().await?;
        // Only now: whoever is told looks at once, and is to see the loads and what was saved of them.
        let loads = daemon.state.loads.len();
        daemon.state.note("started", None, format!("{} at work; metrics at http://{address}/metrics", counted(loads)));
        daemon.show_now();
        daemon.supervisor.ready(&counted(loads));
        Ok(daemon)
    }

    /// Ends a second and shows it.
    async fn second(&mut self) -> anyhow::Result<()> {
        // Absolute, but nothing is caught up after a stall: a second that lasted a few milliseconds says nothing.
        let (next, now) = (self.next_second + SECOND, clock::now());
        self.next_second = if next > now { next } else { now + SECOND };
        if !self.state.is_whole() {
            bail!("a thread of the daemon has ended unasked; its last words are above");
        }
        let view = self.state.second().await?;
        self.show(view);
        self.supervisor.alive();
        Ok(())
    }

    async fn obey(&mut self, Request { change, reply }: Request) -> anyhow::Result<()> {
        let answer = match change {
            _ if self.state.phase != Phase::Running => Err(Refusal::Stopping),
            Change::Reload => self.reload().await,
            Change::Pause { load } => self.pause(&load, true).await?,
            Change::Resume { load } => self.pause(&load, false).await?,
        };
        // A caller that has gone away does not want to know.
        reply.send(answer).ok();
        Ok(())
    }

    async fn pause(&mut self, name: &str, paused: bool) -> anyhow::Result<Result<String, Refusal>> {
        let Some(load) = self.state.running(name) else { return Ok(Err(Refusal::UnknownLoad(name.to_owned()))) };
        let (kind, event) = if paused { ("paused", Event::Pause) } else { ("resumed", Event::Resume) };
        if load.paused == paused {
            return Ok(Ok(format!("load {name} was {kind} already")));
        }
        load.paused = paused;
        let place = load.place;
        self.state.fleet.tell(place, event).await?;
        self.state.note(kind, Some(name), format!("{kind} over the API"));
        self.show_now();
        Ok(Ok(format!("load {name} is {kind}")))
    }

    /// What was just changed is in the next answer.
    fn show_now(&mut self) {
        let view = self.state.view_now();
        self.show(view);
    }

    fn show(&self, mut view: View) {
        view.dropped.push(("log", (self.settings.dropped_log_lines)()));
        let view = Arc::new(view);
        (self.settings.watching)(Arc::clone(&view));
        self.views.send_replace(view);
    }

    /// Nothing new is sent from now on.
    async fn drain(&mut self) -> anyhow::Result<()> {
        if self.state.phase == Phase::Draining {
            return Ok(());
        }
        self.state.phase = Phase::Draining;
        self.supervisor.stopping();
        let names: Vec<_> = self.state.loads.iter().map(|load| load.spec.name.clone()).collect();
        let grace = self.state.loads.iter().map(|load| load.spec.load.grace).max().unwrap_or_default();
        let text =
            format!("asked to stop: requests in flight may go on for up to {grace:?}; a second signal ends at once");
        self.state.note("stopping", None, text);
        for name in names {
            self.state.stop(&name, Ending::Shutdown).await?;
        }
        self.show_now();
        Ok(())
    }

    async fn finish(mut self) -> anyhow::Result<()> {
        self.state.phase = Phase::Stopping;
        self.state.finish();
        self.show_now();
        let server = self.server;
        tokio::task::spawn_blocking(move || server.stop()).await.context("the server did not end")??;
        self.state.log_sums();
        tracing::info!("stopped");
        Ok(())
    }
}

/// So many loads, in words.
fn counted(loads: usize) -> String {
    format!("{loads} load{}", if loads == 1 { "" } else { "s" })
}

/// What calls that change something have to carry.
fn admin_token(config: &Config, environment: &Environment) -> anyhow::Result<Option<Secret>> {
    let token = config.server.admin_token.as_ref().map(|source| source.read(environment)).transpose();
    token.context("the admin token (server.admin_token_*) cannot be read")
}

/// Whether there are descriptors for the connections of these loads.
fn check_connections(specs: &[Spec]) -> Result<(), DescriptorError> {
    let connections: u64 = specs.iter().map(|spec| u64::from(spec.connections())).sum();
    check_descriptors(connections * SPARE_PERCENT / 100 + OTHER_DESCRIPTORS)
}

/// The state's folder, and the minutes that it holds.
fn open_state(config: &Config) -> anyhow::Result<(Option<Journal>, Vec<journal::Minute>)> {
    let Some(dir) = &config.state.dir else {
        tracing::info!("no state.dir is set: after a restart windows begin empty, and the same prompts are sent again");
        return Ok((None, Vec::new()));
    };
    let context = || format!("the state in {} cannot be used (state.dir)", dir.display());
    let (log, opened, saved) = Journal::open(dir).with_context(context)?;
    for torn in &opened.torn {
        tracing::warn!(path = %torn.path.display(), bytes = torn.bytes, "a record that was never finished was cut off");
    }
    for aside in &opened.set_aside {
        let path = aside.path.display();
        tracing::warn!(damage = %aside.damage, "a damaged hour of saved minutes was set aside as {path} and is not read");
    }
    tracing::info!(records = opened.records, expired = opened.expired, "state read from {}", dir.display());
    Ok((Some(Journal::start(log, dir).with_context(context)?), saved))
}

/// Starts the server with a first picture.
fn serve(
    listener: TcpListener,
    config: &Config,
    view: View,
    requests: mpsc::Sender<Request>,
    admin: watch::Receiver<Option<Secret>>,
) -> io::Result<(watch::Sender<Arc<View>>, Server)> {
    let (shown, views) = watch::channel(Arc::new(view));
    let coarse = config.server.buckets == Buckets::Coarse;
    let server = http::start(listener, Surface { views, requests, admin, coarse })?;
    Ok((shown, server))
}
