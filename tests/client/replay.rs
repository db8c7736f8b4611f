//! The client against a server that plays the captures: over a pipe in simulated time, where every stamp must be the recorded
//! one, and over TCP in real time, where every stamp must lie just behind the server's own.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use steadyload::clock::{self, Instant};
use steadyload::config::sections::{Target, Timeouts};
use steadyload::domain::timeline::{ConnectPhases, Timeline};
use steadyload::load::client::dial::{Dial, Dialed, Dialing};
use steadyload::measure::sample::sample;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep_until};

use crate::capture::{self, Capture, Expected};
use crate::sending;

/// tokio's timers count milliseconds, so a recorded microsecond is played as one.
const SLOWER: u32 = 1000;

fn patient() -> Timeouts {
    let for_ever = Duration::from_secs(100 * 24 * 3600);
    Timeouts { connect: for_ever, first_token: for_ever, idle: for_ever, total: for_ever }
}

pub(crate) fn target(base_url: &str, expected: &Expected) -> Target {
    let mut target = sending::target(base_url, expected.api());
    target.timeouts = patient();
    target.send.ignore_eos = expected.flag("ignore_eos");
    target
}

pub(crate) fn asked(expected: &Expected) -> u32 {
    u32::try_from(expected.number("asked").unwrap_or(0)).unwrap()
}

/// What has to be the same however the bytes came.
fn check(name: &str, timeline: &Timeline, expected: &Expected) {
    assert_eq!(timeline.outcome.name(), expected.text("outcome"), "{name}: {timeline:?}");
    assert_eq!(timeline.status.map(u64::from), expected.number("status"), "{name}");
    if timeline.status == Some(200) {
        assert_eq!(timeline.answer.output_tokens().map(u64::from), expected.number("n"), "{name}");
        let events = timeline.answer.tokens.len() as u64;
        assert_eq!(Some(events), expected.number("token_events"), "{name}");
    }
}

// ---- simulated time ----

