//! The HTTP server: `/metrics`, health, API and landing page, on a thread of its own.
//!
//! Its own thread and runtime, so that a scrape answers while the load is at its limit, and disturbs no stamp. It reads
//! the last [`View`] and nothing else; what is to be changed goes as a [`Request`] through a bounded queue to the app,
//! which answers in its own time or not at all.
//!
//! Whoever can reach the port may be slow, broken or hostile. A request head has [`Limits::head`] to arrive and 64 KiB of
//! room (so has a kept connection to send the next one), an answer has [`Limits::write`] to be taken, and there are
//! [`Limits::connections`] at once; further ones wait to be accepted. Bodies are never read: no route has one, and hyper
//! closes a connection on which one is left over.
//!
//! `axum::serve` is not used: it has none of these limits.

use std::any::Any;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};

use crate::domain::secret::Secret;
use crate::export::view::{Request, View};

mod admin;
mod answer;
mod negotiate;
mod patient;
mod routes;
mod serve;

/// What the server shows, and to whom it turns.
#[derive(Debug, Clone)]
pub struct Surface {
    /// The last picture; a new one is expected every second.
    pub views: watch::Receiver<Arc<View>>,
    /// Where changes go that somebody asks for.
    pub requests: mpsc::Sender<Request>,
    /// The token that allows them; `None` allows none.
    pub admin: watch::Receiver<Option<Secret>>,
    /// Classic buckets of all histograms in powers of two: `server.buckets = "coarse"`.
    pub coarse: bool,
}

/// How much patience the server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A request head has to arrive within this; an idle connection is closed after it. 8 s is no divisor of the usual
    /// scrape intervals, so that a scraper does not meet the closing of its kept connection scrape after scrape.
    pub head: Duration,
    /// An answer has to be taken within this once the socket is full. Less than the 10 s after which Prometheus gives up
    /// would cut off slow networks for nothing.
    pub write: Duration,
    /// The app has to answer a change within this.
    pub change: Duration,
    /// A picture that is older is stale, and the daemon not healthy.
    pub stale: Duration,
    /// Answers under way have this long to end when the server stops.
    pub drain: Duration,
    /// So many connections at once. A scraper needs one, a browser six.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(8),
            write: Duration::from_secs(20),
            change: Duration::from_secs(10),
            stale: Duration::from_secs(15),
            drain: Duration::from_secs(2),
            connections: 64,
        }
    }
}

/// Why the address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Something listens there already: another steadyload, most likely. Stop it or change `server.listen`.
    #[error("cannot listen on {address}: something else does already; stop it or change server.listen")]
    InUse {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The address belongs to no interface of this machine: change `server.listen`.
    #[error("cannot listen on {address}: this machine has no such address; change server.listen")]
    NotOurs {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// Anything else, such as a port below 1024 without the right to it: change `server.listen`.
    #[error("cannot listen on {address} (server.listen)")]
    Failed {
        /// The address that was asked for.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// Why the server had ended before it was stopped.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP server broke down: {0}")]
pub struct ServerFailure(String);

/// Listens; nobody is answered before [`start`]. `SO_REUSEADDR` is set, so that a restart need not wait for old
/// connections to be forgotten.
///
/// # Errors
///
/// When the address cannot be had.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).map_err(|source| {
        if source.kind() == io::ErrorKind::AddrInUse {
            BindError::InUse { address }
        } else if source.kind() == io::ErrorKind::AddrNotAvailable {
            BindError::NotOurs { address }
        } else {
            BindError::Failed { address, source }
        }
    })
}

/// A running server. Dropping it stops it too, without waiting.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    /// Closed when the thread has ended, in whatever way.
    alive: mpsc::Sender<Infallible>,
    thread: JoinHandle<()>,
}

/// Starts to answer.
///
/// # Errors
///
/// When the system gives no thread or no event queue.
pub fn start(listener: TcpListener, surface: Surface) -> io::Result<Server> {
    start_with(listener, surface, Limits::default())
}

/// Starts to answer, with other limits than usual.
///
/// # Errors
///
/// When the system gives no thread or no event queue.
pub fn start_with(listener: TcpListener, surface: Surface, limits: Limits) -> io::Result<Server> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let listener = tokio::net::TcpListener::from_std(listener)?;
    drop(entered);
    let (stop, stopped) = oneshot::channel();
    let (alive, lives) = mpsc::channel(1);
    let thread = thread::Builder::new().name("export".to_owned()).spawn(move || {
        // Dropped when the thread ends, by a panic too.
        let _lives: mpsc::Receiver<Infallible> = lives;
        runtime.block_on(serve::serve(listener, surface, limits, stopped));
    })?;
    Ok(Server { address, stop, alive, thread })
}

impl Server {
    /// Where it listens: with port 0 asked for, the port that was given.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the server has ended, which it does not do unasked unless something is broken. May be dropped and
    /// called again.
    pub async fn ended(&self) {
        self.alive.closed().await;
    }

    /// Stops listening, lets answers under way end for up to [`Limits::drain`], and joins the thread. Blocks for as long.
    ///
    /// # Errors
    ///
    /// When the server's thread had panicked.
    pub fn stop(self) -> Result<(), ServerFailure> {
        // A thread that has ended already hears nothing, and its panic is what join tells.
        self.stop.send(()).ok();
        self.thread.join().map_err(|panic| ServerFailure(message(panic.as_ref())))
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

#[cfg(test)]
mod tests;
