//! The client of the load path: one request in, one [`Timeline`] out, whatever the gateway does.
//!
//! # Why not `reqwest`
//! Everything this product says rests on the instant at which a socket read returned, and `reqwest` cannot give it: its
//! connection is private, so a stamp can only be taken after its own task has passed the bytes on. Five transports were
//! prototyped on one current-thread runtime, with 64 / 256 streams, against a bare epoll client that parses the same JSON
//! (tokens/s as a ratio to it) and against the server's own stamps (error of TTFT at P99):
//!
//! | transport | tokens/s | TTFT error P99, ms |
//! |---|---|---|
//! | `reqwest` | 0.51-0.61 / 0.43-0.50 | 4.1 / 19.6 |
//! | hyper-util's pool over a stamping connector | 0.56 / 0.47 | 4.1 / 14.8 |
//! | hyper `client::conn::http1`, connection future in a task of its own | 0.57-0.69 / 0.47-0.60 | 2.4 / 10.6 |
//! | **the same, polled in the request's own task, events read by sonic-rs** | 0.90 / 0.72 | 0.5 / 2.2 |
//! | own HTTP reader (`httparse`) | 1.17 / 0.97 | 2.4 / 7.6 |
//!
//! The bold line is what stands here: HTTP's correctness stays hyper's, the stamps are ours ([`connection`]).
//!
//! # Invariants
//! * One request, one outcome, one timeline; `send` never returns an error, because a failing gateway is data.
//! * `sent_at` is taken when the request is handed to a connection that is ready. Opening one is never inside TTFT.
//! * Nothing is retried, but for one case: a *reused* connection that fails before any response byte was closed by the server
//!   while it idled, which says nothing about the gateway. The request goes out once more on a new connection.
//! * No proxy, no redirects, no decompression asked for, one stream per connection, HTTP/1.1.
//! * Not `Send`: a client lives on one worker's thread, and nothing in it is shared or locked.

pub mod body;
pub mod dial;
pub mod event;
pub mod hint;
pub mod reader;
pub mod sse;
pub mod tls;

mod connection;
mod encoding;
mod exchange;
mod patience;
mod pool;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use crate::clock;
use crate::config::environment::Environment;
use crate::config::secrets::{Header, Secrets, bearer};
use crate::config::sections::{SecretSource, Target, Timeouts};
use crate::domain::api::Api;
use crate::domain::arrival::Arrival;
use crate::domain::outcome::Outcome;
use crate::domain::prompt::Prompt;
use crate::domain::timeline::{Answer, ConnectPhases, Timeline};
use crate::load::client::connection::Connection;
use crate::load::client::dial::{Dial, DialError};
use crate::load::client::exchange::{Exchange, Interrupt, Waiter};
use crate::load::client::pool::Pool;
use crate::load::client::reader::{MAX_DETAIL, readable};

/// Reasons that need no look at whether a secret is in them.
const USUAL_ENDS: [&str; 3] = ["length", "stop", "tool_calls"];

/// A key file is looked at no more often than this, however many requests are refused meanwhile.
const KEY_REREAD_PAUSE: Duration = Duration::from_secs(1);

/// One request, rendered ahead.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The body, by [`body::render`].
    pub body: Bytes,
    /// Output tokens asked for.
    pub output_tokens: u32,
    /// The `x-request-id`, for whoever looks the request up in the gateway's log.
    pub request_id: String,
}

impl Prepared {
    /// Renders the request with this index of a load (or of whatever else sends it).
    #[must_use]
    pub fn new(target: &Target, prompt: &Prompt, load: &str, index: u64) -> Self {
        // The random part tells apart two daemons, and two lives of one, that are at the same index.
        let request_id = format!("{load}-{index}-{:016x}", rand::random::<u64>());
        Self { body: body::render(target, prompt), output_tokens: prompt.output_tokens, request_id }
    }
}

