//! What the tests of a running daemon share: configurations, what it answers as JSON, and a scraper that never blinks.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use steadyload::sim::fault::rule::FaultRule;
use steadyload::sim::settings::Settings;

use crate::support::{Beside, Daemon, Samples, ask, until};

/// A target `t` on this gateway with further settings, and a workload `w`.
pub(crate) fn base(gateway: SocketAddr, target: &str) -> String {
    format!(
        "[targets.t]\nbase_url = \"http://{gateway}\"\nmodel = \"m\"\n{target}\n\
         [workloads.w]\ninput_tokens = 8\noutput_tokens = 10\n"
    )
}

/// A load of `w` on `t`.
pub(crate) fn load(name: &str, settings: &str) -> String {
    format!("[loads.{name}]\ntarget = \"t\"\nworkload = \"w\"\n{settings}\n")
}

/// A gateway with faults.
pub(crate) fn faulty(settings: &[(&str, &str)], faults: &[&str]) -> Beside {
    let mut with = Settings { model: "m".to_owned(), ..Settings::default() };
    settings.iter().for_each(|(key, value)| with.set(key, value).unwrap());
    with.faults = faults.iter().map(|fault| FaultRule::parse(fault).unwrap()).collect();
    Beside::with(([127, 0, 0, 1], 0).into(), with)
}

/// A gateway that answers at once.
pub(crate) fn quick() -> Beside {
    Beside::start(&[("ttft", "5ms"), ("gap", "1ms")])
}

/// An address on which nobody listens.
pub(crate) fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// `steadyload run` on a free port.
pub(crate) fn command(config: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadyload"));
    command.arg("run").arg("-c").arg(config).args(["--set", "server.listen=127.0.0.1:0"]).args(arguments);
    command
}

/// The same command behind a line of shell, such as one that sets a limit.
pub(crate) fn behind(line: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{line}; exec \"$0\" \"$@\"")]).arg(command.get_program()).args(command.get_args());
    shell
}

/// Runs one that is to refuse: its exit code and what it said.
pub(crate) fn refused(mut command: Command) -> (Option<i32>, String) {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut status = None;
    until("it refuses to start", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (status.unwrap().code(), said)
}

/// What it answers as JSON.
pub(crate) fn json(daemon: &Daemon, path: &str) -> Value {
    let (status, body) = daemon.get(path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// The kinds of the events of a load, or of those that belong to none.
pub(crate) fn kinds(daemon: &Daemon, load: Option<&str>) -> Vec<String> {
    let events = json(daemon, "/api/v1/events");
    let events = events["events"].as_array().unwrap().iter().filter(|event| event["load"].as_str() == load);
    events.map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

/// The header of a token.
pub(crate) fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

/// Answered requests of a load.
pub(crate) fn answered(samples: &Samples, load: &str) -> f64 {
    samples.sum("requests_total", &[("load", load), ("outcome", "ok")])
}

/// Waits until a load has had so many more answers than in `before`.
pub(crate) fn goes_on(daemon: &Daemon, load: &str, more: f64) -> Samples {
    let before = answered(&daemon.scrape(), load);
    daemon.scrape_until(&format!("{load} goes on"), |samples| answered(samples, load) >= before + more)
}

/// Lets real time pass, for what only happens in it.
#[expect(clippy::disallowed_methods, reason = "another process is meant to stand still for as long")]
pub(crate) fn let_pass(time: Duration) {
    thread::sleep(time);
}

/// Scrapes without a break: of the loads that it watches no series may vanish and no counter fall, and the law holds each time.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<u32>,
}

impl Watch {
    pub(crate) fn over(daemon: &Daemon, loads: &[&str]) -> Self {
        let (address, stop) = (daemon.address, Arc::new(AtomicBool::new(false)));
        let (loads, stopped): (Vec<_>, _) = (loads.iter().map(|load| (*load).to_owned()).collect(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let (mut scrapes, mut last) = (0, BTreeMap::new());
            while !stopped.load(Ordering::Relaxed) {
                let samples = Samples::parse(&ask(address, "GET", "/metrics", "").2);
                samples.assert_law();
                let now = counters(&samples, &loads);
                for (series, before) in &last {
                    let value = now.get(series).unwrap_or_else(|| panic!("{series} has vanished"));
                    assert!(value >= before, "{series} fell from {before} to {value}");
                }
                (scrapes, last) = (scrapes + 1, now);
                let_pass(Duration::from_millis(20));
            }
            scrapes
        });
        Self { stop, thread }
    }

    /// Ends it; fails when something was amiss.
    pub(crate) fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        let scrapes = self.thread.join().unwrap_or_else(|_| panic!("the scraper saw what is told above"));
        assert!(scrapes > 2);
    }
}

/// Every counter of these loads. A series that is there twice is refused, as Prometheus would.
fn counters(samples: &Samples, loads: &[String]) -> BTreeMap<String, f64> {
    let mut counters = BTreeMap::new();
    for sample in &samples.0 {
        let ends = ["_total", "_count", "_bucket", "_sum"];
        let is_theirs = sample.labels.get("load").is_some_and(|load| loads.contains(load));
        if is_theirs && ends.iter().any(|end| sample.name.ends_with(end)) {
            let series = format!("{} {:?}", sample.name, sample.labels);
            assert!(counters.insert(series.clone(), sample.value).is_none(), "{series} is there twice");
        }
    }
    counters
}
