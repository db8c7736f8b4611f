//! One connection: hyper reads a request, the answer's steps are taken here, and so on until someone leaves.
//!
//! The connection belongs to one task. Hyper's server connection parses the request and is then taken apart again
//! (`into_parts`), which gives the socket back with whatever was read too far; the response that hyper waits for never
//! comes. See `wire` for why.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderMap};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Method, Request, Version};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::clock;
use crate::sim::engine::Ticket;
use crate::sim::event::Due;
use crate::sim::fault::{ConnectionFault, StaleHow};
use crate::sim::http::{Carrier, Received};
use crate::sim::refusal::Refusal;
use crate::sim::reply::Reply;
use crate::sim::truth::{End, Recording, Writing};
use crate::sim::wire::{Act, Steps, Terms};

/// Larger bodies are refused: a prompt of 16 MB has four million tokens.
const MOST_BODY: usize = 16 << 20;

/// Room for the first read of a request, which is all of it most of the time.
const ROOM: usize = 4096;

/// Bytes of further requests that are read while one is answered.
const MOST_AHEAD: usize = 65_536;

/// How long a closed connection waits for the peer to close too, so that unread bytes do not turn the FIN into an RST.
const LINGER: Duration = Duration::from_secs(1);

/// How connections behave between requests.
#[derive(Debug, Clone)]
pub(crate) struct Habits {
    /// Idle time after which a kept connection is closed.
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) faults: Vec<ConnectionFault>,
}

/// A stream, and what makes its end an RST.
pub(crate) struct Socket<I> {
    pub(crate) io: I,
    /// Called before the stream is dropped.
    pub(crate) arm_reset: fn(&I),
}

enum Next {
    Request,
    Close,
}

/// Serves one connection to its end.
pub(crate) async fn serve<I>(mut socket: Socket<I>, router: Router, habits: Habits)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut inbox = BytesMut::new();
    let mut idle = habits.keep_alive;
    let mut stale = None;
    for fault in &habits.faults {
        match fault {
            ConnectionFault::SlowAccept { delay } => sleep_until(clock::now() + *delay).await,
            ConnectionFault::IdleClose { idle: after } => idle = Some(idle.map_or(*after, |idle| idle.min(*after))),
            ConnectionFault::StaleClose { how } => stale = Some(*how),
        }
    }
    let mut is_kept = false;
    loop {
        if inbox.is_empty() && !arrives(&mut socket.io, &mut inbox, idle.filter(|_| is_kept)).await {
            return close(socket.io).await;
        }
        let read_at = Arc::new(Mutex::new(clock::now()));
        match stale.filter(|_| is_kept) {
            Some(StaleHow::Fin) => return close(socket.io).await,
            Some(StaleHow::Rst) => return (socket.arm_reset)(&socket.io),
            None => {}
        }
        let Some(taken) = take_request(Intake { inbox, io: socket.io, read_at }, &router).await else { return };
        (socket.io, inbox) = (taken.io, taken.inbox);
        let mut reply = taken.reply;
        let watched = Watched { ticket: reply.ticket.take(), recording: reply.recording.take() };
        let (steps, keeps_alive) = Steps::new(reply, taken.terms);
        match play(&mut socket, &mut inbox, steps, watched).await {
            Next::Request if keeps_alive => is_kept = true,
            Next::Request => return close(socket.io).await,
            Next::Close => return,
        }
    }
}

/// Whether a byte came, rather than the end of the connection or of the idle time.
async fn arrives<I: AsyncRead + Unpin>(io: &mut I, inbox: &mut BytesMut, idle: Option<Duration>) -> bool {
    inbox.reserve(ROOM);
    let read = io.read_buf(inbox);
    match idle {
        None => matches!(read.await, Ok(1..)),
        Some(idle) => tokio::select! {
            biased;
            read = read => matches!(read, Ok(1..)),
            () = sleep_until(clock::now() + idle) => false,
        },
    }
}

/// Ends the connection in order.
async fn close<I: AsyncRead + AsyncWrite + Unpin>(mut io: I) {
    if io.shutdown().await.is_err() {
        return;
    }
    let deadline = sleep_until(clock::now() + LINGER);
    let mut scrap = [0; 4096];
    let drain = async { while matches!(io.read(&mut scrap).await, Ok(1..)) {} };
    tokio::select! {
        () = drain => {}
        () = deadline => {}
    }
}

