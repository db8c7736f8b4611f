//! The client against scripted connections under a paused clock: every stamp is exact, every way to end is reached.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::pending;
use std::io::{self, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep, sleep_until};

use super::*;
use crate::config::sections::tests::target;
use crate::domain::secret::Secret;
use crate::domain::timeline::ConnectPhases;
use crate::load::client::dial::{Dialed, Dialing};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const TOKEN: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
const FINISH: &str =
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}],\"usage\":{\"completion_tokens\":2}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// What a scripted connection does, each at its time after the request was written.
#[derive(Debug, Clone)]
enum Act {
    Send(Vec<u8>),
    Fin,
    Rst,
    Fail(i32),
    /// Waits for the next request; times count from there on.
    Await,
}

struct Scripted {
    acts: VecDeque<(Duration, Act)>,
    written_at: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    written: Rc<RefCell<Vec<u8>>>,
}

impl AsyncRead for Scripted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(base) = self.written_at else { return Poll::Pending };
        let Some((after, _)) = self.acts.front() else { return Poll::Pending };
        let due = base + *after;
        if self.timer.deadline() != due {
            self.timer.as_mut().reset(due);
        }
        if self.timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        match self.acts.pop_front().unwrap().1 {
            Act::Send(mut bytes) => {
                let rest = bytes.split_off(bytes.len().min(buf.remaining()));
                buf.put_slice(&bytes);
                if !rest.is_empty() {
                    self.acts.push_front((due - base, Act::Send(rest)));
                }
                Poll::Ready(Ok(()))
            }
            Act::Fin => Poll::Ready(Ok(())),
            Act::Rst => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Act::Fail(code) => Poll::Ready(Err(io::Error::from_raw_os_error(code))),
            Act::Await => {
                self.written_at = None;
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Scripted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.written_at = Some(clock::now());
        self.written.borrow_mut().extend_from_slice(buf);
        cx.waker().wake_by_ref();
        Poll::Ready(Ok(buf.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

type Script = Vec<(u64, Act)>;

/// Hands out one scripted connection per dial, after `takes`.
struct ScriptedDialer {
    scripts: RefCell<VecDeque<Script>>,
    takes: Duration,
    written: Rc<RefCell<Vec<u8>>>,
}

impl Dial for ScriptedDialer {
    fn dial(&self, deadline: Instant) -> Dialing<'_> {
        Box::pin(async move {
            let began = clock::now();
            if began + self.takes > deadline {
                sleep_until(deadline).await;
                return Err(DialError::Timeout { phase: "tcp", after: deadline - began });
            }
            sleep(self.takes).await;
            let script = self.scripts.borrow_mut().pop_front().ok_or_else(|| DialError::Connect {
                address: ([127, 0, 0, 1], 1).into(),
                source: io::ErrorKind::ConnectionRefused.into(),
            })?;
            let acts = script.into_iter().map(|(ms, act)| (Duration::from_millis(ms), act)).collect();
            let timer = Box::pin(sleep_until(clock::now()));
            let stream = Scripted { acts, written_at: None, timer, written: Rc::clone(&self.written) };
            let phases = ConnectPhases { dns: None, tcp: Some(self.takes), tls: None };
            Ok(Dialed { stream: Box::new(stream), phases })
        })
    }
}

struct Bench {
    client: Client,
    written: Rc<RefCell<Vec<u8>>>,
}

fn bench_of(target: &Target, secrets: Secrets, takes: Duration, scripts: Vec<Script>) -> Bench {
    let written = Rc::default();
    let dialer = ScriptedDialer { scripts: RefCell::new(scripts.into()), takes, written: Rc::clone(&written) };
    Bench { client: Client::new(target, secrets, Box::new(dialer)).unwrap(), written }
}

fn bench(scripts: Vec<Script>) -> Bench {
    bench_of(&target("http://gateway:8000/api"), Secrets::default(), Duration::from_millis(3), scripts)
}

fn prepared(index: u64) -> Prepared {
    Prepared { body: Bytes::from_static(b"{}"), output_tokens: 2, request_id: format!("canary-{index}-00ff") }
}

impl Bench {
    async fn send(&self, index: u64) -> Timeline {
        let arrival = Arrival { index, planned_at: clock::now() };
        self.client.send(arrival, &prepared(index), pending()).await
    }

    fn requests(&self) -> usize {
        String::from_utf8_lossy(&self.written.borrow()).matches("POST ").count()
    }
}

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

fn send(ms: u64, text: impl Into<Vec<u8>>) -> (u64, Act) {
    (ms, Act::Send(text.into()))
}

/// A whole answer: head at 10 ms, tokens at 20 and 30, finish at 35, `[DONE]` at 40, last chunk at 41.
fn answer() -> Script {
    vec![
        send(10, HEAD),
        send(20, chunk(TOKEN)),
        send(30, chunk(TOKEN)),
        send(35, chunk(FINISH)),
        send(40, chunk(DONE)),
        send(41, "0\r\n\r\n"),
    ]
}

fn ms(from: Instant, to: Option<Instant>) -> Option<u128> {
    to.map(|to| (to - from).as_millis())
}

#[tokio::test(start_paused = true)]
async fn every_stamp_is_the_return_of_its_read() {
    let bench = bench(vec![answer()]);
    let timeline = bench.send(0).await;
    let sent_at = timeline.sent_at.unwrap();
    let answer = &timeline.answer;
    assert_eq!(timeline.outcome, Outcome::Ok, "{timeline:?}");
    assert_eq!(ms(timeline.arrival.planned_at, timeline.sent_at), Some(3), "the dial");
    assert_eq!(timeline.opened.unwrap().total(), Duration::from_millis(3));
    assert_eq!(timeline.setup, Duration::from_millis(3));
    assert_eq!(ms(sent_at, timeline.headers_at), Some(10));
    assert_eq!((ms(sent_at, answer.first_at()), ms(sent_at, answer.last_at())), (Some(20), Some(30)));
    assert_eq!((ms(sent_at, answer.closed_at), ms(sent_at, Some(timeline.ended_at))), (Some(40), Some(40)));
    assert_eq!(ms(sent_at, Some(clock::now())), Some(41), "it stayed for the last chunk");
    assert_eq!((answer.output_tokens(), timeline.status), (Some(2), Some(200)));
}

#[tokio::test(start_paused = true)]
async fn events_of_one_read_share_its_stamp_however_the_chunks_are_cut() {
    let body = [HEAD.to_owned(), chunk(TOKEN), chunk(TOKEN)].concat();
    let (first, second) = body.split_at(body.len() - 20);
    let script = vec![send(10, first), send(25, second), send(30, chunk(FINISH) + &chunk(DONE) + "0\r\n\r\n")];
    let timeline = bench(vec![script]).send(0).await;
    let sent_at = timeline.sent_at.unwrap();
    let stamps: Vec<_> = timeline.answer.tokens.iter().map(|event| (event.at - sent_at).as_millis()).collect();
    assert_eq!((stamps, timeline.outcome), (vec![10, 25], Outcome::Ok));
    assert_eq!(ms(sent_at, timeline.headers_at), Some(10));
    assert_eq!(ms(sent_at, timeline.answer.closed_at), Some(30));
}

#[tokio::test(start_paused = true)]
async fn the_request_carries_the_path_the_key_and_an_id_and_nothing_odd() {
    let mut target = target("https://gateway.example/api");
    target.headers.clear();
    let header = Header { name: "X-Tenant".into(), value: Secret::new("blue"), hidden: false };
    let secrets = Secrets { key: Some(Secret::new("sk-1")), headers: vec![header] };
    let bench = bench_of(&target, secrets, Duration::ZERO, vec![answer()]);
    bench.send(7).await;
    let sent = String::from_utf8(bench.written.borrow().clone()).unwrap();
    let mut lines: Vec<_> = sent.split("\r\n").collect();
    assert_eq!(lines.remove(0), "POST /api/v1/chat/completions HTTP/1.1");
    for expected in [
        "host: gateway.example",
        "authorization: Bearer sk-1",
        "x-tenant: blue",
        "x-request-id: canary-7-00ff",
        "accept-encoding: identity",
        "content-type: application/json",
        "content-length: 2",
    ] {
        assert!(lines.contains(&expected), "{expected} in {lines:?}");
    }
    assert!(!sent.to_lowercase().contains("transfer-encoding"));
}

#[tokio::test(start_paused = true)]
async fn each_time_limit_ends_the_request_at_its_instant() {
    let dead = vec![];
    let silent = vec![send(10, HEAD)];
    let role = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n";
    let only_role = vec![send(10, HEAD), send(20, chunk(role))];
    let stalled = vec![send(10, HEAD), send(1000, chunk(TOKEN))];
    let mut kept_alive = stalled.clone();
    kept_alive.extend((2..60).map(|s| send(s * 1000, chunk(": ping\n\n"))));
    let mut endless = vec![send(10, HEAD)];
    endless.extend((1..200).map(|s| send(s * 1000, chunk(TOKEN))));
    for (script, outcome, after) in [
        (dead, Outcome::TimeoutFirstToken, 60_000),
        (silent, Outcome::TimeoutFirstToken, 60_000),
        (only_role, Outcome::TimeoutFirstToken, 60_000),
        (stalled, Outcome::TimeoutIdle, 31_000),
        (kept_alive, Outcome::TimeoutIdle, 31_000),
        (endless, Outcome::TimeoutTotal, 120_000),
    ] {
        let timeline = bench(vec![script]).send(0).await;
        let ended = (timeline.ended_at - timeline.sent_at.unwrap()).as_millis();
        assert_eq!((timeline.outcome, ended), (outcome, after));
        assert!(timeline.answer.closed_at.is_none());
    }
    let slow = bench_of(&target("http://h"), Secrets::default(), Duration::from_secs(6), vec![answer()]);
    let timeline = slow.send(0).await;
    let waited = (timeline.ended_at - timeline.arrival.planned_at).as_millis();
    assert_eq!((timeline.outcome, waited, timeline.sent_at), (Outcome::TimeoutConnect, 5000, None));
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_bytes_cannot_outrun_the_total_limit() {
    // Every read returns at once, so no timer would ever be polled.
    let mut script = vec![send(10, HEAD)];
    script.extend((0..40).map(|_| send(10, chunk(TOKEN))));
    script.extend((0..500).map(|_| send(130_000, chunk(TOKEN))));
    let mut target = target("http://h");
    target.timeouts.idle = Duration::from_secs(600);
    target.timeouts.total = Duration::from_secs(120);
    let timeline = bench_of(&target, Secrets::default(), Duration::ZERO, vec![script]).send(0).await;
    assert_eq!(timeline.outcome, Outcome::TimeoutTotal);
}

#[tokio::test(start_paused = true)]
async fn each_way_a_connection_dies_has_its_outcome() {
    let with = |tail: Vec<(u64, Act)>| [vec![send(10, HEAD), send(20, chunk(TOKEN))], tail].concat();
    let length = "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n";
    let old = "HTTP/1.0 200 OK\r\n\r\n";
    let header = format!("HTTP/1.1 200 OK\r\nx-big: {}\r\n\r\n", "a".repeat(1 << 20));
    for (name, script, outcome, cut) in [
        ("RST mid-stream", with(vec![(30, Act::Rst)]), Outcome::Reset, false),
        ("RST before the head", vec![(5, Act::Rst)], Outcome::Reset, false),
        ("FIN before the head", vec![(5, Act::Fin)], Outcome::Truncated, true),
        ("FIN inside the head", vec![send(5, "HTTP/1.1 200 OK\r\nco"), (6, Act::Fin)], Outcome::Truncated, true),
        ("FIN inside a chunk", with(vec![send(30, "ff\r\ndata: {"), (31, Act::Fin)]), Outcome::Truncated, true),
        ("FIN between chunks", with(vec![(30, Act::Fin)]), Outcome::Truncated, true),
        ("last chunk early", with(vec![send(30, "0\r\n\r\n")]), Outcome::Truncated, false),
        ("short of its length", vec![send(9, length), send(10, TOKEN), (20, Act::Fin)], Outcome::Truncated, true),
        ("HTTP/1.0 closed early", vec![send(9, old), send(10, TOKEN), (20, Act::Fin)], Outcome::Truncated, false),
        ("HTTP/1.0 whole", vec![send(9, old), send(10, [TOKEN, FINISH].concat()), (20, Act::Fin)], Outcome::Ok, false),
        ("finished, then RST", with(vec![send(25, chunk(FINISH)), (30, Act::Rst)]), Outcome::Ok, false),
        ("bad chunk size", with(vec![send(30, "zz\r\nhello\r\n")]), Outcome::Parse, false),
        ("no HTTP at all", vec![send(5, "SSH-2.0-OpenSSH_9.2p1\r\n")], Outcome::Parse, false),
        ("bad status line", vec![send(5, "HTTP/1.1 two hundred\r\n\r\n")], Outcome::Parse, false),
        ("giant head", vec![send(5, header)], Outcome::Parse, false),
        ("no memory here", with(vec![(30, Act::Fail(12))]), Outcome::Local, false),
        ("no buffers here", vec![(5, Act::Fail(105))], Outcome::Local, false),
        ("empty 200", vec![send(5, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")], Outcome::Empty, false),
        ("204", vec![send(5, "HTTP/1.1 204 No Content\r\n\r\n")], Outcome::Empty, false),
        ("brotli", vec![send(5, "HTTP/1.1 200 OK\r\ncontent-encoding: br\r\n\r\n")], Outcome::BadResponse, false),
    ] {
        let timeline = bench(vec![script]).send(0).await;
        assert_eq!((timeline.outcome, timeline.answer.cut), (outcome, cut), "{name}: {timeline:?}");
        assert_eq!(timeline.detail.is_some(), outcome != Outcome::Ok, "{name}: {timeline:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_status_has_its_outcome_and_its_words() {
    for (status, extra, outcome, expected) in [
        (301, "location: https://elsewhere/\r\n", Outcome::Http3xx, "location: https://elsewhere/; why"),
        (400, "", Outcome::Http4xx, "why"),
        (401, "", Outcome::Http401, "why"),
        (403, "", Outcome::Http403, "why"),
        (404, "", Outcome::Http404, "why"),
        (422, "", Outcome::Http4xx, "why"),
        (429, "retry-after: 7\r\n", Outcome::Http429, "retry-after: 7; why"),
        (500, "", Outcome::Http5xx, "why"),
        (503, "", Outcome::Http5xx, "why"),
        (600, "", Outcome::BadResponse, "why"),
    ] {
        let response = format!("HTTP/1.1 {status} X\r\n{extra}content-length: 3\r\n\r\nwhy");
        let bench = bench(vec![vec![
            send(5, response),
            (5, Act::Await),
            send(5, "HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n"),
        ]]);
        let timeline = bench.send(0).await;
        assert_eq!((timeline.outcome, timeline.detail.as_deref()), (outcome, Some(expected)));
        assert_eq!(timeline.status, Some(status));
        let second = bench.send(1).await;
        assert!(second.opened.is_none() && second.outcome == Outcome::Http5xx, "the connection was reused: {second:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_giant_error_body_is_read_only_as_far_as_it_is_shown() {
    let head = "HTTP/1.1 500 X\r\ncontent-length: 1000000000\r\n\r\n";
    let timeline = bench(vec![vec![send(5, head), send(6, vec![b'e'; 1 << 20])]]).send(0).await;
    assert_eq!((timeline.outcome, timeline.detail.map(|d| d.len())), (Outcome::Http5xx, Some(MAX_DETAIL)));
}

#[tokio::test(start_paused = true)]
async fn nothing_comes_up_and_the_dialer_says_why() {
    let timeline = bench(vec![]).send(0).await;
    assert_eq!((timeline.outcome, timeline.sent_at, timeline.opened), (Outcome::Connect, None, None));
    assert!(timeline.detail.unwrap().contains("127.0.0.1:1"));
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_used_again_until_it_has_idled_three_seconds() {
    let mut script = answer();
    script.push((41, Act::Await));
    let three = [script.clone(), script.clone(), script].concat();
    let bench = bench(vec![three, answer()]);
    assert!(bench.send(0).await.opened.is_some());
    let second = bench.send(1).await;
    assert!(second.opened.is_none() && second.setup.is_zero());
    sleep(Duration::from_millis(2900)).await;
    assert!(bench.send(2).await.opened.is_none());
    sleep(Duration::from_millis(3100)).await;
    assert!(bench.send(3).await.opened.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_stale_connection_costs_one_resend_and_is_no_failure() {
    for stale in [Act::Fin, Act::Rst] {
        let mut script = answer();
        script.push((41, Act::Await));
        script.push((5, stale));
        let bench = bench(vec![script, answer()]);
        bench.send(0).await;
        let timeline = bench.send(1).await;
        assert_eq!((timeline.outcome, timeline.resent, bench.requests()), (Outcome::Ok, true, 3));
        let sent_at = timeline.sent_at.unwrap();
        assert_eq!(ms(timeline.arrival.planned_at, Some(sent_at)), Some(8), "5 ms lost, 3 ms for the dial");
        assert_eq!(timeline.setup, Duration::from_millis(8));
        assert_eq!(ms(sent_at, timeline.answer.first_at()), Some(20), "sent_at was taken anew");
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_reused_connection_without_a_byte_of_response_is_stale() {
    // A fresh connection that dies is the gateway's doing.
    let bench_fresh = bench(vec![vec![(5, Act::Rst)], answer()]);
    let timeline = bench_fresh.send(0).await;
    assert_eq!((timeline.outcome, timeline.resent, bench_fresh.requests()), (Outcome::Reset, false, 1));
    // So is a reused one that has begun to answer.
    let mut script = answer();
    script.extend([(41, Act::Await), send(5, "HTTP/1.1 2"), (6, Act::Rst)]);
    let bench_begun = bench(vec![script, answer()]);
    bench_begun.send(0).await;
    let timeline = bench_begun.send(1).await;
    assert_eq!((timeline.outcome, timeline.resent, bench_begun.requests()), (Outcome::Reset, false, 2));
    // And a second try is not tried a third time.
    let mut script = answer();
    script.extend([(41, Act::Await), (5, Act::Fin)]);
    let bench_twice = bench(vec![script, vec![(5, Act::Fin)], answer()]);
    bench_twice.send(0).await;
    let timeline = bench_twice.send(1).await;
    assert_eq!((timeline.outcome, timeline.resent, bench_twice.requests()), (Outcome::Truncated, true, 3));
}

#[tokio::test(start_paused = true)]
async fn a_connection_closed_while_idle_is_not_even_tried() {
    let mut script = answer();
    script.push((500, Act::Fin));
    let bench = bench(vec![script, answer()]);
    bench.send(0).await;
    sleep(Duration::from_secs(1)).await;
    let timeline = bench.send(1).await;
    assert_eq!((timeline.outcome, timeline.resent, timeline.opened.is_some()), (Outcome::Ok, false, true));
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_a_request_wherever_it_is() {
    for (after, sent) in [(1, false), (4, true), (15, true), (25, true)] {
        let bench = bench(vec![answer()]);
        let arrival = Arrival { index: 0, planned_at: clock::now() };
        let cancel = sleep(Duration::from_millis(after));
        let timeline = bench.client.send(arrival, &prepared(0), cancel).await;
        assert_eq!((timeline.outcome, timeline.sent_at.is_some()), (Outcome::Canceled, sent), "after {after} ms");
        assert_eq!(ms(arrival.planned_at, Some(timeline.ended_at)), Some(u128::from(after)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_compressed_answer_is_decoded_and_flagged() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all([TOKEN, TOKEN, FINISH, DONE].concat().as_bytes()).unwrap();
    let body = gzip.finish().unwrap();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len());
    let timeline = bench(vec![vec![send(10, head), send(20, body)]]).send(0).await;
    assert_eq!((timeline.outcome, timeline.compressed, timeline.answer.tokens.len()), (Outcome::Ok, true, 2));
}

#[tokio::test(start_paused = true)]
async fn a_key_file_is_read_again_after_a_401_and_the_key_is_never_shown() {
    let dir = std::env::temp_dir().join(format!("steadyload-key-{}", std::process::id()));
    std::fs::write(&dir, "sk-old-key\n").unwrap();
    let mut target = target("http://h");
    target.api_key = Some(SecretSource::File(dir.clone()));
    let refusal = |key: &str| format!("HTTP/1.1 401 X\r\ncontent-length: {}\r\n\r\nbad {key}", 4 + key.len());
    let script = vec![send(5, refusal("sk-old-key")), (5, Act::Await), send(5, refusal("sk-new-key"))];
    let secrets = Secrets { key: Some(Secret::new("sk-old-key")), headers: vec![] };
    let bench = bench_of(&target, secrets, Duration::ZERO, vec![script]);
    sleep(Duration::from_secs(2)).await;
    std::fs::write(&dir, "sk-new-key\n").unwrap();
    let first = bench.send(0).await;
    let second = bench.send(1).await;
    std::fs::remove_file(&dir).unwrap();
    assert_eq!(first.detail.as_deref(), Some("bad [redacted]"));
    assert_eq!(second.detail.as_deref(), Some("bad [redacted]"));
    let sent = String::from_utf8(bench.written.borrow().clone()).unwrap();
    assert!(sent.contains("Bearer sk-old-key") && sent.contains("Bearer sk-new-key"));
}
