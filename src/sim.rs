//! A simulated inference gateway that knows the truth about its own timing and can go wrong in every way that is known.
//!
//! The client is tested against it, so it shares no code with the client: a misreading of SSE that both had would cancel
//! out. A request travels `connection` (hyper reads it) → `http` (routes) → `ask` → `answer` (events with their moments,
//! decided by the seed) → `spoil` → `sse` → `wire` (steps) → `connection` (takes them and stamps them in `truth`).
//! Each kind of fault acts at one of these places. When tokens exist is either drawn (`ttft`, `gap`: the same for every request,
//! however many there are, which is what tests of a client want) or decided by an engine with a queue, batches and a cache
//! (`model`, which `engine` keeps up with the clock): then an answer's events wait at a ticket.
//!
//! Beside `/v1/chat/completions`, `/v1/completions` and `/generate` it has the routes by which vLLM or SGLang (setting
//! `server`) tell of themselves: `/health`, `/v1/models`, `/server_info`, `/tokenize`, `/detokenize` and `/metrics` of
//! both, vLLM's `/version`, SGLang's `/health_generate`, `/model_info` and older names. The truth log's recording of a
//! request also feeds `stats`, which `exposition` shows in the server's names. `/generate` is there for both.
//!
//! Deliberately absent: TLS, HTTP/2 and `n > 1`.

mod admin;
mod answer;
mod ask;
mod connection;
mod engine;
mod event;
mod exposition;
pub mod fault;
mod http;
pub mod model;
mod refusal;
mod render;
mod reply;
mod server;
pub mod settings;
mod spoil;
mod sse;
mod stats;
mod tokenize;
mod tokens;
pub mod truth;
pub mod value;
mod wire;

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::clock;
use crate::sim::connection::{Habits, Socket};
use crate::sim::engine::Ticking;
use crate::sim::http::House;
use crate::sim::settings::Settings;
use crate::sim::truth::TruthLog;

/// The gateway without a socket: serves streams that someone else opened. Clones are the same gateway.
#[derive(Debug, Clone)]
pub struct Simulator {
    house: Arc<House>,
    router: axum::Router,
}

/// The gateway on a TCP port.
#[derive(Debug)]
pub struct Gateway {
    simulator: Simulator,
    listener: TcpListener,
    local_addr: SocketAddr,
    truth_file: Option<TruthFile>,
}

/// Where the lines of the truth log go.
#[derive(Debug)]
struct TruthFile {
    file: File,
    lines: mpsc::Receiver<String>,
}

/// Wait after a failed accept: out of descriptors, the next try would fail as well.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

impl Simulator {
    /// A gateway that pretends to be what `settings` say, from now on.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self::with(settings, Ticking::Tokio)
    }

    fn with(settings: Settings, ticking: Ticking) -> Self {
        let house = Arc::new(House::new(settings, ticking));
        Self { router: http::router(Arc::clone(&house)), house }
    }

    /// What really happened.
    #[must_use]
    pub fn truth(&self) -> TruthLog {
        self.house.truth.clone()
    }

    /// Serves one connection until it ends. A fault that resets it drops the stream instead.
    pub async fn serve_stream<I>(&self, io: I)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve(Socket { io, arm_reset: |_| {} }).await;
    }

    async fn serve<I>(&self, socket: Socket<I>)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let faults = self.house.rules.strike_connection(clock::now());
        let habits = Habits { keep_alive: self.house.settings.keep_alive, faults };
        connection::serve(socket, self.router.clone(), habits).await;
    }

    /// What it pretends to be, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = self.house.settings.describe();
        for state in self.house.rules.states() {
            text.push_str(&format!("fault {}\n", state.rule));
        }
        text
    }
}

impl Gateway {
    /// Takes the port; connections are accepted once [`Gateway::run`] is polled.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(settings: Settings, addr: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let local_addr = listener.local_addr()?;
        let simulator = Simulator::with(settings, Ticking::Precise);
        Ok(Self { simulator, listener, local_addr, truth_file: None })
    }

    /// The address it listens on, with the port that was chosen when 0 was asked for.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// What really happened.
    #[must_use]
    pub fn truth(&self) -> TruthLog {
        self.simulator.truth()
    }

    /// Writes a line of JSON to `path` for each request that ends.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn write_truth(&mut self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        self.truth_file = Some(TruthFile { file, lines: self.truth().lines() });
        Ok(())
    }

    /// What it pretends to be and where, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let prefix = &self.simulator.house.settings.prefix;
        format!("simulated gateway on http://{}{prefix}\n{}", self.local_addr, self.simulator.describe())
    }

    /// Serves until `stop` is ready; then every connection is dropped as it is.
    ///
    /// # Errors
    /// When the truth file could not be written.
    pub async fn run(self, stop: impl Future) -> io::Result<()> {
        let mut connections = JoinSet::new();
        let mut writer = JoinSet::new();
        let lines = LinesEnd(self.simulator.truth());
        if let Some(file) = self.truth_file {
            writer.spawn_blocking(move || file.write());
        }
        tokio::pin!(stop);
        loop {
            tokio::select! {
                biased;
                _ = &mut stop => break,
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a simulated connection failed");
                    }
                }
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let simulator = self.simulator.clone();
                        connections.spawn(async move { serve_tcp(&simulator, stream).await });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the simulated gateway cannot accept");
                        sleep_until(clock::now() + ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        connections.shutdown().await;
        drop(lines);
        match writer.join_next().await {
            None => Ok(()),
            Some(written) => written.map_err(io::Error::other)?,
        }
    }
}

/// Ends the truth file's lines however `run` ends, so that the writing thread does not wait for ever.
struct LinesEnd(TruthLog);

impl Drop for LinesEnd {
    fn drop(&mut self) {
        self.0.end_lines();
    }
}

async fn serve_tcp(simulator: &Simulator, stream: TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY: the connection is already gone");
        return;
    }
    let arm_reset = |stream: &TcpStream| {
        if let Err(error) = stream.set_zero_linger() {
            tracing::debug!(%error, "no SO_LINGER: the connection is already gone");
        }
    };
    simulator.serve(Socket { io: stream, arm_reset }).await;
}

impl TruthFile {
    /// Writes until the log ends its lines. Runs on a thread of its own: a disk that is slow does not delay a stream.
    fn write(mut self) -> io::Result<()> {
        let mut out = BufWriter::new(self.file);
        while let Some(line) = self.lines.blocking_recv() {
            writeln!(out, "{line}")?;
            if self.lines.is_empty() {
                out.flush()?;
            }
        }
        out.flush()
    }
}
