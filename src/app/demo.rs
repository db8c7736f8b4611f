//! `steadyload demo`: a simulated gateway and a daemon that loads it, in one process, with a configuration of their own.
//!
//! ```text
//! main thread: waits for pictures, prints ◄── View ── daemon (own thread) ── load ──► simulated gateway (own thread)
//! ```
//!
//! The daemon is the one of `steadyload run`, with nothing special in it: it reads an ordinary `steadyload.toml` from a folder
//! that is made for it, and reads it again on SIGHUP. It is only handed a listener, so that the port in that file is one that
//! was free when the file was written and still is. It has a thread of its own because whoever prints may stand still (a
//! terminal that was paused), and the daemon's seconds must not; the gateway has one so that it does not share its stamps' time
//! with either.
//!
//! The process environment is not read: a variable that was meant for another daemon would change this one.
//!
//! The end has an order: the daemon drains and ends, then the gateway, then the folder is removed. After SIGKILL or a second
//! signal the folder stays, in the system's place for temporary files, with a name that begins with `steadyload-demo-`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until};

pub mod figures;
mod folder;

use self::figures::{Figures, Track};
use self::folder::Folder;
use crate::app::daemon;
use crate::app::signals::{Asker, Signals};
use crate::config::sections::{LogLevel, Pace, Server};
use crate::config::{self, Environment, LoadRequest};
use crate::export::http::{self, BindError};
use crate::export::view::{Phase, View};
use crate::sim::Gateway;
use crate::sim::settings::Settings;

/// Where the gateway listens unless something else does: where `steadyload gateway` does too.
pub const GATEWAY_PORT: u16 = 9878;

/// How many ports are tried, the first one included, before the system chooses.
const TRIES: u16 = 20;

/// The load's name, and its target's: they are in the metrics.
pub const LOAD: &str = "demo";
const TARGET: &str = "simulated";

/// How long requests under way may go on at the end. An answer takes two seconds; one that is stuck is not waited for long.
pub const GRACE: Duration = Duration::from_secs(5);

/// A picture that comes so much before a line is due is the one that the line is made of: they come once a second, not to the
/// millisecond.
const EARLY: Duration = Duration::from_millis(200);

/// What is to be shown.
#[derive(Debug)]
pub struct Plan {
    /// How much load.
    pub pace: Pace,
    /// How long; `None`: until it is asked to stop.
    pub length: Option<Duration>,
    /// How often a line is due, at least a second.
    pub every: Duration,
    /// What the gateway pretends to be.
    pub gateway: Settings,
}

/// How the process logs.
pub struct Logs {
    /// Sets another level, on a reload.
    pub set_level: Box<dyn Fn(LogLevel) + Send>,
    /// How many lines were dropped because nobody read them.
    pub dropped: Box<dyn Fn() -> u64 + Send>,
}

impl std::fmt::Debug for Logs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logs").finish_non_exhaustive()
    }
}

/// Where everything is.
#[derive(Debug, Clone)]
pub struct Places {
    /// Where the daemon listens: landing page, metrics and API.
    pub daemon: SocketAddr,
    /// Where the gateway listens.
    pub gateway: SocketAddr,
    /// The configuration in force.
    pub configuration: PathBuf,
    /// The file with the token that changes want.
    pub token: PathBuf,
}

/// A running demo. [`Demo::finish`] ends it in order.
#[derive(Debug)]
pub struct Demo {
    places: Places,
    asker: Asker,
    /// Closed when the daemon has ended, in whatever way.
    views: watch::Receiver<Option<Arc<View>>>,
    daemon: JoinHandle<anyhow::Result<()>>,
    gateway: Beside,
    track: Track,
    every: Duration,
    line_due: Instant,
    ends_at: Option<Instant>,
    _folder: Folder,
}

