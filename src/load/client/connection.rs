//! One HTTP/1.1 connection whose socket reads are stamped.
//!
//! hyper keeps the protocol right; this file keeps the stamps right. The stream below hyper notes the instant at which
//! each read returned. hyper reads the socket only when its buffer is empty and hands over one frame at a time through a
//! channel of one slot, and the connection's future is polled here, in the task that takes the frames, never in a task of
//! its own. So when a frame comes out, the last stamped read is the read that completed it.

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::clock;
use crate::load::client::dial::Stream;

/// Largest response head, and most that hyper reads ahead of us.
const MAX_BUFFER: usize = 256 << 10;

/// What the reads of one connection have shown so far.
#[derive(Debug)]
pub(super) struct Reads {
    last_at: Cell<Instant>,
    bytes: Cell<u64>,
}

/// The stream under hyper: it stamps every read that returns, end of stream included.
struct Stamped {
    stream: Box<dyn Stream>,
    reads: Rc<Reads>,
}

type Driver = Pin<Box<http1::Connection<TokioIo<Stamped>, Full<Bytes>>>>;

/// An open connection for one request at a time.
pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` once it has ended.
    driver: Option<Driver>,
    /// Why the connection ended, if it ended badly. hyper tells the request less than it tells its connection.
    failure: Option<hyper::Error>,
    reads: Rc<Reads>,
    /// When the last request on it ended.
    pub(super) idle_since: Instant,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("reads", &self.reads).field("idle_since", &self.idle_since).finish()
    }
}

impl Connection {
    /// Speaks HTTP/1.1 over an open stream.
    pub(super) async fn over(stream: Box<dyn Stream>) -> Result<Self, hyper::Error> {
        let reads = Rc::new(Reads { last_at: Cell::new(clock::now()), bytes: Cell::new(0) });
        let io = TokioIo::new(Stamped { stream, reads: Rc::clone(&reads) });
        let (sender, driver) = http1::Builder::new().max_buf_size(MAX_BUFFER).handshake(io).await?;
        Ok(Self { sender, driver: Some(Box::pin(driver)), failure: None, reads, idle_since: clock::now() })
    }

    /// Return of the last socket read.
    pub(super) fn read_at(&self) -> Instant {
        self.reads.last_at.get()
    }

    /// Bytes read so far, over all requests.
    pub(super) fn bytes_read(&self) -> u64 {
        self.reads.bytes.get()
    }

    /// Why the connection ended, where it says more than the request's own error.
    pub(super) fn take_failure(&mut self) -> Option<hyper::Error> {
        self.failure.take()
    }

    /// Waits until a request can be written at once.
    pub(super) async fn ready(&mut self) -> Result<(), hyper::Error> {
        poll_fn(|cx| {
            if let Poll::Ready(result) = self.sender.poll_ready(cx) {
                return Poll::Ready(result);
            }
            self.drive(cx);
            self.sender.poll_ready(cx)
        })
        .await
    }

    /// Looks, without waiting, whether the peer has closed or broken an idle connection.
    pub(super) async fn is_usable(&mut self) -> bool {
        poll_fn(|cx| {
            self.drive(cx);
            Poll::Ready(self.driver.is_some() && self.sender.is_ready())
        })
        .await
    }

    /// Sends a request and waits for the response head.
    pub(super) async fn respond(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, hyper::Error> {
        let mut response = pin!(self.sender.send_request(request));
        let (driver, failure) = (&mut self.driver, &mut self.failure);
        poll_fn(|cx| {
            drive(driver, failure, cx);
            response.as_mut().poll(cx)
        })
        .await
    }

    /// The next frame of the body; `None` at its end.
    pub(super) async fn frame(&mut self, body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        poll_fn(|cx| {
            // What an earlier read brought comes out before the socket is read again.
            if let ready @ Poll::Ready(_) = Pin::new(&mut *body).poll_frame(cx) {
                return ready;
            }
            self.drive(cx);
            Pin::new(&mut *body).poll_frame(cx)
        })
        .await
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.driver, &mut self.failure, cx);
    }
}

/// Polls the connection's own future; what it has to say reaches the request through its channels.
fn drive(driver: &mut Option<Driver>, failure: &mut Option<hyper::Error>, cx: &mut Context<'_>) {
    if let Some(future) = driver
        && let Poll::Ready(result) = future.as_mut().poll(cx)
    {
        *failure = result.err();
        *driver = None;
    }
}

impl AsyncRead for Stamped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        if result.is_ready() {
            self.reads.last_at.set(clock::now());
            self.reads.bytes.update(|bytes| bytes + (buf.filled().len() - before) as u64);
        }
        result
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
