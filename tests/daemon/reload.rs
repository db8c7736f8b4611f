//! A new configuration while it runs: only what changed changes, and what is wrong changes nothing.

use std::fs;
use std::process::Command;
use std::time::Duration;

use steadyload::sim::truth::End;

use crate::rig::{Watch, answered, base, bearer, behind, command, goes_on, json, kinds, let_pass, load, quick};
use crate::support::{Beside, Daemon, Folder, Samples, until};

/// Has another configuration read, and says whether it is in force.
fn reload(daemon: &Daemon, folder: &Folder, text: &str) -> bool {
    let told = || kinds(daemon, None).into_iter().filter(|kind| kind.starts_with("reload")).collect::<Vec<_>>();
    let before = told().len();
    folder.write("c.toml", text);
    daemon.signal("HUP");
    until("it is reloaded", || told().len() > before);
    told().last().is_some_and(|kind| kind == "reloaded")
}

fn is_there(samples: &Samples, load: &str) -> bool {
    samples.get("requests_planned_total", &[("load", load)]).is_some()
}

#[test]
fn what_changes_changes_and_no_series_is_interrupted() {
    let (gateway, folder) = (quick(), Folder::new());
    let steady = load("steady", "rate = 20\narrival = \"constant\"");
    let with = |target: &str, rest: &str| base(gateway.address, target) + &steady + rest;
    let pace = |settings: &str| load("a", settings);
    let daemon = Daemon::start(&folder.write("c.toml", &with("", &pace("rate = 10"))), &[]);
    goes_on(&daemon, "steady", 1.0);
    goes_on(&daemon, "a", 1.0);
    let watch = Watch::over(&daemon, &["steady", "a"]);
    let gauge = |name: &str| daemon.scrape().get(name, &[("load", "a")]);

    assert!(reload(&daemon, &folder, &with("", &pace("rate = 40\nmax_in_flight = 7"))));
    assert_eq!(gauge("target_requests_per_second"), Some(40.0));
    goes_on(&daemon, "a", 30.0);

    // Another limit and another workload: seen in what is sent.
    let other = "[workloads.v]\ninput_tokens = 8\noutput_tokens = 3\n";
    let slower = pace("rate = 40").replace("\"w\"", "\"v\"") + other;
    assert!(reload(&daemon, &folder, &with("timeouts = { total = \"99s\" }", &slower)));
    until("it sends something else", || {
        gateway.truth.all().iter().any(|truth| truth.end == End::Whole && truth.n == 3)
    });

    let added = load("b", "concurrency = 2");
    assert!(reload(&daemon, &folder, &with("", &(pace("rate = 40") + &added))));
    goes_on(&daemon, "b", 10.0);
    assert!(reload(&daemon, &folder, &with("", &pace("concurrency = 3"))));
    daemon.scrape_until("b is gone", |samples| !is_there(samples, "b"));
    assert_eq!((gauge("target_concurrency"), gauge("target_requests_per_second")), (Some(3.0), None));
    goes_on(&daemon, "a", 30.0);
    assert!(reload(&daemon, &folder, &with("", &pace("rate = 10"))));
    goes_on(&daemon, "a", 10.0);
    assert!(reload(&daemon, &folder, &with("", &pace("rate = 10"))));
    goes_on(&daemon, "steady", 10.0);
    watch.finish();

    let log = daemon.log();
    for said in ["a changes in place", "a changes what it sends", "b begins", "b ends", "another kind of loop"] {
        assert!(log.contains(said), "{said}: {log}");
    }
    assert!(log.contains("no load has changed"), "{log}");
    // A change of the target concerns every load on it, once there and once back; nothing else concerned this one.
    assert_eq!(log.matches("steady changes").count(), 2, "{log}");
    assert_eq!(daemon.stop().0, Some(0));
}

#[test]
fn a_load_that_comes_back_before_it_has_ended_is_one_series() {
    let folder = Folder::new();
    let gateway = Beside::start(&[("ttft", "5ms"), ("gap", "700ms")]);
    let steady = base(gateway.address, "") + &load("steady", "rate = 20");
    let both = steady.clone() + &load("a", "concurrency = 3");
    let daemon = Daemon::start(&folder.write("c.toml", &both), &[]);
    let streaming = |samples: &Samples| samples.get("requests_in_flight", &[("load", "a")]) == Some(3.0);
    daemon.scrape_until("it streams", streaming);
    let watch = Watch::over(&daemon, &["steady", "a"]);
    for again in [both.clone(), steady.clone() + &load("a", "rate = 5"), both] {
        assert!(reload(&daemon, &folder, &steady));
        assert!(reload(&daemon, &folder, &again));
        let samples = daemon.scrape();
        assert_eq!(samples.all("requests_planned_total", &[("load", "a")]).count(), 1);
        let before = samples.sum("requests_planned_total", &[("load", "a")]);
        daemon.scrape_until("it goes on", |samples| {
            samples.sum("requests_planned_total", &[("load", "a")]) > before + 2.0
        });
    }
    watch.finish();
}

