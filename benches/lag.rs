//! How late requests leave: `steadyload`'s load thread beside the plainest client there is, in turn, against one gateway.
//!
//! At 20/s and at 1000/s, each alone and with 64 streams running on the same thread. The plain client knows the same
//! instants, waits with tokio's timer and writes a ready-made request on an idle connection. The lag of both is the instant
//! before the first byte is written less the instant of the plan. Where there are two cores, the gateway has one of them.
//! Read the ratios within a run, not the times; a machine on which another program runs tells about that program.
//!
//!     cargo bench --bench lag

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark fails by panicking and prints what it finds"
)]

use std::cell::RefCell;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use steadyload::clock::{self, Instant};
use steadyload::config::secrets::Secrets;
use steadyload::config::sections::{Rate, Target, Workload};
use steadyload::config::{self, Environment, LoadRequest};
use steadyload::domain::api::Api;
use steadyload::domain::shed::ShedReason;
use steadyload::domain::slo::Slo;
use steadyload::domain::timeline::{ConnectPhases, Timeline};
use steadyload::load::client::tls;
use steadyload::load::prompt::{self, Words};
use steadyload::load::schedule::Schedule;
use steadyload::load::schedule::closed::{ClosedLoop, Settings as Closed};
use steadyload::load::schedule::dispatch::Dispatch;
use steadyload::load::schedule::open::OpenLoop;
use steadyload::load::schedule::plan::{Plan, Shard, Spacing};
use steadyload::load::worker::prepare::{Preparer, Source};
use steadyload::load::worker::{DriverId, Job, Link, Record, Worker};
use steadyload::sim::Gateway;
use steadyload::sim::settings::Settings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time;

const STREAMS: u32 = 64;
const ROUNDS: usize = 3;

/// The lag of each request of the first account, in microseconds.
#[derive(Default, Clone)]
struct Lags(Arc<Mutex<Vec<f64>>>);

struct Noting {
    lags: Lags,
    here: RefCell<Vec<f64>>,
}

impl Record for Noting {
    type Delta = ();

    fn planned(&mut self, _: usize, _: u64) {}
    /// What could not leave in time counts as late as it may be: left out, the worst would not be seen.
    fn shed(&mut self, account: usize, reason: ShedReason, count: u64) {
        if account == 0 {
            assert_eq!(reason, ShedReason::Late);
            (0..count).for_each(|_| self.here.borrow_mut().push(Rate::LATE_CAP.as_secs_f64() * 1e6));
        }
    }
    fn connected(&mut self, _: usize, _: &ConnectPhases) {}
    fn ended(&mut self, account: usize, timeline: &Timeline, _: bool, _: &Slo) {
        if account == 0 {
            assert!(timeline.outcome.is_answered(), "{timeline:?}");
            let lag = timeline.sent_at.unwrap() - timeline.arrival.planned_at - timeline.setup;
            self.here.borrow_mut().push(lag.as_secs_f64() * 1e6);
        }
    }
    fn take(&mut self) {
        self.lags.0.lock().unwrap().append(&mut self.here.borrow_mut());
    }
}

fn main() {
    // `cargo test` runs benchmarks too, to see that they run.
    let full = std::env::args().any(|arg| arg == "--bench");
    let (rounds, part) = if full { (ROUNDS, 1.0) } else { (1, 0.05) };
    println!("send lag, us             n   plain P50     P99   steadyload P50     P99   ratio P50     P99");
    for streams in [0, STREAMS] {
        for (rate, secs) in [(20.0, 20.0 * part), (1000.0, 5.0 * part)] {
            let mut ratios = Vec::new();
            for _ in 0..rounds {
                ratios.push(measure(rate, secs, streams));
            }
            ratios.sort_by(|a, b| a.1.total_cmp(&b.1));
            let (line, _) = &ratios[ratios.len() / 2];
            println!("{line}");
        }
    }
}

/// A line, and the ratio of the P99 by which the median of the rounds is chosen.
fn measure(rate: f64, secs: f64, streams: u32) -> (String, f64) {
    let address = gateway();
    let plain = quantiles(&plain(address, rate, secs, streams));
    let ours = ours(address, rate, secs, streams);
    let n = ours.len();
    let ours = quantiles(&ours);
    let ratio = [0, 1].map(|at| ours[at] / plain[at]);
    let line = format!(
        "{rate:>5}/s {streams:>2} streams {n:>6} {:>11.1} {:>7.1} {:>16.1} {:>7.1} {:>11.3} {:>7.3}",
        plain[0], plain[1], ours[0], ours[1], ratio[0], ratio[1]
    );
    (line, ratio[1])
}

/// A gateway on a thread of its own, on the last core, until the program ends.
fn gateway() -> SocketAddr {
    let (started, address) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let mut settings = Settings::default();
            for (key, value) in [("model", "m"), ("ttft", "20ms"), ("gap", "10ms")] {
                settings.set(key, value).unwrap();
            }
            let gateway = Gateway::bind(settings, ([127, 0, 0, 1], 0).into()).await.unwrap();
            started.send(gateway.local_addr()).unwrap();
            gateway.run(std::future::pending::<()>()).await.unwrap();
        });
    });
    address.recv().unwrap()
}

