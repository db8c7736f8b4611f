//! One request on one connection: from the hand-over to the end of the answer.

use std::error::Error;
use std::future::Future;
use std::io;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::http::response::Parts;
use hyper::{StatusCode, header};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use crate::clock;
use crate::config::sections::Timeouts;
use crate::domain::outcome::Outcome;
use crate::domain::timeline::{Answer, Timeline};
use crate::load::client::connection::Connection;
use crate::load::client::dial::is_local;
use crate::load::client::encoding::Encoding;
use crate::load::client::patience::retry_after;
use crate::load::client::reader::{Ending, Reader, excerpt};
use crate::load::client::{Client, Prepared};

/// After `[DONE]` the last chunk is usually less than 0.1 ms away; a server that takes longer costs a new connection.
const DRAIN: Duration = Duration::from_millis(100);
/// What is read of the body of an error response.
const MAX_ERROR_BODY: usize = 8 << 10;

/// One try at a request.
pub(super) struct Exchange<'a> {
    pub(super) client: &'a Client,
    pub(super) request: &'a Prepared,
    pub(super) timeline: &'a mut Timeline,
    pub(super) connection: &'a mut Connection,
}

/// How a try ended.
#[derive(Debug)]
pub(super) struct End {
    pub(super) outcome: Outcome,
    pub(super) detail: Option<String>,
    pub(super) at: Instant,
    /// The response ended by protocol: the connection may serve another request.
    pub(super) reusable: bool,
}

/// What interrupts a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    Deadline,
    Canceled,
}

/// Waits for one thing after another, up to a moving deadline or until the request is canceled.
///
/// The deadline moves with every token. The timer is only moved when it has to fire earlier, and when it fires too early
/// because the deadline has moved on; between tokens it costs nothing.
#[derive(Debug)]
pub(super) struct Waiter<'c, C> {
    cancel: Pin<&'c mut C>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'c, C: Future<Output = ()>> Waiter<'c, C> {
    pub(super) fn new(cancel: Pin<&'c mut C>) -> Self {
        Self { cancel, timer: None }
    }

    pub(super) async fn within<F: Future>(&mut self, future: F, deadline: Instant) -> Result<F::Output, Interrupt> {
        let mut future = pin!(future);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
        }
        loop {
            tokio::select! {
                biased;
                output = &mut future => return Ok(output),
                () = self.cancel.as_mut() => return Err(Interrupt::Canceled),
                () = timer.as_mut() => {
                    if timer.deadline() >= deadline {
                        return Err(Interrupt::Deadline);
                    }
                    timer.as_mut().reset(deadline);
                }
            }
        }
    }
}

/// The time limits of a request that is under way.
#[derive(Debug, Clone, Copy)]
struct Limits {
    timeouts: Timeouts,
    sent_at: Instant,
}

impl Limits {
    /// The next limit that runs out, and the outcome that it then is.
    fn next(&self, answer: &Answer) -> (Instant, Outcome) {
        let total = (self.sent_at + self.timeouts.total, Outcome::TimeoutTotal);
        let token = match answer.last_at() {
            None => (self.sent_at + self.timeouts.first_token, Outcome::TimeoutFirstToken),
            Some(last_at) => (last_at + self.timeouts.idle, Outcome::TimeoutIdle),
        };
        if token.0 <= total.0 { token } else { total }
    }
}