/// Sends requests to one target over connections of its own.
pub struct Client {
    api: Api,
    path: String,
    headers: HeaderMap,
    timeouts: Timeouts,
    /// The server is told not to stop early, so fewer tokens than asked for are a short output.
    fixed_length: bool,
    key_source: Option<SecretSource>,
    key_read_at: Cell<Instant>,
    secrets: RefCell<Secrets>,
    dialer: Box<dyn Dial>,
    pool: Pool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("api", &self.api).field("path", &self.path).finish_non_exhaustive()
    }
}

/// Why no client can be made for a target. Each is a fault that the configuration's check should have found.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A name in `headers` is no header name.
    #[error("header name {name:?} cannot be sent")]
    HeaderName {
        /// The name.
        name: String,
    },
    /// A value in `headers`, or the key, holds a line break or another character that no header can carry.
    #[error("the value of header {name} cannot be sent")]
    HeaderValue {
        /// The header.
        name: String,
    },
}

impl Client {
    /// A client for `target`, with the secrets that its configuration names.
    ///
    /// # Errors
    /// When a header cannot be sent.
    pub fn new(target: &Target, secrets: Secrets, dialer: Box<dyn Dial>) -> Result<Self, ClientError> {
        let url = target.request_url();
        let mut headers = HeaderMap::new();
        let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
        headers.insert(header::HOST, header_value("host", authority)?);
        headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("steadyload/", env!("CARGO_PKG_VERSION"))));
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        // A compressor collects tokens until it has a block.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for Header { name, value, .. } in &secrets.headers {
            let header: HeaderName = name.parse().map_err(|_| ClientError::HeaderName { name: name.clone() })?;
            let mut value = header_value(name, value.expose())?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        if let Some(key) = &secrets.key {
            header_value("authorization", &bearer(key))?;
        }
        Ok(Self {
            api: target.api,
            path: url[url::Position::BeforePath..].to_owned(),
            headers,
            timeouts: target.timeouts,
            fixed_length: target.send.ignore_eos,
            key_source: target.api_key.clone(),
            key_read_at: Cell::new(clock::now()),
            secrets: RefCell::new(secrets),
            dialer,
            pool: Pool::default(),
        })
    }

    /// Sends one request and stays with it to its end, which `cancel` brings about early.
    ///
    /// Returns when the outcome is known and, after a good end, the connection is ready for the next request.
    pub async fn send(&self, arrival: Arrival, request: &Prepared, cancel: impl Future<Output = ()>) -> Timeline {
        let cancel = pin!(cancel);
        let mut waiter = Waiter::new(cancel);
        let mut timeline = blank(arrival, request);
        let mut may_reuse = true;
        loop {
            let begun = clock::now();
            let pooled = if may_reuse { self.pool.take(begun).await } else { None };
            let reused = pooled.is_some();
            let mut connection = match pooled {
                Some(connection) => connection,
                None => match self.open(&mut timeline, &mut waiter).await {
                    Ok(connection) => connection,
                    Err((outcome, detail)) => return self.ended(timeline, outcome, detail, clock::now()),
                },
            };
            if !reused {
                timeline.setup += clock::now() - begun;
            }
            let mut exchange = Exchange { client: self, request, timeline: &mut timeline, connection: &mut connection };
            match exchange.run(reused, &mut waiter).await {
                Some(end) => {
                    if end.reusable {
                        self.pool.put(connection, clock::now()).await;
                    }
                    let timeline = self.ended(timeline, end.outcome, end.detail, end.at);
                    if timeline.status == Some(401) {
                        // Only now: the server's words may hold the key that it refused.
                        self.reread_key();
                    }
                    return timeline;
                }
                None => {
                    // Stale. The time that the first try took is set-up, not lateness of the schedule.
                    timeline.setup += clock::now() - begun;
                    timeline.resent = true;
                    may_reuse = false;
                }
            }
        }
    }

    /// Opens a connection for a later request; `None` when none came up, which that request will find out for itself.
    pub async fn connect_ahead(&self) -> Option<ConnectPhases> {
        let deadline = clock::now() + self.timeouts.connect;
        let dialed = self.dialer.dial(deadline).await.ok()?;
        let connection = Connection::over(dialed.stream).await.ok()?;
        self.pool.put(connection, clock::now()).await;
        Some(dialed.phases)
    }

    /// Opens a connection within `timeouts.connect`.
    async fn open<C: Future<Output = ()>>(
        &self,
        timeline: &mut Timeline,
        waiter: &mut Waiter<'_, C>,
    ) -> Result<Connection, (Outcome, Option<String>)> {
        let deadline = clock::now() + self.timeouts.connect;
        // The dialer ends by itself at the deadline and knows the phase; the waiter's own limit only backs it up.
        let dialing = self.dialer.dial(deadline);
        let dialed = match waiter.within(dialing, deadline + Duration::from_secs(1)).await {
            Ok(Ok(dialed)) => dialed,
            Ok(Err(error)) => return Err(dial_failure(&error)),
            Err(Interrupt::Deadline) => return Err((Outcome::TimeoutConnect, None)),
            Err(Interrupt::Canceled) => return Err((Outcome::Canceled, None)),
        };
        timeline.opened = Some(dialed.phases);
        Connection::over(dialed.stream).await.map_err(|error| (Outcome::Reset, Some(error.to_string())))
    }

    fn ended(&self, mut timeline: Timeline, outcome: Outcome, detail: Option<String>, at: Instant) -> Timeline {
        timeline.outcome = outcome;
        timeline.ended_at = at;
        // Servers echo the key that they refuse. First it is taken out, then the text is cut: a cut may go through a key.
        let detail = detail.filter(|_| outcome != Outcome::Ok).map(|detail| self.secrets.borrow().redact(&detail));
        timeline.detail = detail.and_then(|detail| readable(&detail, MAX_DETAIL));
        if let Some(reason) = &mut timeline.answer.finish_reason
            && !USUAL_ENDS.contains(&reason.as_str())
        {
            *reason = self.secrets.borrow().redact(reason);
        }
        timeline
    }

    /// After a 401: the file that the key came from may hold a new one by now.
    fn reread_key(&self) {
        let now = clock::now();
        if now.saturating_duration_since(self.key_read_at.get()) < KEY_REREAD_PAUSE {
            return;
        }
        self.key_read_at.set(now);
        if let Some(source @ SecretSource::File(_)) = &self.key_source
            && let Ok(key) = source.read(&Environment::default())
        {
            self.secrets.borrow_mut().key = Some(key);
        }
    }

    fn http_request(&self, request: &Prepared) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let mut http = Request::post(self.path.as_str()).body(Full::new(request.body.clone()))?;
        let headers = http.headers_mut();
        headers.clone_from(&self.headers);
        headers.insert("x-request-id", HeaderValue::from_str(&request.request_id)?);
        if let Some(key) = &self.secrets.borrow().key {
            let mut value = HeaderValue::from_str(&bearer(key))?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok(http)
    }
}

fn blank(arrival: Arrival, request: &Prepared) -> Timeline {
    Timeline {
        arrival,
        request_id: request.request_id.clone(),
        outcome: Outcome::Canceled,
        opened: None,
        setup: Duration::ZERO,
        sent_at: None,
        headers_at: None,
        status: None,
        answer: Answer::default(),
        ended_at: arrival.planned_at,
        resent: false,
        compressed: false,
        retry_after: None,
        detail: None,
    }
}

fn dial_failure(error: &DialError) -> (Outcome, Option<String>) {
    (error.outcome(), Some(error.to_string()))
}

fn header_value(name: &str, value: &str) -> Result<HeaderValue, ClientError> {
    HeaderValue::from_str(value).map_err(|_| ClientError::HeaderValue { name: name.to_owned() })
}

#[cfg(test)]
mod tests;