/// A request that was read and answered, and the connection that it came on.
struct Taken<I> {
    io: I,
    inbox: BytesMut,
    reply: Reply,
    terms: Terms,
}

/// Reads one request and lets the routes answer it. `None` when the client left or hyper refused its bytes.
async fn take_request<I>(intake: Intake<I>, router: &Router) -> Option<Taken<I>>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, mut receiver) = mpsc::channel(1);
    let read_at = Arc::clone(&intake.read_at);
    let service = service_fn(move |request| {
        let (sender, router, read_at) = (sender.clone(), router.clone(), Arc::clone(&read_at));
        async move {
            // The receiver is gone only when the connection is, and then nobody waits for this.
            sender.send(answer(request, router, &read_at).await).await.ok();
            pending::<Result<Response<Empty<Bytes>>, Infallible>>().await
        }
    });
    let mut connection = http1::Builder::new().serve_connection(intake, service);
    let (reply, terms) = tokio::select! {
        biased;
        answered = receiver.recv() => answered.flatten()?,
        _ = &mut connection => return None,
    };
    let parts = connection.into_parts();
    let Intake { mut inbox, io, .. } = parts.io;
    // What hyper read too far came before what it has not read yet.
    let mut ahead = BytesMut::from(parts.read_buf.as_ref());
    ahead.unsplit(inbox.split());
    Some(Taken { io, inbox: ahead, reply, terms })
}

async fn answer(request: Request<Incoming>, router: Router, read_at: &Mutex<Instant>) -> Option<(Reply, Terms)> {
    let (mut head, body) = request.into_parts();
    let terms = terms(head.version, &head.headers);
    let is_head = head.method == Method::HEAD;
    let body = match Limited::new(body, MOST_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let reply = Reply { must_close: true, ..Reply::refusal(Refusal::body_too_large(MOST_BODY)) };
            return Some((reply, terms));
        }
        Err(_) => return None,
    };
    let at = *read_at.lock().unwrap_or_else(PoisonError::into_inner);
    head.extensions.insert(Received { at, path: head.uri.path().to_owned() });
    let request = Request::from_parts(head, Body::from(body));
    let mut response = match TowerToHyperService::new(router).call(request).await {
        Ok(response) => response,
        Err(impossible) => match impossible {},
    };
    if let Some(mut reply) = response.extensions_mut().remove::<Carrier>().and_then(|carrier| carrier.take()) {
        if is_head {
            reply.body = Box::new(std::iter::empty());
        }
        return Some((reply, terms));
    }
    let (head, body) = response.into_parts();
    let body = body.collect().await.ok()?.to_bytes();
    let headers = head.headers.iter().filter_map(|(name, value)| {
        // The head is written with names known at compile time; these are all that axum sets by itself.
        let name = ["content-type", "allow"].into_iter().find(|known| name == known)?;
        Some((name, value.to_str().ok()?.to_owned()))
    });
    Some((Reply::plain(head.status.as_u16(), headers.collect(), body), terms))
}

fn terms(version: Version, headers: &HeaderMap) -> Terms {
    let says = |word: &str| {
        let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(word))
    };
    let is_http10 = version == Version::HTTP_10;
    Terms { is_http10, keeps_alive: if is_http10 { says("keep-alive") } else { !says("close") } }
}

/// What goes with the steps of one answer: the engine that makes its tokens, and the log of what really happened.
struct Watched {
    ticket: Option<Arc<Ticket>>,
    recording: Option<Recording>,
}