/// A pipe from which the recorded reads come at their times, counted from the moment the request was written.
struct Recorded {
    reads: VecDeque<(u64, Vec<u8>)>,
    written_at: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl AsyncRead for Recorded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(base) = self.written_at else { return Poll::Pending };
        let Some((after_ns, _)) = self.reads.front() else { return Poll::Ready(Ok(())) };
        let due = base + Duration::from_nanos(*after_ns) * SLOWER;
        if self.timer.deadline() != due {
            self.timer.as_mut().reset(due);
        }
        if self.timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if let Some((after_ns, mut bytes)) = self.reads.pop_front() {
            let rest = bytes.split_off(bytes.len().min(buf.remaining()));
            buf.put_slice(&bytes);
            if !rest.is_empty() {
                self.reads.push_front((after_ns, rest));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.written_at.get_or_insert_with(clock::now);
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

/// Dials to one capture, cut at least as finely as recorded.
pub(crate) struct Player {
    reads: Vec<(u64, Vec<u8>)>,
}

impl Player {
    pub(crate) fn new(capture: &Capture, finest: usize) -> Self {
        let after_sent = |at: u64| at - capture.sent_ns;
        let pieces = |(at, bytes): &(u64, Vec<u8>)| {
            bytes.chunks(finest).map(|piece| (after_sent(*at), piece.to_vec())).collect::<Vec<_>>()
        };
        Self { reads: capture.reads.iter().flat_map(pieces).collect() }
    }
}

impl Dial for Player {
    fn dial(&self, _: Instant) -> Dialing<'_> {
        let timer = Box::pin(sleep_until(clock::now()));
        let stream = Recorded { reads: self.reads.clone().into(), written_at: None, timer };
        Box::pin(async { Ok(Dialed { stream: Box::new(stream), phases: ConnectPhases::default() }) })
    }
}

#[tokio::test(start_paused = true)]
async fn every_stamp_is_the_recorded_one_in_simulated_time() {
    for finest in [usize::MAX, 11] {
        for (capture, expected) in capture::all() {
            let name = format!("{}, pieces of {finest}", capture.name);
            let target = target("http://replay", &expected);
            let client = sending::over(&target, Box::new(Player::new(&capture, finest)));
            let timeline = sending::send(&client, "replay", "{}", asked(&expected)).await;
            check(&name, &timeline, &expected);
            check_stamps(&name, &timeline, &expected);
            check_quantities(&name, &timeline, &expected);
        }
    }
}

/// The quantities that people will read, against those that `expected.py` worked out.
fn check_quantities(name: &str, timeline: &Timeline, expected: &Expected) {
    let sample = sample(timeline);
    let tpot = expected.float("tpot_ns").map(|ns| ns.round() as u64);
    for (quantity, found, wanted) in [
        ("TTFT", sample.ttft, expected.number("ttft_ns")),
        ("TPOT", sample.tpot, tpot),
        // A short answer has no E2EL.
        ("E2EL", sample.e2el, expected.number("e2el_ns").filter(|_| expected.text("outcome") == "ok")),
    ] {
        let wanted = wanted.filter(|_| timeline.outcome.is_answered());
        let found = found.map(|found| u64::try_from(found.as_nanos()).unwrap() / u64::from(SLOWER));
        let off = found.zip(wanted).map(|(found, wanted)| found.abs_diff(wanted));
        assert!(
            found.is_some() == wanted.is_some() && off.unwrap_or(0) <= 2002,
            "{name}: {quantity} is {found:?} ns, worked out {wanted:?}"
        );
    }
}

fn check_stamps(name: &str, timeline: &Timeline, expected: &Expected) {
    let sent_at = timeline.sent_at.unwrap();
    let sent_ns = expected.number("sent_ns").unwrap();
    let answer = &timeline.answer;
    let mut stamps = vec![("headers_ns", timeline.headers_at)];
    if timeline.status == Some(200) {
        stamps.extend([
            ("first_choices_ns", answer.first_choices_at),
            ("first_ns", answer.first_at()),
            ("first_answer_ns", answer.first_answer_at),
            ("last_ns", answer.last_at()),
        ]);
        if expected.flag("done") && expected.text("outcome") != "in_band_error" {
            stamps.push(("closed_ns", answer.closed_at));
        }
    }
    for (field, found) in stamps {
        let found = found.map(|at| u64::try_from((at - sent_at).as_nanos()).unwrap() / u64::from(SLOWER));
        let wanted = expected.number(field).map(|at| at - sent_ns);
        // The timer rounds up to its next millisecond, which is a recorded microsecond.
        let off = found.zip(wanted).map(|(found, wanted)| found.abs_diff(wanted));
        assert!(
            found.is_some() == wanted.is_some() && off.unwrap_or(0) <= 1001,
            "{name}: {field} is {found:?}, recorded {wanted:?}"
        );
    }
}

// ---- real time, over TCP ----

/// A pause that only makes the test long is cut to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// When each byte of the response was written, as the server saw it.
type Written = Arc<Mutex<Vec<(usize, Instant)>>>;

async fn serve(mut stream: TcpStream, capture: &Capture, written: &Written) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n{}") {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let mut due = clock::now();
    let (mut before, mut total) = (capture.sent_ns, 0);
    for (at, bytes) in &capture.reads {
        due += Duration::from_nanos(at - before).min(LONGEST_PAUSE);
        before = *at;
        sleep_until(due).await;
        total += bytes.len();
        written.lock().unwrap().push((total, clock::now()));
        stream.write_all(bytes).await?;
    }
    Ok(())
}

/// The server's stamps of the writes that completed the first and the last token-bearing event.
///
/// Found by the recorded time of the read that did, since every recorded read is played as one write.
fn truth(capture: &Capture, expected: &Expected, written: &[(usize, Instant)], field: &str) -> Option<Instant> {
    let at = expected.number(field)?;
    let position = capture.reads.iter().rposition(|(read_at, _)| *read_at == at)?;
    Some(written[position].1)
}

#[test]
fn every_stamp_lies_just_behind_the_servers_own_over_tcp() {
    let captures: Vec<_> = capture::all();
    let mut late = Vec::new();
    for batch in captures.chunks(16) {
        for (capture, expected, timeline, written) in play(batch) {
            check(&capture.name, &timeline, expected);
            for (field, found) in [("first_ns", timeline.answer.first_at()), ("last_ns", timeline.answer.last_at())] {
                let truth = truth(capture, expected, &written.lock().unwrap(), field);
                if let (200, Some(truth), Some(found)) = (timeline.status.unwrap_or(0), truth, found) {
                    assert!(found >= truth, "{}: {field} lies before the write", capture.name);
                    late.push(found - truth);
                }
            }
        }
    }
    late.sort_unstable();
    let quantile = |q: f64| late[((late.len() - 1) as f64 * q) as usize];
    println!("{} stamps behind the write by {:?} at P50, {:?} at P99", late.len(), quantile(0.5), quantile(0.99));
    assert!(late.len() > 200, "{} stamps", late.len());
    // Sixteen streams at once on a busy machine; what one stream alone does is measured against the simulated gateway.
    assert!(quantile(0.5) < Duration::from_millis(2), "{:?}", quantile(0.5));
}

type Played<'a> = (&'a Capture, &'a Expected, Timeline, Written);

/// Plays some captures at once: the server on one thread, the clients on another.
fn play(batch: &[(Capture, Expected)]) -> Vec<Played<'_>> {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (addresses, bound) = std::sync::mpsc::channel();
    let written: Vec<Written> = batch.iter().map(|_| Written::default()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            runtime().block_on(async {
                let plays = batch.iter().zip(&written).map(|((capture, _), written)| {
                    let addresses = addresses.clone();
                    async move {
                        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                        addresses.send((capture.name.clone(), listener.local_addr().unwrap())).unwrap();
                        let (stream, _) = listener.accept().await.unwrap();
                        // The client may hang up first, as the recording one did.
                        serve(stream, capture, written).await.ok()
                    }
                });
                all(plays).await
            })
        });
        let bound: std::collections::HashMap<_, _> = bound.iter().take(batch.len()).collect();
        let timelines = runtime().block_on(all(batch.iter().map(|(capture, expected)| {
            let target = target(&format!("http://{}", bound[&capture.name]), expected);
            async move { sending::send(&sending::connecting(&target), "replay", "{}", asked(expected)).await }
        })));
        let played = batch.iter().zip(timelines).zip(&written);
        played
            .map(|(((capture, expected), timeline), written)| (capture, expected, timeline, Arc::clone(written)))
            .collect()
    })
}

/// Waits for all futures, on this thread, in order of their creation.
async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(move |cx| {
        for (future, output) in &mut running {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(cx)
            {
                *output = Some(ready);
            }
        }
        if running.iter().any(|(_, output)| output.is_none()) {
            return Poll::Pending;
        }
        Poll::Ready(running.iter_mut().filter_map(|(_, output)| output.take()).collect())
    })
    .await
}
