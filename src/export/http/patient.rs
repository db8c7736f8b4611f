//! A socket that gives up on a peer who does not take what is written.
//!
//! hyper limits how long a head may take to arrive, not how long an answer may take to leave. The clock runs from the
//! first write that finds the socket full until all of the answer is flushed, so that a peer who takes a byte now and
//! then gains nothing.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// See the module.
#[derive(Debug)]
pub(super) struct Patient<I> {
    io: I,
    limit: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<I> Patient<I> {
    pub(super) fn new(io: I, limit: Duration) -> Self {
        Self { io, limit, deadline: None }
    }

    /// What a write came to: one that would have to wait for too long is an error.
    fn judge(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            return written;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        deadline.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Patient<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Patient<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// hyper flushes when it has nothing left to write: the answer has gone.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        if flushed.is_ready() {
            self.deadline = None;
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::clock;

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_byte_now_and_then_is_given_up_on() {
        let (near, mut far) = duplex(8);
        let mut patient = Patient::new(near, LIMIT);
        let start = clock::now();
        let sip = async {
            for second in 1.. {
                tokio::time::sleep_until(start + Duration::from_secs(second)).await;
                if far.read_u8().await.is_err() {
                    break;
                }
            }
        };
        let write = async { patient.write_all(&[0; 1000]).await };
        tokio::select! {
            () = sip => unreachable!("the peer reads for ever"),
            written = write => assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut),
        }
        assert_eq!(clock::now() - start, LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn each_answer_has_its_own_time() {
        let (near, mut far) = duplex(8);
        let mut patient = Patient::new(near, LIMIT);
        let start = clock::now();
        let take = async {
            let mut taken = [0; 16];
            for answer in 1..=3 {
                tokio::time::sleep_until(start + 4 * answer * Duration::from_secs(1)).await;
                far.read_exact(&mut taken).await.unwrap();
            }
        };
        let write = async {
            for _ in 0..3 {
                patient.write_all(&[0; 16]).await.unwrap();
                patient.flush().await.unwrap();
            }
        };
        tokio::join!(take, write);
        assert!(clock::now() - start > LIMIT);
    }
}