/// What the head of an error asks for, if it is one that does: too many requests, or not at the moment.
fn asked_patience(head: &Parts) -> Option<Duration> {
    let asks = matches!(head.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let value = head.headers.get(header::RETRY_AFTER).filter(|_| asks)?;
    retry_after(value.as_bytes(), clock::wall_now())
}

impl Exchange<'_> {
    /// Sends the request and reads the answer. `None`: the connection was stale and nothing was answered.
    pub(super) async fn run<C: Future<Output = ()>>(
        &mut self,
        reused: bool,
        waiter: &mut Waiter<'_, C>,
    ) -> Option<End> {
        let bytes_before = self.connection.bytes_read();
        let request = match self.client.http_request(self.request) {
            Ok(request) => request,
            Err(error) => return Some(self.end(Outcome::Local, Some(error.to_string()))),
        };
        if let Err(error) = self.connection.ready().await {
            return (!reused).then(|| self.fail(&error, bytes_before));
        }
        let sent_at = clock::now();
        self.timeline.sent_at = Some(sent_at);
        let limits = Limits { timeouts: self.client.timeouts, sent_at };
        let (deadline, expired) = limits.next(&Answer::default());
        match waiter.within(self.connection.respond(request), deadline).await {
            Ok(Ok(response)) => {
                let (head, body) = response.into_parts();
                self.timeline.headers_at = Some(self.connection.read_at());
                self.timeline.status = Some(head.status.as_u16());
                Some(match Outcome::of_status(head.status.as_u16()) {
                    Some(outcome) => self.read_error(outcome, &head, body, deadline, waiter).await,
                    None => self.read_answer(limits, &head, body, waiter).await,
                })
            }
            Ok(Err(_)) if reused && self.connection.bytes_read() == bytes_before => None,
            Ok(Err(error)) => Some(self.fail(&error, bytes_before)),
            Err(Interrupt::Deadline) => {
                let detail = in_words(expired, &Answer::default(), limits.timeouts, self.request.output_tokens);
                Some(self.end(expired, detail))
            }
            Err(Interrupt::Canceled) => Some(self.end(Outcome::Canceled, None)),
        }
    }

    /// Reads the streamed answer to its end.
    async fn read_answer<C: Future<Output = ()>>(
        &mut self,
        limits: Limits,
        head: &Parts,
        mut body: Incoming,
        waiter: &mut Waiter<'_, C>,
    ) -> End {
        let client = self.client;
        let header = head.headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("?"));
        let Some(mut encoding) = Encoding::of(header) else {
            let detail = format!("content-encoding {} cannot be read", header.unwrap_or_default());
            return self.end(Outcome::BadResponse, excerpt(detail.as_bytes()));
        };
        self.timeline.compressed = !encoding.is_identity();
        let mut reader = Reader::new(client.api, client.fixed_length.then_some(self.request.output_tokens));
        let (ending, cause) = loop {
            let (deadline, expired) = limits.next(reader.answer());
            let frame = match waiter.within(self.connection.frame(&mut body), deadline).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => break self.ending(&error),
                Ok(None) => break (Ending::Complete, None),
                Err(Interrupt::Deadline) => break (Ending::TimedOut(expired), None),
                Err(Interrupt::Canceled) => break (Ending::Canceled, None),
            };
            let Ok(data) = frame.into_data() else { continue };
            let at = self.connection.read_at();
            match encoding.decode(&data, |plain| reader.feed(plain, at)) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break (Ending::Enough, None),
                Err(error) => break (Ending::BadFraming, Some(format!("compressed body: {error}"))),
            }
            // A flood of bytes keeps the timer from ever being polled, so the stamps are held against the limits too.
            let (deadline, expired) = limits.next(reader.answer());
            if at >= deadline {
                break (Ending::TimedOut(expired), None);
            }
        };
        let outcome = reader.finish(ending, self.connection.read_at());
        let done = ending == Ending::Enough && outcome.is_answered();
        let reusable = ending == Ending::Complete || (done && self.drain(&mut body).await);
        let (answer, said) = reader.into_parts();
        let at = answer.closed_at.filter(|_| outcome.is_answered()).unwrap_or_else(clock::now);
        let detail = said.or(cause).or_else(|| in_words(outcome, &answer, limits.timeouts, self.request.output_tokens));
        self.timeline.answer = answer;
        End { outcome, detail, at, reusable }
    }

    /// Reads as much of an error response as a person wants to see.
    async fn read_error<C: Future<Output = ()>>(
        &mut self,
        outcome: Outcome,
        head: &Parts,
        mut body: Incoming,
        deadline: Instant,
        waiter: &mut Waiter<'_, C>,
    ) -> End {
        self.timeline.retry_after = asked_patience(head);
        let mut text = Vec::new();
        let mut reusable = false;
        while text.len() < MAX_ERROR_BODY {
            match waiter.within(self.connection.frame(&mut body), deadline).await {
                Ok(Some(Ok(frame))) => text.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
                Ok(None) => {
                    reusable = true;
                    break;
                }
                // The status has already decided the outcome.
                Ok(Some(Err(_))) | Err(Interrupt::Deadline | Interrupt::Canceled) => break,
            }
        }
        let named = [("location", header::LOCATION), ("retry-after", header::RETRY_AFTER)];
        let mut detail = String::new();
        for (name, header) in named {
            if let Some(value) = head.headers.get(header).and_then(|value| excerpt(value.as_bytes())) {
                detail.push_str(&format!("{name}: {value}; "));
            }
        }
        detail.push_str(excerpt(&text).as_deref().unwrap_or("an empty body"));
        End { outcome, detail: Some(detail), at: self.connection.read_at(), reusable }
    }

    /// Reads on to the end of a body whose `[DONE]` was seen, so that its connection can be used again.
    async fn drain(&mut self, body: &mut Incoming) -> bool {
        let drained = async {
            while let Some(frame) = self.connection.frame(body).await {
                if frame.is_err() {
                    return false;
                }
            }
            true
        };
        timeout_at(clock::now() + DRAIN, drained).await.unwrap_or(false)
    }

    fn end(&self, outcome: Outcome, detail: Option<String>) -> End {
        End { outcome, detail, at: clock::now(), reusable: false }
    }

    /// The end of a request that got no response head.
    fn fail(&mut self, error: &hyper::Error, bytes_before: u64) -> End {
        let (ending, cause) = self.ending(error);
        let outcome = match ending {
            Ending::Reset => Outcome::Reset,
            Ending::Local => Outcome::Local,
            Ending::BadFraming => Outcome::Parse,
            // Closed without a word, or within the head: nothing that could be judged as a body.
            Ending::Complete | Ending::Cut | Ending::Enough | Ending::TimedOut(_) | Ending::Canceled => {
                Outcome::Truncated
            }
        };
        let none = self.connection.bytes_read() == bytes_before;
        let cause = if outcome == Outcome::Truncated && none {
            Some("the connection was closed before the first byte of a response".to_owned())
        } else {
            cause
        };
        self.timeline.answer.cut = ending == Ending::Cut;
        self.end(outcome, cause)
    }

    /// What hyper's error means, and its cause in words.
    fn ending(&mut self, error: &hyper::Error) -> (Ending, Option<String>) {
        // The connection knows more than the request: for that one it is merely canceled.
        let failure = self.connection.take_failure();
        let error = failure.as_ref().unwrap_or(error);
        let mut cause: &dyn Error = error;
        let mut io_error = None;
        while let Some(source) = cause.source() {
            cause = source;
            io_error = cause.downcast_ref::<io::Error>().or(io_error);
        }
        (ending_of(error, io_error), Some(cause.to_string()))
    }
}

