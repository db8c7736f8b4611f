//! Whether the simulated gateway keeps up: 100 000 tokens a second in thousands of streams, on one core.
//!
//! The gateway has the first core, a client that counts bytes the second. The engine of the model makes a token for each stream
//! every 20 ms, one event a token. Shown: the tokens a second that were written while all streams ran, the part of its core that
//! the gateway's thread used, how late an event left after the engine had made its token (the gateway's own `sim:event_lag_seconds`,
//! as the bound of the bucket; all tokens of a step exist at the same instant, so the last of them waits for the writes of all
//! others), and how long after the gateway's stamp the client had the last bytes of a stream.
//!
//!     cargo bench --bench sim

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark fails by panicking and prints what it finds"
)]

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use steadyload::clock::{self, Instant};
use steadyload::sim::Gateway;
use steadyload::sim::settings::Settings;
use steadyload::sim::truth::Truth;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// A token of each stream in each.
const STEP: Duration = Duration::from_millis(20);

const TOKENS: usize = 400;

fn main() {
    println!(
        "{:>8} {:>12} {:>12} {:>8} {:>22} {:>22}",
        "streams", "wanted/s", "written/s", "core", "event lag ms P50 P99", "last byte ms P50 P99"
    );
    for streams in [500, 1000, 1500, 2000, 2500] {
        run(streams);
    }
}

fn run(streams: usize) {
    let (tell, told) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = thread::spawn(move || {
        pin(0);
        runtime().block_on(async {
            let gateway = Gateway::bind(settings(), ([127, 0, 0, 1], 0).into()).await.unwrap();
            tell.send((gateway.local_addr(), gateway.truth())).unwrap();
            gateway.run(stopped).await.unwrap();
        });
        let spent = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(spent.tv_sec.try_into().unwrap(), spent.tv_nsec.try_into().unwrap())
    });
    let (address, truth) = told.recv().unwrap();
    let ends = thread::spawn(move || {
        pin(1);
        runtime().block_on(async {
            let ends = client(address, streams).await;
            (ends, Lags::of(address).await)
        })
    });
    let (ends, lags) = ends.join().unwrap();
    drop(stop);
    let cpu = server.join().unwrap();
    let truths = truth.all();
    assert_eq!((truths.len(), ends.len()), (streams, streams));
    assert!(truths.iter().all(|truth| truth.n == TOKENS as u64), "tokens are missing");

    // While all streams run: the ramp and the end say nothing.
    let firsts = truths.iter().map(|truth| truth.token_instants().next().unwrap().0);
    let lasts = truths.iter().map(|truth| truth.token_instants().last().unwrap().0);
    let (from, to) = (firsts.max().unwrap(), lasts.clone().min().unwrap());
    let written = truths.iter().flat_map(Truth::token_instants).filter(|(at, _)| (from..to).contains(at)).count();
    let began = truths.iter().map(|truth| truth.received_at).min().unwrap();
    let ended = lasts.max().unwrap();
    let last_bytes = truths.iter().map(|truth| {
        let index: usize = truth.request_id.as_ref().unwrap().parse().unwrap();
        let last = truth.token_instants().last().unwrap().0;
        (ends[index] - last).as_secs_f64() * 1e3
    });
    let last_bytes = sorted(last_bytes.collect());
    println!(
        "{streams:>8} {:>12.0} {:>12.0} {:>7.0}% {:>14.2} {:>7.2} {:>14.2} {:>7.2}",
        streams as f64 / STEP.as_secs_f64(),
        written as f64 / (to - from).as_secs_f64(),
        100.0 * cpu.as_secs_f64() / (ended - began).as_secs_f64(),
        lags.at(50.0) * 1e3,
        lags.at(99.0) * 1e3,
        at(&last_bytes, 50),
        at(&last_bytes, 99),
    );
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.use_preset("7b-rtx4090").unwrap();
    let step = format!("{}ms", STEP.as_millis());
    for (key, value) in [
        ("max_running_requests", "10000"),
        ("max_prefill_tokens", "10000000"),
        ("prefill_rate", "1e12"),
        ("step", step.as_str()),
        ("step_per_request", "0"),
        ("step_per_kv_token", "0"),
        ("kv_tokens", "100000000"),
        ("jitter", "0"),
        ("text", "ascii"),
    ] {
        settings.set(key, value).unwrap();
    }
    settings.check().unwrap();
    settings
}

/// When each stream's last bytes had come.
async fn client(address: SocketAddr, streams: usize) -> Vec<Instant> {
    let mut tasks = JoinSet::new();
    for index in 0..streams {
        // All at once would be a flood of connections, which is not what is measured.
        if index % 50 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tasks.spawn(async move {
            let body = format!(
                r#"{{"model":"sim-7b","messages":[{{"role":"user","content":"count"}}],"stream":true,"max_tokens":{TOKENS},"ignore_eos":true}}"#
            );
            let request = format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: sim\r\nx-request-id: {index}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut buffer = vec![0; 16_384];
            let mut last = clock::now();
            while stream.read(&mut buffer).await.unwrap() > 0 {
                last = clock::now();
            }
            (index, last)
        });
    }
    let mut ends = tasks.join_all().await;
    ends.sort_unstable();
    ends.into_iter().map(|(_, end)| end).collect()
}

/// The gateway's own account of how late its events left: counts up to each bound, in seconds.
struct Lags(Vec<(f64, f64)>);

impl Lags {
    async fn of(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        let buckets = page.lines().filter(|line| line.starts_with("sim:event_lag_seconds_bucket"));
        let buckets = buckets.map(|line| {
            let (labels, count) = line.rsplit_once(' ').unwrap();
            let bound = labels.split("le=\"").nth(1).unwrap().split('"').next().unwrap();
            (bound.parse().unwrap(), count.parse().unwrap())
        });
        Self(buckets.collect())
    }

    /// The bound of the bucket that holds this percentile.
    fn at(&self, percent: f64) -> f64 {
        let all = self.0.last().unwrap().1;
        self.0.iter().find(|(_, count)| count * 100.0 >= all * percent).unwrap().0
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).unwrap();
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn at(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() - 1) * percent / 100]
}
