//! What really happened, as the gateway saw it: the log that a client's numbers are checked against.
//!
//! A stamp is taken immediately before the write that completes an event and is in the log before the write begins, so
//! whoever has read the bytes finds the stamp. The log is bounded twice, in requests and in stamps, and counts what it
//! dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::domain::hex::hex;
use crate::sim::model::Spent;
use crate::sim::stats::Meter;
use crate::sim::value::words;

/// Everything the gateway knows about one request.
#[derive(Debug, Clone)]
pub struct Truth {
    /// Its place among the requests for an answer, from 0.
    pub seq: u64,
    /// The `x-request-id` that it carried.
    pub request_id: Option<String>,
    /// The path that was asked.
    pub path: String,
    /// The status that it was, or would have been, answered with; 0 when that was not yet decided.
    pub status: u16,
    /// What went wrong with it.
    pub fault: Option<String>,
    /// The socket read that brought its last byte. The TTFT counts from here.
    pub received_at: Instant,
    /// The write that completed the head.
    pub head_written_at: Option<Instant>,
    /// The writes that completed events with tokens, as times after `received_at`; at most [`MOST_WRITES`].
    pub writes: Vec<TokenWrite>,
    /// The answer was over, for whatever reason.
    pub finished_at: Option<Instant>,
    /// How it ended.
    pub end: End,
    /// Tokens in all writes. Reasoning that no event shows is not among them.
    pub n: u64,
    /// Prompt tokens as the usage says; 0 when the request was refused.
    pub prompt_tokens: u32,
    /// SHA-256 of its body: whether two runs were sent the same.
    pub body_sha256: [u8; 32],
}

/// One write that completed at least one event with tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenWrite {
    /// Time after the request was received.
    pub after: Duration,
    /// Tokens in these events.
    pub tokens: u32,
}

words! {
    /// How an answer ended.
    End {
        /// Not yet.
        Open = "open",
        /// All of it was written.
        Whole = "whole",
        /// A fault ended it.
        Cut = "cut",
        /// The client was gone, or the gateway stopped.
        Left = "left",
    }
}

/// Stamps kept of one request: an endless body would fill the memory otherwise.
pub const MOST_WRITES: usize = 65_536;

/// Stamps kept of all requests together: 64 MiB.
const MOST_WRITES_TOGETHER: usize = 4_000_000;

/// Lines that may wait for the disk.
const MOST_LINES: usize = 8192;

impl Truth {
    /// From the request's last byte to the first write with a token.
    #[must_use]
    pub fn ttft(&self) -> Option<Duration> {
        self.writes.first().map(|write| write.after)
    }

    /// The instants of the writes with tokens.
    pub fn token_instants(&self) -> impl Iterator<Item = (Instant, u32)> + '_ {
        self.writes.iter().map(|write| (self.received_at + write.after, write.tokens))
    }

    fn view(&self, start: Instant) -> TruthView<'_> {
        let nanos = |at: Instant| nanos(at.saturating_duration_since(start));
        TruthView {
            seq: self.seq,
            request_id: self.request_id.as_deref(),
            path: &self.path,
            status: self.status,
            fault: self.fault.as_deref(),
            received_ns: nanos(self.received_at),
            head_ns: self.head_written_at.map(nanos),
            writes: self.token_instants().map(|(at, tokens)| (nanos(at), tokens)).collect(),
            finished_ns: self.finished_at.map(nanos),
            end: crate::sim::value::Value::show(&self.end),
            n: self.n,
            prompt_tokens: self.prompt_tokens,
            body_sha256: hex(&self.body_sha256),
        }
    }
}

/// A truth as JSON: nanoseconds since the gateway's start.
#[derive(Debug, Serialize)]
pub(crate) struct TruthView<'a> {
    seq: u64,
    request_id: Option<&'a str>,
    path: &'a str,
    status: u16,
    fault: Option<&'a str>,
    received_ns: u64,
    head_ns: Option<u64>,
    writes: Vec<(u64, u32)>,
    finished_ns: Option<u64>,
    end: String,
    n: u64,
    prompt_tokens: u32,
    body_sha256: String,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The last requests, by number and by `x-request-id`. Clones share one log.
#[derive(Debug, Clone)]
pub struct TruthLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    start: Instant,
    capacity: usize,
    ring: Mutex<Ring>,
    lines: Mutex<Option<mpsc::Sender<String>>>,
}