/// What happened, for outcomes about which nobody else has said anything.
fn in_words(outcome: Outcome, answer: &Answer, timeouts: Timeouts, asked: u32) -> Option<String> {
    let events = answer.tokens.len();
    let reason = answer.finish_reason.as_deref().unwrap_or("none");
    let text = match outcome {
        Outcome::TimeoutFirstToken => format!("no token within {:?}", timeouts.first_token),
        Outcome::TimeoutIdle => format!("no further token for {:?} after {events} events", timeouts.idle),
        Outcome::TimeoutTotal => format!("not finished after {:?} and {events} events", timeouts.total),
        Outcome::Truncated if answer.cut => format!("the connection was closed within the body, after {events} events"),
        Outcome::Truncated => format!("the body ended after {events} events without finish_reason and [DONE]"),
        Outcome::Empty => format!("the body ended without a token, finish_reason {reason}"),
        Outcome::ShortOutput => {
            let n = answer.output_tokens().unwrap_or_default();
            format!("{n} of {asked} tokens, finish_reason {reason}")
        }
        Outcome::Ok
        | Outcome::Dns
        | Outcome::Connect
        | Outcome::Tls
        | Outcome::TimeoutConnect
        | Outcome::Reset
        | Outcome::Http3xx
        | Outcome::Http401
        | Outcome::Http403
        | Outcome::Http404
        | Outcome::Http429
        | Outcome::Http4xx
        | Outcome::Http5xx
        | Outcome::Parse
        | Outcome::BadResponse
        | Outcome::InBandError
        | Outcome::Local
        | Outcome::Canceled => return None,
    };
    Some(text)
}

fn ending_of(error: &hyper::Error, io_error: Option<&io::Error>) -> Ending {
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return Ending::Cut;
    }
    let Some(io_error) = io_error else {
        // No cause beneath hyper's own: bytes that are not HTTP.
        return Ending::BadFraming;
    };
    if is_local(io_error) {
        return Ending::Local;
    }
    let kind = io_error.kind();
    // rustls reports an alert, and bytes that do not decrypt, as invalid data; hyper so a bad chunk.
    let is_tls = io_error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
    if kind == io::ErrorKind::UnexpectedEof {
        // Inside a chunk, or TLS closed without its farewell.
        Ending::Cut
    } else if !is_tls && matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) {
        Ending::BadFraming
    } else {
        Ending::Reset
    }
}
