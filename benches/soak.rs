//! Fifty requests a second for ten minutes against a gateway that has every fault there is, some of the time.
//!
//! Every second the law of conservation is asserted and the daemon's memory is noted. The memory of the last third may not
//! be above that of the second by more than a tenth: what fills up (pages of counts, 24 h of minutes) does so early or slowly.
//!
//!     cargo bench --bench soak [-- SECONDS]

#![expect(clippy::unwrap_used, clippy::panic, clippy::string_slice, reason = "a benchmark fails by panicking")]
#![expect(clippy::print_stdout, reason = "it prints what it finds")]

#[path = "../tests/support/daemon.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod support;

use std::fs;
use std::time::Duration;

use steadyload::clock;
use steadyload::sim::fault;
use steadyload::sim::fault::rule::FaultRule;
use steadyload::sim::settings::Settings;
use support::{Beside, Daemon, Folder, Samples};

/// Half of all requests meet no fault: there are some fifty, each with this share, and the first that applies wins.
const SHARE: f64 = 0.013;

fn main() {
    // `cargo test` runs benchmarks too, to see that they run.
    let full = std::env::args().any(|arg| arg == "--bench");
    let asked = std::env::args().skip(1).find_map(|arg| arg.parse().ok());
    let secs: u64 = asked.unwrap_or(if full { 600 } else { 5 });

    let mut settings = Settings { model: "m".to_owned(), truth_capacity: 1_000_000, ..Settings::default() };
    for (key, value) in [("ttft", "lognormal:100ms,0.4"), ("gap", "lognormal:10ms,0.3")] {
        settings.set(key, value).unwrap();
    }
    let names: Vec<String> = fault::describe()
        .lines()
        .filter(|line| !line.starts_with(' ') && !line.is_empty())
        .map(|line| line.split(':').next().unwrap().trim().to_owned())
        .collect();
    settings.faults = names.iter().map(|name| FaultRule::parse(&format!("{name}:share={SHARE}")).unwrap()).collect();
    let gateway = Beside::with(([127, 0, 0, 1], 0).into(), settings);
    let folder = Folder::new();
    let config = folder.write("soak.toml", &config(&gateway, &folder));
    let daemon = Daemon::start(&config, &[]);
    println!("{} faults, {SHARE} each; {secs} s", names.len());

    let mut memory = Vec::new();
    let begun = clock::now();
    let mut shown = 0;
    while clock::now() - begun < Duration::from_secs(secs) {
        pause(Duration::from_secs(1));
        let samples = daemon.scrape();
        memory.push(resident(daemon.child.id()));
        let elapsed = (clock::now() - begun).as_secs();
        if elapsed / 60 > shown {
            shown = elapsed / 60;
            say(elapsed, &samples, *memory.last().unwrap());
        }
    }
    finish(daemon, &memory, secs);
}

fn config(gateway: &Beside, folder: &Folder) -> String {
    let (address, state) = (gateway.address, folder.0.join("state"));
    format!(
        r#"
[state]
dir = "{}"
[targets.t]
base_url = "http://{address}"
model = "m"
timeouts = {{ connect = "1s", first_token = "2s", idle = "1s", total = "4s" }}
[workloads.w]
input_tokens = 64
output_tokens = 20
[loads.soak]
target = "t"
workload = "w"
rate = 50
max_in_flight = 200
grace = "6s"
"#,
        state.display()
    )
}

fn finish(daemon: Daemon, memory: &[u64], secs: u64) {
    let thirds = memory.len() / 3;
    let mean = |part: &[u64]| part.iter().sum::<u64>() / u64::try_from(part.len().max(1)).unwrap();
    let (second, last) = (mean(&memory[thirds..2 * thirds]), mean(&memory[2 * thirds..]));
    let (code, _, log) = daemon.stop();
    println!("resident, kB: {} after a second, {second} in the second third, {last} in the last", memory[0]);
    let sums = log.lines().rev().find(|line| line.contains("sums:")).unwrap();
    println!("{sums}");
    println!("{} lines of log", log.lines().count());
    assert_eq!(code, Some(0), "{log}");
    if secs >= 60 {
        assert!(last <= second + second / 10, "memory grows: {second} to {last} kB");
    }
}

fn say(elapsed: u64, samples: &Samples, resident: u64) {
    let load = [("load", "soak")];
    let [planned, shed, in_flight] =
        ["requests_planned_total", "requests_shed_total", "requests_in_flight"].map(|name| samples.sum(name, &load));
    let ok = samples.sum("requests_total", &[("outcome", "ok")]);
    let tainted = samples.sum("client_taint_seconds_total", &[]);
    println!(
        "{elapsed:>4} s: {planned} planned, {ok} ok, {shed} shed, {in_flight} in flight, {tainted} s tainted, {resident} kB"
    );
}

/// Resident memory in kB.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[expect(clippy::disallowed_methods, reason = "it waits for another process")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