/// A request in the log.
#[derive(Debug)]
struct Entry {
    truth: Mutex<Truth>,
    /// Its share of [`Ring::writes`]; changed under the ring's lock.
    counted: AtomicUsize,
    /// It is no longer in the log; changed under the ring's lock.
    is_forgotten: AtomicBool,
}

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<Arc<Entry>>,
    by_id: HashMap<String, Arc<Entry>>,
    /// Stamps of the finished requests.
    writes: usize,
    dropped_requests: u64,
    dropped_lines: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TruthLog {
    pub(crate) fn new(capacity: usize, start: Instant) -> Self {
        let ring = Mutex::new(Ring::default());
        Self { inner: Arc::new(Inner { start, capacity: capacity.max(1), ring, lines: Mutex::new(None) }) }
    }

    /// The latest request that carried this `x-request-id`.
    #[must_use]
    pub fn get(&self, request_id: &str) -> Option<Truth> {
        let entry = lock(&self.inner.ring).by_id.get(request_id).map(Arc::clone)?;
        let truth = lock(&entry.truth).clone();
        Some(truth)
    }

    /// The requests that are kept, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Truth> {
        let entries: Vec<_> = lock(&self.inner.ring).entries.iter().map(Arc::clone).collect();
        entries.iter().map(|entry| lock(&entry.truth).clone()).collect()
    }

    /// Requests that were forgotten because the log was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        lock(&self.inner.ring).dropped_requests
    }

    /// Lines that did not get into the truth file because the disk was too slow.
    #[must_use]
    pub fn dropped_lines(&self) -> u64 {
        lock(&self.inner.ring).dropped_lines
    }

    /// The instant that the nanoseconds of the JSON form count from.
    #[must_use]
    pub fn start(&self) -> Instant {
        self.inner.start
    }

    /// One request as a line of JSON.
    #[must_use]
    pub fn line(&self, truth: &Truth) -> String {
        serde_json::to_string(&truth.view(self.inner.start)).unwrap_or_default()
    }

    /// From now on, a line for each request that ends. The channel is bounded: what does not fit is counted.
    pub(crate) fn lines(&self) -> mpsc::Receiver<String> {
        let (sender, receiver) = mpsc::channel(MOST_LINES);
        *lock(&self.inner.lines) = Some(sender);
        receiver
    }

    pub(crate) fn end_lines(&self) {
        *lock(&self.inner.lines) = None;
    }

    pub(crate) fn open(&self, truth: Truth, meter: Meter) -> Recording {
        let id = truth.request_id.clone();
        let (counted, is_forgotten) = (AtomicUsize::new(0), AtomicBool::new(false));
        let entry = Arc::new(Entry { truth: Mutex::new(truth), counted, is_forgotten });
        let mut ring = lock(&self.inner.ring);
        if let Some(id) = id {
            ring.by_id.insert(id, Arc::clone(&entry));
        }
        ring.entries.push_back(Arc::clone(&entry));
        ring.shrink(self.inner.capacity);
        Recording { log: self.clone(), entry, meter: Some(meter) }
    }

    fn close(&self, entry: &Entry) {
        let sender = lock(&self.inner.lines).clone();
        let (line, writes) = {
            let truth = lock(&entry.truth);
            (sender.as_ref().map(|_| self.line(&truth)), truth.writes.len())
        };
        let mut ring = lock(&self.inner.ring);
        if !entry.is_forgotten.load(Ordering::Relaxed) {
            entry.counted.store(writes, Ordering::Relaxed);
            ring.writes += writes;
        }
        ring.shrink(self.inner.capacity);
        if let (Some(sender), Some(line)) = (sender, line) {
            ring.dropped_lines += u64::from(sender.try_send(line).is_err());
        }
    }
}

impl Ring {
    fn shrink(&mut self, capacity: usize) {
        while self.entries.len() > capacity || (self.writes > MOST_WRITES_TOGETHER && self.entries.len() > 1) {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.dropped_requests += 1;
            oldest.is_forgotten.store(true, Ordering::Relaxed);
            self.writes -= oldest.counted.load(Ordering::Relaxed);
            let id = lock(&oldest.truth).request_id.clone();
            if let Some(id) = id
                && self.by_id.get(&id).is_some_and(|latest| Arc::ptr_eq(latest, &oldest))
            {
                self.by_id.remove(&id);
            }
        }
    }
}

/// The open end of one request's truth. Dropped, it says that the client left.
#[derive(Debug)]
pub(crate) struct Recording {
    log: TruthLog,
    entry: Arc<Entry>,
    /// Counts the same request for `/metrics`; gone once it is over.
    meter: Option<Meter>,
}

/// A write that is about to begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writing {
    /// When it was to begin; `None` is as soon as possible.
    pub(crate) due: Option<Instant>,
    /// It completes the head.
    pub(crate) is_head: bool,
    /// It completes events with this many tokens.
    pub(crate) tokens: u32,
    /// It had begun before, and some of it is left.
    pub(crate) is_retry: bool,
}

impl Recording {
    /// What it will be answered with.
    pub(crate) fn answered(&self, status: u16) {
        lock(&self.entry.truth).status = status;
    }

    /// Where the engine says that its time went.
    pub(crate) fn spent(&mut self, spent: Spent) {
        if let Some(meter) = &mut self.meter {
            meter.spent(spent);
        }
    }

    /// What the prefix cache had of its prompt.
    pub(crate) fn cached(&mut self, tokens: u32) {
        if let Some(meter) = &mut self.meter {
            meter.cached(tokens);
        }
    }