#[test]
fn a_configuration_that_is_wrong_changes_nothing_and_says_so() {
    let (gateway, folder) = (quick(), Folder::new());
    let good = base(gateway.address, "") + &load("a", "rate = 50");
    let daemon = Daemon::start(&folder.write("c.toml", &good), &[]);
    let watch = Watch::over(&daemon, &["a"]);
    let successful = || daemon.scrape().get("config_last_reload_successful", &[]).unwrap();
    for (bad, says) in [
        (good.replace("rate = 50", "rate = 0\nmax_in_flight = 0"), "loads.a.max_in_flight"),
        (good.replace("[workloads.w]", "[workloads.v]"), "workload"),
        (good.replace("model", "api_key_file = \"gone\"\nmodel"), "targets.t.api_key_file"),
        ("\u{0}".to_owned(), "c.toml"),
    ] {
        assert!(!reload(&daemon, &folder, &bad));
        let status = json(&daemon, "/api/v1/status");
        let failure = status["reload"]["failure"].as_str().unwrap_or_default().to_owned();
        assert!(failure.contains(says), "{says}: {failure}");
        assert_eq!((successful(), &status["reload"]["successful"]), (0.0, &false.into()));
        goes_on(&daemon, "a", 5.0);
        assert!(reload(&daemon, &folder, &good));
        assert_eq!(successful(), 1.0);
    }
    // Not there at all.
    fs::remove_file(folder.0.join("c.toml")).unwrap();
    daemon.signal("HUP");
    until("it is missed", || successful() == 0.0);
    goes_on(&daemon, "a", 5.0);
    watch.finish();
    let (code, _, log) = daemon.stop();
    assert_eq!((code, log.matches("was not reloaded").count()), (Some(0), 5), "{log}");
}

#[test]
fn what_only_a_restart_takes_is_named_until_it_is_as_it_was() {
    let (gateway, folder) = (quick(), Folder::new());
    let rest = base(gateway.address, "") + &load("a", "rate = 20");
    let state = |name: &str| format!("dir = {:?}\n", folder.0.join(name).display().to_string());
    let text = |shard: &str, server: &str, dir: &str, log: &str| {
        format!("{shard}[server]\n{server}[state]\n{}[log]\n{log}{rest}", state(dir))
    };
    let first = text("", "listen = \"127.0.0.1:0\"\n", "one", "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadyload"));
    command.arg("run").arg("-c").arg(folder.write("c.toml", &first));
    let daemon = Daemon::spawn(command);
    let shard = "shard = { index = 1, count = 2 }\n";
    let other = text(shard, "listen = \"127.0.0.1:1\"\nbuckets = \"coarse\"\n", "two", "format = \"json\"\n");
    assert!(reload(&daemon, &folder, &other));
    let keys = ["server.listen", "server.buckets", "state.dir", "log.format", "shard"];
    let wanted = || json(&daemon, "/api/v1/status")["reload"]["wants_restart"].clone();
    assert_eq!(wanted(), serde_json::json!(keys));
    assert!(daemon.log().contains(&format!("a restart is needed for {}", keys.join(", "))), "{}", daemon.log());
    goes_on(&daemon, "a", 5.0);
    assert_eq!(daemon.scrape().get("target_requests_per_second", &[("load", "a")]), Some(20.0));
    assert!(!folder.0.join("two").exists());
    assert!(reload(&daemon, &folder, &first));
    assert_eq!(wanted(), serde_json::json!([]));
}

#[test]
fn changes_over_http_want_the_token() {
    let (gateway, folder) = (quick(), Folder::new());
    let rest = base(gateway.address, "") + &load("a", "rate = 50");
    let token = folder.write("token", "sesame\n");
    let server = format!("[server]\nadmin_token_file = {:?}\n", token.display().to_string());
    let daemon = Daemon::start(&folder.write("c.toml", &rest), &[]);
    let post = |path: &str, headers: &str| {
        let (status, _, body) = daemon.ask("POST", path, headers);
        (status, body)
    };
    let (status, body) = post("/-/reload", &bearer("sesame"));
    assert!(status == 403 && body.contains("admin_token_file"), "{status} {body}");
    assert!(reload(&daemon, &folder, &(server.clone() + &rest)));
    assert_eq!(post("/-/reload", "").0, 401);
    assert_eq!(post("/-/reload", &bearer("simsim")).0, 401);
    assert_eq!(post("/api/v1/loads/a/pause", &bearer("simsim")).0, 401);
    let (status, body) = post("/-/reload", &bearer("sesame"));
    assert!(status == 200 && body.contains("no load has changed"), "{status} {body}");
    assert_eq!(daemon.get("/-/reload").0, 405);

    folder.write("token", "abracadabra");
    assert_eq!(post("/-/reload", &bearer("sesame")).0, 200);
    assert_eq!(post("/-/reload", &bearer("sesame")).0, 401, "the old token");
    folder.write("c.toml", &(server + &rest.replace("rate", "rat")));
    let (status, body) = post("/-/reload", &bearer("abracadabra"));
    assert!(status == 422 && body.contains("loads.a"), "{status} {body}");
    goes_on(&daemon, "a", 5.0);
}

