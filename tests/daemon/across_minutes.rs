//! What only shows when minutes end: what survives a SIGKILL, a full disk, and the end of a failure. One test, so that one wait
//! serves them all; its name makes it the first to begin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::rig::{base, bearer, command, faulty, goes_on, json, kinds, load, quick};
use crate::support::{Daemon, Folder, Samples, until_within};

/// Until a minute has ended, however lately it began.
const A_MINUTE: Duration = Duration::from_secs(75);

fn in_the_hour(samples: &Samples, load: &str) -> f64 {
    samples.sum("window_samples", &[("load", load), ("window", "1h"), ("metric", "ttft")])
}

#[test]
fn what_ends_with_a_minute_holds() {
    thread::scope(|scope| {
        for part in [minutes_survive_a_kill, a_full_disk_is_told_and_stops_nothing, the_end_of_a_failure_is_told] {
            scope.spawn(part);
        }
    });
}

fn minutes_survive_a_kill() {
    let (gateway, folder) = (quick(), Folder::new());
    let token = folder.write("token", "sesame");
    let server = format!("[server]\nadmin_token_file = {:?}\n", token.display().to_string());
    let loads = load("a", "rate = 20") + &load("paused", "rate = 20");
    let config = folder.write("c.toml", &(server + &base(gateway.address, "") + &loads));
    let set = |name: &str| format!("state.dir={}", folder.0.join(name).display());
    let mut daemon = Daemon::start(&config, &["--set", &set("state")]);
    assert_eq!(daemon.ask("POST", "/api/v1/loads/paused/pause", &bearer("sesame")).0, 200);
    goes_on(&daemon, "a", 5.0);
    let saved = |samples: &Samples| samples.get("state_last_save_timestamp_seconds", &[]).is_some_and(|at| at > 0.0);
    until_within(A_MINUTE, "a minute is saved", || saved(&daemon.scrape()));
    let counted = in_the_hour(&daemon.scrape(), "a");
    assert!(counted > 0.0);
    let status = json(&daemon, "/api/v1/status");
    let covered = |at: usize| status["loads"][at]["windows"]["1h"]["covered_seconds"].as_f64().unwrap();
    assert!(covered(0) > covered(1), "a pause is covered: {} and {}", covered(0), covered(1));
    daemon.signal("KILL");
    daemon.ended();

    for name in ["whole", "torn", "damaged"] {
        copy(&folder.0.join("state/minutes"), &folder.0.join(name).join("minutes"));
    }
    let segment = |name: &str| segments(&folder.0.join(name).join("minutes")).pop().unwrap();
    let bytes = fs::read(segment("torn")).unwrap();
    fs::write(segment("torn"), &bytes[..bytes.len() - 3]).unwrap();
    let mut flipped = bytes;
    flipped[0] ^= 1;
    fs::write(segment("damaged"), flipped).unwrap();

    let again = |name: &str, extra: &[&str]| {
        let set = set(name);
        let arguments: Vec<_> = ["--set", &set].into_iter().chain(extra.iter().copied()).collect();
        let daemon = Daemon::start(&config, &arguments);
        let samples = daemon.scrape();
        let (code, _, log) = daemon.stop();
        assert_eq!(code, Some(0), "{name}: {log}");
        (in_the_hour(&samples, "a"), log)
    };
    // As it was left, and once more after an end in order, which adds a minute that was cut short.
    let (count, log) = again("state", &[]);
    assert!(count >= counted && !log.contains("WARN"), "{count} of {counted}: {log}");
    assert!(again("state", &[]).0 > counted);
    assert_eq!(again("whole", &["--set", "workloads.w.output_tokens=11"]).0, 0.0, "of another workload");
    let (count, log) = again("torn", &[]);
    assert!(count == 0.0 && log.contains("never finished was cut off"), "{count}: {log}");
    let (count, log) = again("damaged", &[]);
    assert!(count == 0.0 && log.contains("set aside"), "{count}: {log}");
    let aside = fs::read_dir(folder.0.join("damaged/minutes")).unwrap().flatten();
    assert!(aside.filter(|file| file.file_name().to_string_lossy().contains(".bad")).count() == 1);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in segments(from) {
        fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
    }
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir).unwrap().flatten().map(|file| file.path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "seg")).collect()
}

/// A limit on the size of files in place of a disk: it can be set and lifted from outside.
fn a_full_disk_is_told_and_stops_nothing() {
    let (gateway, folder) = (quick(), Folder::new());
    let config = folder.write("c.toml", &(base(gateway.address, "") + &load("a", "rate = 20")));
    let state = format!("state.dir={}", folder.0.join("state").display());
    let daemon = Daemon::spawn(command(&config, &["--set", &state]));
    let limit = |bytes: &str| {
        let pid = daemon.child.id().to_string();
        let done = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:")]).status().unwrap();
        assert!(done.success(), "prlimit");
    };
    limit("1");
    let saved = || daemon.scrape().get("state_saved", &[]);
    until_within(A_MINUTE, "it cannot save", || saved() == Some(0.0));
    goes_on(&daemon, "a", 10.0);
    assert_eq!(daemon.get("/-/ready").0, 200);
    limit("unlimited");
    until_within(A_MINUTE, "it saves again", || saved() == Some(1.0));
    let counted = in_the_hour(&daemon.scrape(), "a");
    let (code, _, log) = daemon.stop();
    assert_eq!((code, log.matches("ERROR").count()), (Some(0), 1), "{log}");
    assert!(log.contains("state.dir") && log.contains("saved again"), "{log}");
    let samples = Daemon::start(&config, &["--set", &state]).scrape();
    assert!(in_the_hour(&samples, "a") >= counted, "a minute that could not be saved at first is lost");
}

fn the_end_of_a_failure_is_told() {
    let folder = Folder::new();
    let gateway = faulty(&[], &["status:code=503,times=9"]);
    let text = base(gateway.address, "") + &load("a", "rate = 20");
    let daemon = Daemon::start(&folder.write("c.toml", &text), &[]);
    until_within(A_MINUTE, "it is well again", || kinds(&daemon, Some("a")) == ["failing", "recovered"]);
}