/// Takes the steps of one answer.
async fn play<I>(socket: &mut Socket<I>, inbox: &mut BytesMut, steps: Steps, watched: Watched) -> Next
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let Watched { ticket, mut recording } = watched;
    for step in steps {
        let due = match step.due {
            None => None,
            Some(Due::At(due)) if due <= clock::now() => Some(due),
            Some(due) => match stays_until(&mut socket.io, inbox, Some(due), ticket.as_deref()).await {
                Some(due) => Some(due),
                None => return Next::Close,
            },
        };
        match step.act {
            Act::Write { bytes, is_head, tokens } => {
                let stamp = |now: Instant, is_retry: bool| {
                    if let Some(recording) = &mut recording {
                        recording.writing(now, Writing { due, is_head, tokens, is_retry });
                    }
                };
                if write(&mut socket.io, &bytes, stamp).await.is_err() {
                    return Next::Close;
                }
            }
            Act::Pause => {
                if let (Some(recording), Some(ticket)) = (&mut recording, &ticket) {
                    recording.cached(ticket.cached_tokens());
                }
            }
            Act::Hang => {
                stays_until(&mut socket.io, inbox, None, None).await;
                return Next::Close;
            }
            Act::Fin => {
                finish(recording, End::Cut);
                close(&mut socket.io).await;
                return Next::Close;
            }
            Act::Rst => {
                finish(recording, End::Cut);
                (socket.arm_reset)(&socket.io);
                return Next::Close;
            }
        }
    }
    if let (Some(recording), Some(spent)) = (&mut recording, ticket.as_ref().and_then(|ticket| ticket.spent())) {
        recording.spent(spent);
    }
    finish(recording, End::Whole);
    Next::Request
}

fn finish(recording: Option<Recording>, end: End) {
    if let Some(recording) = recording {
        recording.close(clock::now(), end);
    }
}

/// Waits for the moment, or for ever; the moment, if the peer was still there. What it sends meanwhile goes to the inbox.
async fn stays_until<I>(io: &mut I, inbox: &mut BytesMut, due: Option<Due>, ticket: Option<&Ticket>) -> Option<Instant>
where
    I: AsyncRead + Unpin,
{
    let moment = async {
        match (due, ticket) {
            (Some(Due::At(due)), _) => {
                sleep_until(due).await;
                due
            }
            (Some(Due::Made { tokens, plus }), Some(ticket)) => {
                let due = ticket.made(tokens).await + plus;
                if due > clock::now() {
                    sleep_until(due).await;
                }
                due
            }
            (Some(Due::Made { .. }), None) | (None, _) => pending().await,
        }
    };
    tokio::pin!(moment);
    // A peer that sends that much ahead of its answer is taken for gone: it could never be seen to leave.
    while inbox.len() < MOST_AHEAD {
        tokio::select! {
            biased;
            due = &mut moment => return Some(due),
            read = io.read_buf(inbox) => {
                if !matches!(read, Ok(1..)) {
                    return None;
                }
            }
        }
    }
    None
}

/// Writes all of `bytes`, with a stamp before each try: the last one belongs to the write that completed them.
async fn write<I: AsyncWrite + Unpin>(
    io: &mut I,
    bytes: &[u8],
    mut stamp: impl FnMut(Instant, bool),
) -> io::Result<()> {
    let mut left = bytes;
    let mut is_retry = false;
    poll_fn(|cx| {
        while !left.is_empty() {
            stamp(clock::now(), is_retry);
            is_retry = true;
            match Pin::new(&mut *io).poll_write(cx, left) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => left = left.get(count..).unwrap_or_default(),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    })
    .await
}

/// A stream of which some bytes were already read, as hyper wants it.
struct Intake<I> {
    inbox: BytesMut,
    io: I,
    /// When the socket was last read. The read that brings a request's last byte is the moment it was received; what
    /// hyper needs to take it apart is the gateway's time, not the network's.
    read_at: Arc<Mutex<Instant>>,
}

impl<I: AsyncRead + Unpin> hyper::rt::Read for Intake<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut out: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.inbox.is_empty() {
            let count = self.inbox.len().min(out.remaining());
            out.put_slice(self.inbox.get(..count).unwrap_or_default());
            self.inbox.advance(count);
            return Poll::Ready(Ok(()));
        }
        // Reading into hyper's own buffer would need unsafe code; requests are small, and copying them is cheap.
        let mut space = [0; 8192];
        let count = space.len().min(out.remaining());
        let mut buffer = ReadBuf::new(space.get_mut(..count).unwrap_or_default());
        match Pin::new(&mut self.io).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) => {
                *self.read_at.lock().unwrap_or_else(PoisonError::into_inner) = clock::now();
                out.put_slice(buffer.filled());
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<I: AsyncWrite + Unpin> hyper::rt::Write for Intake<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