#[test]
fn a_pause_is_shed_by_an_open_loop_and_nothing_to_a_closed_one() {
    let (gateway, folder) = (quick(), Folder::new());
    let token = folder.write("token", "sesame");
    let server = format!("[server]\nadmin_token_file = {:?}\n", token.display().to_string());
    let rest = load("open", "rate = 50") + &load("closed", "concurrency = 2") + &load("other", "rate = 50");
    let text = server + &base(gateway.address, "") + &rest;
    let daemon = Daemon::start(&folder.write("c.toml", &text), &[]);
    let post = |load: &str, what: &str| {
        let path = format!("/api/v1/loads/{load}/{what}");
        assert_eq!(daemon.ask("POST", &path, &bearer("sesame")).0, 200, "{path}");
    };
    for load in ["open", "closed"] {
        goes_on(&daemon, load, 5.0);
        post(load, "pause");
        post(load, "pause");
    }
    assert_eq!(daemon.ask("POST", "/api/v1/loads/nobody/pause", &bearer("sesame")).0, 404);
    let paused = |samples: &Samples, load: &str| samples.get("load_paused", &[("load", load), ("reason", "api")]);
    let quiet = daemon.scrape_until("nothing is in flight", |samples| {
        ["open", "closed"].iter().all(|load| samples.get("requests_in_flight", &[("load", load)]) == Some(0.0))
    });
    assert_eq!(["open", "closed", "other"].map(|load| paused(&quiet, load)), [Some(1.0), Some(1.0), Some(0.0)]);
    let shed =
        |samples: &Samples, load: &str| samples.sum("requests_shed_total", &[("load", load), ("reason", "paused")]);
    // A reload of something else does not end the pause, nor does another kind of loop.
    let changed = text.replace("[loads.open]", "[loads.more]\ntarget=\"t\"\nworkload=\"w\"\nrate=1\n[loads.open]");
    assert!(reload(&daemon, &folder, &changed));
    let later = daemon.scrape_until("time passes", |samples| shed(samples, "open") > shed(&quiet, "open") + 40.0);
    for load in ["open", "closed"] {
        assert_eq!(answered(&later, load), answered(&quiet, load), "{load}");
    }
    let planned = |samples: &Samples| samples.sum("requests_planned_total", &[("load", "closed")]);
    assert_eq!((planned(&later), shed(&later, "closed")), (planned(&quiet), 0.0));
    for load in ["open", "closed"] {
        post(load, "resume");
        goes_on(&daemon, load, 20.0);
        assert_eq!(paused(&daemon.scrape(), load), Some(0.0));
    }
    let kinds = kinds(&daemon, Some("open"));
    assert_eq!(kinds, ["paused", "resumed"]);
}

#[test]
fn a_paused_load_that_becomes_another_kind_of_loop_stays_paused() {
    let (gateway, folder) = (quick(), Folder::new());
    let token = folder.write("token", "sesame");
    let server = format!("[server]\nadmin_token_file = {:?}\n", token.display().to_string());
    let text = |pace: &str| server.clone() + &base(gateway.address, "") + &load("a", pace);
    let daemon = Daemon::start(&folder.write("c.toml", &text("rate = 50")), &[]);
    goes_on(&daemon, "a", 5.0);
    assert_eq!(daemon.ask("POST", "/api/v1/loads/a/pause", &bearer("sesame")).0, 200);
    daemon.scrape_until("nothing is in flight", |samples| samples.sum("requests_in_flight", &[]) == 0.0);
    let sent = gateway.truth.all().len();
    for pace in ["concurrency = 8", "rate = 500"] {
        assert!(reload(&daemon, &folder, &text(pace)));
        let_pass(Duration::from_millis(300));
        assert_eq!(daemon.scrape().get("load_paused", &[("load", "a")]), Some(1.0));
        assert_eq!(gateway.truth.all().len(), sent, "{pace}");
    }
}

#[test]
fn a_configuration_that_wants_more_descriptors_than_there_are_is_refused() {
    let (gateway, folder) = (quick(), Folder::new());
    let text = |cap: &str| base(gateway.address, "") + &load("a", &format!("rate = 50\nmax_in_flight = {cap}"));
    let config = folder.write("c.toml", &text("64"));
    let daemon = Daemon::spawn(behind("ulimit -n 400", &command(&config, &[])));
    assert!(!reload(&daemon, &folder, &text("5000")));
    assert_eq!(daemon.scrape().get("config_last_reload_successful", &[]), Some(0.0));
    let failure = json(&daemon, "/api/v1/status")["reload"]["failure"].to_string();
    assert!(failure.contains("max_in_flight"), "{failure}");
    goes_on(&daemon, "a", 5.0);
    assert!(reload(&daemon, &folder, &text("100")));
    assert_eq!(daemon.scrape().get("config_last_reload_successful", &[]), Some(1.0));
}
