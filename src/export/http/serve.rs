//! Accepts connections, and lets them go.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use crate::export::http::patient::Patient;
use crate::export::http::routes::{self, Front};
use crate::export::http::{Limits, Surface};
use crate::export::view::View;

/// The most that a request head may have: far above any browser's, and not enough to fill memory with.
const MOST_HEAD: usize = 64 << 10;

/// How long no connection is accepted after one could not be, for want of descriptors. Trying on would burn the core.
const PAUSE: Duration = Duration::from_millis(100);

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
    let mut complained = false;
    loop {
        tokio::select! {
            biased;
            _ = &mut stop => break,
            () = &mut watching => {}
            Some(ended) = connections.join_next() => report(ended),
            accepted = listener.accept(), if connections.len() < limits.connections => match accepted {
                Ok((socket, _)) => {
                    complained = false;
                    connections.spawn(converse(socket, router.clone(), limits, leaving.clone()));
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
        while let Some(ended) = connections.join_next().await {
            report(ended);
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

/// A panic in a handler costs its connection, and shows.
fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "an HTTP handler broke down");
    }
}

/// One connection, until either side closes it.
async fn converse(socket: TcpStream, router: Router, limits: Limits, mut leaving: watch::Receiver<()>) {
    // Without it small answers wait for the peer's delayed acknowledgement. It fails on sockets that are already dead.
    socket.set_nodelay(true).ok();
    let io = TokioIo::new(Patient::new(socket, limits.write));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_header_size(MOST_HEAD).max_buf_size(MOST_HEAD);
    let mut connection = pin!(http.serve_connection(io, TowerToHyperService::new(router)));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
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
    use hyper::service::Service;
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
