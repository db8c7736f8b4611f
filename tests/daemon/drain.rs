//! The end: what is in flight goes on for its grace, what is left is canceled, and `/metrics` goes last.

use std::process::Command;

use steadyload::app::signals;
use steadyload::clock;

use crate::rig::{answered, base, bearer, faulty, load};
use crate::support::{Beside, Daemon, Folder, Samples, try_ask, until};

/// A load whose streams end by themselves, and one whose streams never do.
fn two_kinds(well: &Beside, stuck: &Beside, grace: &str) -> String {
    let second = format!("[targets.u]\nbase_url = \"http://{}\"\nmodel = \"m\"\n", stuck.address);
    let grace = format!("concurrency = 4\ngrace = \"{grace}\"\n");
    base(well.address, "")
        + &second
        + &load("well", &grace)
        + "[loads.stuck]\ntarget = \"u\"\nworkload = \"w\"\n"
        + &grace
}

fn gateways() -> (Beside, Beside) {
    let well = Beside::start(&[("ttft", "50ms"), ("gap", "40ms")]);
    (well, faulty(&[], &["stall:at=3"]))
}

fn started(config: &str, folder: &Folder) -> Daemon {
    let daemon = Daemon::start(&folder.write("c.toml", config), &[]);
    daemon.scrape_until("both stream", |samples| {
        answered(samples, "well") > 0.0 && samples.get("requests_in_flight", &[("load", "stuck")]) == Some(4.0)
    });
    daemon
}

#[test]
fn what_is_in_flight_ends_within_its_grace_or_is_canceled() {
    let ((well, stuck), folder) = (gateways(), Folder::new());
    for signal in ["TERM", "INT"] {
        let mut daemon = started(&two_kinds(&well, &stuck, "3s"), &folder);
        daemon.signal(signal);
        until("it drains", || daemon.get("/-/ready") == (503, "not ready: draining\n".to_owned()));
        let samples = daemon.scrape();
        assert_eq!(samples.get("phase", &[("phase", "draining")]), Some(1.0));
        assert_eq!(samples.get("requests_in_flight", &[("load", "stuck")]), Some(4.0));
        assert_eq!(daemon.get("/-/healthy").0, 200);
        let sent = well.truth.all().len();
        let mut last = samples;
        until("metrics go last", || {
            let Ok((200, _, text)) = try_ask(daemon.address, "GET", "/metrics", "") else { return true };
            last = Samples::parse(&text);
            last.assert_law();
            false
        });
        let status = daemon.ended();
        let log = daemon.log();
        assert_eq!(status.code(), Some(0), "{log}");
        assert_eq!(well.truth.all().len(), sent, "something was sent while it drained");
        let sums = |load: &str| {
            let line = log.lines().find(|line| line.contains("sums:") && line.contains(load));
            line.unwrap_or_else(|| panic!("no sums of {load}: {log}")).to_owned()
        };
        assert!(!sums("well").contains("canceled") && sums("well").contains("in_flight=0"), "{log}");
        assert!(sums("stuck").contains("4 canceled") && sums("stuck").contains("in_flight=0"), "{log}");
    }
}

#[test]
fn a_second_signal_ends_at_once_with_130() {
    let ((well, stuck), folder) = (gateways(), Folder::new());
    for (first, second) in [("TERM", "TERM"), ("INT", "INT"), ("TERM", "INT")] {
        let mut daemon = started(&two_kinds(&well, &stuck, "90s"), &folder);
        daemon.signal(first);
        until("it drains", || daemon.get("/-/ready").0 == 503);
        let heard = clock::now();
        until("a second signal is no echo any more", || clock::now() - heard > 2 * signals::ECHO);
        daemon.signal(second);
        assert_eq!(daemon.ended().code(), Some(130), "{first}, {second}: {}", daemon.log());
    }
}

/// Whoever signals a process and its group sends two and means one.
#[test]
fn the_echo_of_a_signal_is_no_second_one() {
    let ((well, stuck), folder) = (gateways(), Folder::new());
    for signal in ["TERM", "INT"] {
        let daemon = started(&two_kinds(&well, &stuck, "1s"), &folder);
        // One process sends both, so that they are microseconds apart.
        let pid = daemon.child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid, &pid, &pid]).status().unwrap();
        assert!(sent.success());
        let mut daemon = daemon;
        assert_eq!(daemon.ended().code(), Some(0), "{signal}: {}", daemon.log());
    }
}

#[test]
fn what_is_asked_of_a_daemon_that_drains_changes_nothing() {
    let ((well, stuck), folder) = (gateways(), Folder::new());
    let token = folder.write("token", "sesame");
    let server = format!("[server]\nadmin_token_file = {:?}\n", token.display().to_string());
    let config = server + &two_kinds(&well, &stuck, "4s");
    let mut daemon = started(&config, &folder);
    daemon.signal("TERM");
    until("it drains", || daemon.get("/-/ready").0 == 503);
    let sent = (well.truth.all().len(), stuck.truth.all().len());
    folder.write("c.toml", &(config + &load("another", "rate = 100")));
    daemon.signal("HUP");
    let asked = bearer("sesame");
    for path in ["/-/reload", "/api/v1/loads/well/pause"] {
        assert_eq!(daemon.ask("POST", path, &asked).0, 503, "{path}");
    }
    assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.log());
    assert_eq!((well.truth.all().len(), stuck.truth.all().len()), sent, "{}", daemon.log());
}
