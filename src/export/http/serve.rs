//! Accepts connections, and lets them go.
//!
//! When all places are taken, the connection that has been quiet for longest, a second at least, is closed for the new one: idle
//! peers, and those that never finish a request, must not keep a probe or a scrape waiting.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{interval, sleep, timeout};

use crate::export::http::patient::Patient;
use crate::export::http::routes::{self, Front};
use crate::export::http::{Limits, Surface};
use crate::export::view::View;

/// The most that a request head may have: far above any browser's, and not enough to fill memory with.
const MOST_HEAD: usize = 64 << 10;

/// How long no connection is accepted after one could not be, for want of descriptors. Trying on would burn the core.
const PAUSE: Duration = Duration::from_millis(100);

/// How exactly it is known since when a connection has been quiet.
const TICK: Duration = Duration::from_millis(250);

/// A connection that has been quiet for so long may be closed for another: a peer that has just come is about to ask.
const QUIET_TICKS: u64 = 4;

/// Whether views still come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// They do.
    Fresh,
    /// None has come for [`Limits::stale`].
    Stale,
    /// None will: whoever made them has gone.
    Gone,
}

/// Serves until `stop` is sent or dropped.
pub(super) async fn serve(listener: TcpListener, surface: Surface, limits: Limits, mut stop: oneshot::Receiver<()>) {
    let (freshness, fresh) = watch::channel(Freshness::Fresh);
    let mut watching = pin!(watch_over(surface.views.clone(), limits.stale, freshness));
    let router = routes::router(Front { surface, fresh, limits });
    let (leave, leaving) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut places = Places::default();
    let mut complained = false;
    let mut ticks = interval(TICK);
    loop {
        tokio::select! {
            biased;
            _ = &mut stop => break,
            () = &mut watching => {}
            _ = ticks.tick() => drop(places.clock.fetch_add(1, Ordering::Relaxed)),
            Some(ended) = connections.join_next_with_id() => places.leave(ended),
            accepted = listener.accept(), if places.have_room(limits.connections) => match accepted {
                Ok((socket, _)) => {
                    complained = false;
                    places.make_room(limits.connections);
                    let (place, leave) = places.new_one();
                    let conversation = converse(socket, router.clone(), limits, place, leaving.clone());
                    places.take(connections.spawn(conversation).id(), leave);
                }
                Err(error) => {
                    if !std::mem::replace(&mut complained, true) {
                        tracing::warn!(%error, "cannot accept HTTP connections");
                    }
                    sleep(PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    drop(leave);
    let drained = async {
        while let Some(ended) = connections.join_next_with_id().await {
            places.leave(ended);
        }
    };
    if timeout(limits.drain, drained).await.is_err() {
        tracing::debug!(connections = connections.len(), "HTTP connections cut off at the end");
    }
}

/// Never ends.
async fn watch_over(mut views: watch::Receiver<Arc<View>>, stale: Duration, freshness: watch::Sender<Freshness>) {
    loop {
        let now = match timeout(stale, views.changed()).await {
            Ok(Ok(())) => Freshness::Fresh,
            Err(_) => Freshness::Stale,
            Ok(Err(_)) => {
                freshness.send_replace(Freshness::Gone);
                std::future::pending().await
            }
        };
        freshness.send_replace(now);
    }
}

/// Who is there.
#[derive(Debug, Default)]
struct Places {
    taken: HashMap<task::Id, (Arc<Place>, oneshot::Sender<()>)>,
    /// In [`TICK`]s.
    clock: Arc<AtomicU64>,
}

/// One connection, as far as others must know.
#[derive(Debug)]
struct Place {
    clock: Arc<AtomicU64>,
    active_at: AtomicU64,
    /// Requests that are being answered.
    answering: AtomicU32,
}

/// What a connection is given: its place, and the sign that another wants it.
struct Seat {
    place: Arc<Place>,
    wanted: oneshot::Receiver<()>,
}

impl Places {
    fn new_one(&self) -> (Seat, (Arc<Place>, oneshot::Sender<()>)) {
        let (want, wanted) = oneshot::channel();
        let clock = Arc::clone(&self.clock);
        let place = Arc::new(Place { clock, active_at: AtomicU64::new(0), answering: AtomicU32::new(0) });
        place.is_active();
        (Seat { place: Arc::clone(&place), wanted }, (place, want))
    }

    fn take(&mut self, id: task::Id, place: (Arc<Place>, oneshot::Sender<()>)) {
        self.taken.insert(id, place);
    }

    /// Whether there is a free place, or one that can be made free.
    fn have_room(&self, most: usize) -> bool {
        self.taken.len() < most || self.taken.values().any(|(place, _)| place.is_quiet())
    }

    /// Closes the quietest connection if there is no place.
    fn make_room(&mut self, most: usize) {
        let quiet = self.taken.iter().filter(|(_, (place, _))| place.is_quiet());
        let quietest = quiet.min_by_key(|(_, (place, _))| place.active_at.load(Ordering::Relaxed)).map(|(id, _)| *id);
        if self.taken.len() >= most
            && let Some((_, want)) = quietest.and_then(|id| self.taken.remove(&id))
        {
            // It may have ended by itself just now.
            want.send(()).ok();
        }
    }

    /// A connection has ended. A panic in a handler costs its connection, and shows.
    fn leave(&mut self, ended: Result<(task::Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => {
                tracing::error!(%error, "an HTTP handler broke down");
                error.id()
            }
        };
        self.taken.remove(&id);
    }
}

impl Place {
    fn is_active(&self) {
        self.active_at.store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn is_quiet(&self) -> bool {
        let quiet_for = self.clock.load(Ordering::Relaxed).saturating_sub(self.active_at.load(Ordering::Relaxed));
        quiet_for >= QUIET_TICKS && self.answering.load(Ordering::Relaxed) == 0
    }
}

/// One connection, until either side closes it or another wants its place.
async fn converse(socket: TcpStream, router: Router, limits: Limits, seat: Seat, mut leaving: watch::Receiver<()>) {
    let Seat { place, wanted } = seat;
    let answer = TowerToHyperService::new(router);
    let service = service_fn(move |request| {
        let (place, answering) = (Arc::clone(&place), answer.call(request));
        place.answering.fetch_add(1, Ordering::Relaxed);
        async move {
            let answered = answering.await;
            place.answering.fetch_sub(1, Ordering::Relaxed);
            // What is left is to be written, which the peer can take its time for, but not for ever.
            place.is_active();
            answered
        }
    });
    // Without it small answers wait for the peer's delayed acknowledgement. It fails on sockets that are already dead.
    socket.set_nodelay(true).ok();
    let io = TokioIo::new(Patient::new(socket, limits.write));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_header_size(MOST_HEAD).max_buf_size(MOST_HEAD);
    let mut connection = pin!(http.serve_connection(io, service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        Ok(()) = wanted => return,
        // An error: the other end was dropped, which is the sign.
        _ = leaving.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection ended badly");
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::{Request, StatusCode};
    use tokio::sync::mpsc;

    use super::*;
    use crate::export::metrics::tests::traffic;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_shows_nothing_new_is_not_healthy() {
        let (views, seen) = watch::channel(Arc::new(traffic(1)));
        let surface =
            Surface { views: seen, requests: mpsc::channel(1).0, admin: watch::channel(None).1, coarse: false };
        let limits = Limits::default();
        let (freshness, fresh) = watch::channel(Freshness::Fresh);
        let mut tasks = JoinSet::new();
        tasks.spawn(watch_over(surface.views.clone(), limits.stale, freshness));
        let front = TowerToHyperService::new(routes::router(Front { surface, fresh, limits }));
        let healthy = async || {
            let asked = Request::get("/-/healthy").body(Body::empty()).unwrap();
            let answer = front.call(asked).await.unwrap();
            let status = answer.status();
            (status, to_bytes(answer.into_body(), 1000).await.unwrap())
        };
        for _ in 0..10 {
            sleep(limits.stale - SECOND).await;
            views.send_modify(|_| {});
            assert_eq!(healthy().await.0, StatusCode::OK);
        }
        sleep(limits.stale + SECOND).await;
        let (status, text) = healthy().await;
        assert_eq!(
            (status, &text[..]),
            (StatusCode::SERVICE_UNAVAILABLE, &b"the daemon has shown nothing new for more than 15s\n"[..])
        );
        views.send_modify(|_| {});
        sleep(SECOND).await;
        assert_eq!(healthy().await.0, StatusCode::OK, "it came round");
        drop(views);
        sleep(SECOND).await;
        let (status, text) = healthy().await;
        assert_eq!((status, &text[..]), (StatusCode::SERVICE_UNAVAILABLE, &b"the daemon has ended\n"[..]));
    }
}