/// The simulated gateway on its thread.
#[derive(Debug)]
struct Beside {
    address: SocketAddr,
    /// Closed when the thread has ended.
    stop: oneshot::Sender<()>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Demo {
    /// Starts gateway and daemon, and returns when the load runs. `signals` must have been armed before anything else was started.
    ///
    /// # Errors
    /// When one of them cannot be started, or the folder cannot be made.
    pub async fn start(plan: Plan, signals: Signals, logs: Logs) -> anyhow::Result<Self> {
        let folder = Folder::create().with_context(|| {
            let place = std::env::temp_dir();
            format!(
                "cannot make the demo's folder in {}; TMPDIR names another place for temporary files",
                place.display()
            )
        })?;
        let gateway = Beside::start(plan.gateway.clone()).await.context("the simulated gateway cannot be started")?;
        let listener = page_listener()?;
        let daemon = listener.local_addr().context("the page has no address")?;
        let places = folder.furnish(&plan, daemon, gateway.address).context("cannot write into the demo's folder")?;

        let request = LoadRequest { files: vec![places.configuration.clone()], overrides: Vec::new() };
        let environment = Environment::default();
        let loaded =
            config::load(&request, &environment).map_err(|faults| anyhow!("{}", faults.to_string().trim_end()));
        let (show, mut views) = watch::channel(None);
        let settings = daemon::Settings {
            loaded: loaded.context("the demo's own configuration is refused")?,
            request,
            environment,
            listener: Some(listener),
            set_log_level: logs.set_level,
            dropped_log_lines: logs.dropped,
            watching: Box::new(move |view| drop(show.send_replace(Some(view)))),
        };
        let asker = signals.asker();
        let daemon = on_a_thread("daemon", move |runtime| runtime.block_on(daemon::run(settings, signals)))?;
        // The only value that is not a picture is the first one.
        views.changed().await.ok();
        let Some(first) = views.borrow_and_update().clone() else {
            joined(daemon, "daemon")?;
            return Err(anyhow!("the daemon has ended before it began"));
        };
        let begun_at = first.taken_at;
        Ok(Self {
            places,
            asker,
            views,
            daemon,
            gateway,
            track: Track::new(&first),
            every: plan.every,
            line_due: begun_at + plan.every,
            ends_at: plan.length.map(|length| begun_at + length),
            _folder: folder,
        })
    }

    /// Where everything is.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Waits until the next line is due. `None` once the end has begun: by a signal, because the time is up, or because a
    /// part of it has ended. May be dropped and called again.
    pub async fn next(&mut self) -> Option<Figures> {
        loop {
            tokio::select! {
                biased;
                changed = self.views.changed() => changed.ok()?,
                () = self.gateway.stop.closed() => return None,
                () = until(self.ends_at) => {
                    self.ends_at = None;
                    self.asker.stop();
                    continue;
                }
            }
            let view = self.views.borrow_and_update().clone().filter(|view| view.phase == Phase::Running)?;
            if view.taken_at + EARLY >= self.line_due {
                while view.taken_at + EARLY >= self.line_due {
                    self.line_due += self.every;
                }
                return Some(self.track.line(&view));
            }
        }
    }

    /// Asks the daemon to stop unless it has been, waits for its end, ends the gateway and removes the folder. Returns the figures
    /// since the start.
    ///
    /// # Errors
    /// When a part had broken down.
    pub async fn finish(mut self) -> anyhow::Result<Figures> {
        self.asker.stop();
        while self.views.changed().await.is_ok() {}
        joined(self.daemon, "daemon")?;
        drop(self.gateway.stop);
        joined(self.gateway.thread, "simulated gateway")?;
        let last = self.views.borrow().clone().context("the daemon has shown nothing")?;
        Ok(self.track.whole(&last))
    }
}

impl Beside {
    async fn start(settings: Settings) -> anyhow::Result<Self> {
        let ((stop, stopped), (tell, told)) = (oneshot::channel(), oneshot::channel());
        let thread = on_a_thread("gateway", move |runtime| {
            runtime.block_on(async {
                let gateway = bind_gateway(&settings).await?;
                tell.send(gateway.local_addr()).ok();
                // Sender gone or word given: both ask for the end.
                gateway.run(stopped).await.context("the simulated gateway failed")
            })
        })?;
        match told.await {
            Ok(address) => Ok(Self { address, stop, thread }),
            Err(_) => joined(thread, "simulated gateway").and(Err(anyhow!("it has ended before it began"))),
        }
    }
}

/// A thread with a runtime of its own.
fn on_a_thread<F>(name: &str, work: F) -> anyhow::Result<JoinHandle<anyhow::Result<()>>>
where
    F: FnOnce(Runtime) -> anyhow::Result<()> + Send + 'static,
{
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    thread::Builder::new().name(name.to_owned()).spawn(move || work(runtime)).context("cannot start a thread")
}

/// How a thread ended.
fn joined(thread: JoinHandle<anyhow::Result<()>>, what: &str) -> anyhow::Result<()> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("the {what} broke down; its last words are above")))
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Addresses of this machine to be tried: this port, the ones after it, and any that is free.
fn candidates(port: u16) -> impl Iterator<Item = SocketAddr> {
    let ports = (port..port.saturating_add(TRIES)).chain([0]);
    ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

/// The port that people expect the page on.
#[must_use]
pub fn page_port() -> u16 {
    Server::default().listen.port()
}

fn page_listener() -> Result<TcpListener, BindError> {
    let mut last = http::bind(Server::default().listen);
    for address in candidates(page_port()).skip(1) {
        if !matches!(last, Err(BindError::InUse { .. })) {
            break;
        }
        last = http::bind(address);
    }
    last
}

async fn bind_gateway(settings: &Settings) -> io::Result<Gateway> {
    let mut last = Err(io::Error::from(io::ErrorKind::AddrInUse));
    for address in candidates(GATEWAY_PORT) {
        last = Gateway::bind(settings.clone(), address).await;
        if !last.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_tried_upwards_and_then_any() {
        let ports: Vec<_> = candidates(9878).map(|address| address.port()).collect();
        assert_eq!((ports.len(), &ports[..2], &ports[19..]), (21, &[9878, 9879][..], &[9897, 0][..]));
        assert!(candidates(9877).all(|address| address.ip().is_loopback()));
    }
}
