//! How late a send leaves: tokio's `sleep_until` beside the pacer, wait by wait in turn, on one current-thread runtime.
//!
//! At 20 and 1000 waits a second, the thread idle or with 64 streams of 100 events a second to read, as a load worker has.
//! The planned instants lie anywhere within a millisecond, or tokio's rounding would be the same for all of them. Read the
//! ratios within a run, not the times.
//!
//!     cargo bench --bench pacer

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark fails by panicking and prints what it finds"
)]
#![expect(clippy::disallowed_methods, reason = "no task here has a name, and the server is a thread that may sleep")]

use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use steadyload::clock::{self, Instant, pacer::Pacer};
use tokio::io::AsyncReadExt;
use tokio::time;

const STREAMS: usize = 64;
/// An event as vLLM streams it has about 250 bytes.
const EVENT: [u8; 250] = [b'x'; 250];
const BETWEEN_EVENTS: Duration = Duration::from_millis(10);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // `cargo test` runs benchmarks too, to see that they run.
    let seconds = |secs| if std::env::args().any(|arg| arg == "--bench") { secs } else { 0.05 };
    println!("send lag, us          n   tokio P50     P99   pacer P50     P99   ratio P50     P99");
    for streams in [0, STREAMS] {
        if streams > 0 {
            open(streams).await;
        }
        for (rate, secs) in [(20.0, seconds(40.0)), (1000.0, seconds(8.0))] {
            measure(rate, secs, streams).await;
        }
    }
}

async fn measure(rate: f64, secs: f64, streams: usize) {
    let (mut tokio_lag, mut pacer_lag) = (Vec::new(), Vec::new());
    let mut pacer = Pacer::precise();
    let start = clock::now() + Duration::from_millis(5);
    let waits = (rate * secs).max(10.0);
    let mut wait = 0.0;
    while wait < waits {
        let at = |wait: f64| start + Duration::from_secs_f64(wait / rate + (wait * 0.618_034).fract() / 1000.0);
        let planned_at = at(wait);
        time::sleep_until(planned_at).await;
        tokio_lag.push(micros_since(planned_at));
        // tokio's wait may have ended after the pacer's is due: late by no fault of the pacer.
        let planned_at = at(wait + 1.0).max(clock::now() + Duration::from_micros(200));
        pacer.until(planned_at).await;
        pacer_lag.push(micros_since(planned_at));
        wait += 2.0;
    }
    let n = tokio_lag.len();
    let [tokio_50, tokio_99] = quantiles(tokio_lag);
    let [pacer_50, pacer_99] = quantiles(pacer_lag);
    println!(
        "{rate:>5}/s {streams:>2} streams {n:>5} {tokio_50:>11.1} {tokio_99:>7.1} {pacer_50:>11.1} {pacer_99:>7.1} {:>11.4} {:>7.4}",
        pacer_50 / tokio_50,
        pacer_99 / tokio_99
    );
}

fn micros_since(planned_at: Instant) -> f64 {
    (clock::now() - planned_at).as_secs_f64() * 1e6
}

fn quantiles(mut lags: Vec<f64>) -> [f64; 2] {
    lags.sort_by(f64::total_cmp);
    [50, 99].map(|percent| lags[(lags.len() * percent / 100).min(lags.len() - 1)])
}

/// Streams from a server thread, each read by a task of this runtime until the program ends.
async fn open(streams: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || serve(&listener, streams));
    for _ in 0..streams {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while stream.read(&mut buffer).await.unwrap() > 0 {}
        });
    }
}

fn serve(listener: &TcpListener, streams: usize) {
    let mut accepted: Vec<TcpStream> = (0..streams).map(|_| listener.accept().unwrap().0).collect();
    accepted.iter().for_each(|stream| stream.set_nodelay(true).unwrap());
    // Each stream has its own place within the ten milliseconds, as independent answers have.
    let step = BETWEEN_EVENTS / u32::try_from(streams).unwrap();
    let mut next = clock::now();
    loop {
        for stream in &mut accepted {
            next += step;
            thread::sleep(next.saturating_duration_since(clock::now()));
            match stream.write_all(&EVENT) {
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => return,
                written => written.unwrap(),
            }
        }
    }
}