fn target(address: SocketAddr) -> Target {
    let set = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let overrides = vec![set("targets.t.base_url", &format!("http://{address}")), set("targets.t.model", "m")];
    let loaded = config::load(&LoadRequest { files: Vec::new(), overrides }, &Environment::default()).unwrap();
    loaded.config.targets.into_values().next().unwrap()
}

/// Our own: one load thread with the load, and with the streams as a second load.
fn ours(address: SocketAddr, rate: f64, secs: f64, streams: u32) -> Vec<f64> {
    let lags = Lags::default();
    let noted = lags.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let worker = Worker::start("load", move || Noting { lags: noted, here: RefCell::default() }).unwrap();
        let preparer = Preparer::start().unwrap();
        if streams > 0 {
            let closed = Closed { concurrency: streams, shard: Shard::WHOLE, seed: 1, first_index: 0, warmup: 0 };
            let schedule = Schedule::Closed(Box::new(ClosedLoop::new(closed)));
            worker.run(job(1, schedule, &preparer, address, 1000).await).await.unwrap().unwrap();
            time::sleep(Duration::from_secs(1)).await;
        }
        let plan = Plan::new(1, rate, Spacing::Poisson, Shard::WHOLE).unwrap();
        let open = OpenLoop::new(&plan, clock::now(), 0);
        let cap = NonZeroU32::new(10_000).unwrap();
        let schedule = Schedule::Open(Box::new(Dispatch::new(open, cap, Rate::LATE_CAP)));
        worker.run(job(0, schedule, &preparer, address, 1).await).await.unwrap().unwrap();
        time::sleep(Duration::from_secs_f64(secs)).await;
        worker.collect().await.unwrap().await.unwrap();
        worker.join().unwrap();
    });
    let lags = lags.0.lock().unwrap();
    lags.clone()
}

async fn job(account: usize, schedule: Schedule, preparer: &Preparer, address: SocketAddr, output: u32) -> Job {
    let tokens = |n| NonZeroU32::new(n).unwrap();
    let workload = Workload::random(tokens(16), tokens(output), 1);
    let prompts = prompt::Source::open("w", &workload, Api::OpenAiChat, Arc::new(Words::default())).unwrap();
    let target = Arc::new(target(address));
    let source = Source {
        load: "l".to_owned(),
        target: Arc::clone(&target),
        prompts: Arc::new(prompts),
        first_index: 0,
        from: 0,
        shard: Shard::WHOLE,
        per_second: 1000.0,
    };
    let connections = if matches!(schedule, Schedule::Closed(_)) { STREAMS } else { 0 };
    Job {
        id: DriverId(account as u64),
        account,
        schedule,
        link: Link { target, secrets: Secrets::default(), tls: tls::client_config(None).unwrap() },
        prompts: preparer.prepare(source).await,
        slo: Slo::default(),
        grace: Duration::ZERO,
        connections,
    }
}

/// The plain client: a task a request, on a connection that is there already.
fn plain(address: SocketAddr, rate: f64, secs: f64, streams: u32) -> Vec<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..streams {
            tasks.spawn(async move {
                let mut stream = connect(address).await;
                while exchange(&mut stream, 1000).await.is_some() {}
                0.0
            });
        }
        if streams > 0 {
            time::sleep(Duration::from_secs(1)).await;
        }
        let idle = Arc::new(Mutex::new(Vec::new()));
        let start = clock::now();
        let plan = Plan::new(1, rate, Spacing::Poisson, Shard::WHOLE).unwrap();
        let mut requests = tokio::task::JoinSet::new();
        for planned in plan.arrivals().take_while(|planned| planned.offset.as_secs_f64() < secs) {
            let planned_at = start + planned.offset;
            time::sleep_until(planned_at).await;
            let idle = Arc::clone(&idle);
            requests.spawn(async move {
                let pooled = idle.lock().unwrap().pop();
                let setup = clock::now();
                let mut stream = match pooled {
                    Some(stream) => stream,
                    None => connect(address).await,
                };
                let setup = clock::now() - setup;
                let sent_at = exchange(&mut stream, 1).await.unwrap();
                idle.lock().unwrap().push(stream);
                (sent_at - planned_at - setup).as_secs_f64() * 1e6
            });
        }
        requests.join_all().await
    })
}

async fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends one request and reads its answer up to its last chunk; `None` when the gateway is gone.
async fn exchange(stream: &mut TcpStream, output: u32) -> Option<Instant> {
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"hello"}}],"stream":true,"max_tokens":{output},"ignore_eos":true}}"#
    );
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let sent_at = clock::now();
    stream.write_all(head.as_bytes()).await.ok()?;
    let (mut buffer, mut tail) = (vec![0; 16_384], Vec::new());
    while !tail.ends_with(b"0\r\n\r\n") {
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        tail.extend_from_slice(&buffer[..read]);
        tail.drain(..tail.len().saturating_sub(16));
    }
    Some(sent_at)
}

fn quantiles(lags: &[f64]) -> [f64; 2] {
    let mut lags = lags.to_vec();
    lags.sort_by(f64::total_cmp);
    [50, 99].map(|percent| lags[(lags.len() * percent / 100).min(lags.len() - 1)])
}