    /// `write` begins.
    pub(crate) fn writing(&mut self, now: Instant, write: Writing) {
        let Writing { due, is_head, tokens, is_retry } = write;
        if let Some(meter) = self.meter.as_mut().filter(|_| !is_retry) {
            meter.write(now, due, tokens);
        }
        if !is_head && tokens == 0 {
            return;
        }
        let mut truth = lock(&self.entry.truth);
        if is_head {
            truth.head_written_at = Some(now);
        }
        if tokens == 0 {
            return;
        }
        let write = TokenWrite { after: now.saturating_duration_since(truth.received_at), tokens };
        if is_retry {
            if truth.writes.len() < MOST_WRITES
                && let Some(last) = truth.writes.last_mut()
            {
                *last = write;
            }
            return;
        }
        truth.n += u64::from(tokens);
        if truth.writes.len() < MOST_WRITES {
            truth.writes.push(write);
        }
    }

    pub(crate) fn close(mut self, now: Instant, end: End) {
        self.finish(Some(now), end);
    }

    fn finish(&mut self, now: Option<Instant>, end: End) {
        let Some(meter) = self.meter.take() else { return };
        meter.close(now, end);
        {
            let mut truth = lock(&self.entry.truth);
            truth.finished_at = now;
            truth.end = end;
        }
        self.log.close(&self.entry);
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.finish(None, End::Left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::sim::settings::ServerKind;
    use crate::sim::stats::Stats;

    fn truth(seq: u64, id: &str) -> Truth {
        Truth {
            seq,
            request_id: Some(id.to_owned()),
            path: "/v1/completions".to_owned(),
            status: 200,
            fault: None,
            received_at: clock::now(),
            head_written_at: None,
            writes: Vec::new(),
            finished_at: None,
            end: End::Open,
            n: 0,
            prompt_tokens: 7,
            body_sha256: [0; 32],
        }
    }

    fn open(log: &TruthLog, truth: Truth) -> Recording {
        let stats = Arc::new(Stats::new(ServerKind::Vllm, 100, clock::now(), Duration::ZERO));
        let meter = stats.meter(None, truth.received_at);
        log.open(truth, meter)
    }

    fn token(tokens: u32) -> Writing {
        Writing { due: None, is_head: false, tokens, is_retry: false }
    }

    #[test]
    fn a_full_log_forgets_the_oldest_and_counts_it() {
        let log = TruthLog::new(2, clock::now());
        for (seq, id) in [(0, "a"), (1, "b"), (2, "c")] {
            open(&log, truth(seq, id)).close(clock::now(), End::Whole);
        }
        assert_eq!((log.dropped(), log.get("a").is_none(), log.get("c").map(|truth| truth.seq)), (1, true, Some(2)));
    }

    #[test]
    fn the_latest_request_with_an_id_is_found_even_when_an_older_one_is_forgotten() {
        let log = TruthLog::new(2, clock::now());
        for (seq, id) in [(0, "a"), (1, "a"), (2, "b")] {
            open(&log, truth(seq, id)).close(clock::now(), End::Whole);
        }
        assert_eq!(log.get("a").map(|truth| truth.seq), Some(1));
    }

    #[test]
    fn stamps_are_there_before_the_request_ends_and_a_dropped_recording_says_left() {
        let log = TruthLog::new(9, clock::now());
        let mut recording = open(&log, truth(0, "a"));
        let at = clock::now();
        recording.writing(at, Writing { is_head: true, ..token(0) });
        recording.writing(at, token(2));
        recording.writing(at + Duration::from_millis(1), Writing { is_retry: true, ..token(2) });
        let open = log.get("a").unwrap();
        assert_eq!((open.end, open.n, open.writes.len(), open.head_written_at), (End::Open, 2, 1, Some(at)));
        assert!(open.ttft().unwrap() >= Duration::from_millis(1));
        drop(recording);
        assert_eq!(log.get("a").unwrap().end, End::Left);
    }

    #[test]
    fn the_stamps_of_an_endless_answer_are_bounded() {
        let log = TruthLog::new(9, clock::now());
        let mut recording = open(&log, truth(0, "a"));
        for _ in 0..MOST_WRITES + 5 {
            recording.writing(clock::now(), token(1));
        }
        drop(recording);
        let truth = log.get("a").unwrap();
        assert_eq!((truth.writes.len(), truth.n), (MOST_WRITES, 65_541));
    }

    #[test]
    fn a_line_counts_from_the_start_of_the_gateway() {
        let start = clock::now();
        let log = TruthLog::new(9, start);
        let mut truth = truth(3, "x");
        truth.received_at = start + Duration::from_nanos(1500);
        truth.writes.push(TokenWrite { after: Duration::from_nanos(500), tokens: 2 });
        let line: serde_json::Value = serde_json::from_str(&log.line(&truth)).unwrap();
        assert_eq!((line["received_ns"].as_u64(), line["writes"].to_string().as_str()), (Some(1500), "[[2000,2]]"));
    }
}
