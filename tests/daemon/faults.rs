//! Gateways that fail in every way: what is counted, what is told, and that the load comes back by itself.

use crate::rig::{answered, base, goes_on, kinds, load, nobody, quick};
use crate::support::{Beside, Daemon, Folder, Samples, until};

const MIB: f64 = 1_048_576.0;

fn outcome(samples: &Samples, load: &str, outcome: &str) -> f64 {
    samples.sum("requests_total", &[("load", load), ("outcome", outcome)])
}

#[test]
fn a_gateway_that_comes_later_is_found_without_being_told() {
    let (address, folder) = (nobody(), Folder::new());
    let text = base(address, "") + &load("open", "rate = 40") + &load("closed", "concurrency = 4");
    let daemon = Daemon::start(&folder.write("c.toml", &text), &[]);
    let samples = daemon.scrape_until("both are refused", |samples| {
        ["open", "closed"].iter().all(|load| outcome(samples, load, "connect") >= 8.0)
            && samples.get("load_not_kept", &[("load", "closed")]) == Some(1.0)
    });
    assert!(samples.sum("requests_shed_total", &[("load", "closed"), ("reason", "backoff")]) > 0.0);
    assert_eq!(samples.sum("requests_shed_total", &[("reason", "backoff"), ("load", "open")]), 0.0);
    assert_eq!(samples.sum("requests_total", &[]), samples.sum("requests_total", &[("outcome", "connect")]));
    assert_eq!(daemon.get("/-/ready").0, 200, "a gateway that is down is no fault of ours");
    assert_eq!(samples.sum("client_taint_seconds_total", &[("reason", "local")]), 0.0);

    let _gateway = Beside::at(address, &[("ttft", "5ms"), ("gap", "1ms")]);
    for load in ["open", "closed"] {
        goes_on(&daemon, load, 20.0);
        assert_eq!(kinds(&daemon, Some(load)), ["failing"]);
    }
}

#[test]
fn a_gateway_that_asks_for_patience_is_left_alone_and_none_of_it_taints() {
    for form in ["seconds", "date"] {
        let (gateway, folder) = (quick(), Folder::new());
        let fault = format!("status:code=429,retry_after=600,retry_form={form}");
        let target = format!("headers = {{ x-sim-fault = {fault:?} }}");
        let text = base(gateway.address, &target) + &load("open", "rate = 100") + &load("closed", "concurrency = 4");
        let daemon = Daemon::start(&folder.write("c.toml", &text), &[]);
        let shed =
            |samples: &Samples, load| samples.sum("requests_shed_total", &[("load", load), ("reason", "backoff")]);
        let held_back = |samples: &Samples| {
            shed(samples, "open") > 200.0
                && shed(samples, "closed") >= 4.0
                && ["open", "closed"].iter().all(|load| samples.get("load_not_kept", &[("load", load)]) == Some(1.0))
        };
        let samples = daemon.scrape_until("both are held back", held_back);
        // What was under way when the first refusal came, and no more.
        assert!(outcome(&samples, "open", "http_429") <= 20.0 && outcome(&samples, "closed", "http_429") <= 4.0);
        for load in ["open", "closed"] {
            let labels = [("load", load)];
            let sum = |name| samples.sum(name, &labels);
            let ended = sum("requests_shed_total") + sum("requests_in_flight") + sum("requests_total");
            assert_eq!(sum("requests_planned_total"), ended, "{load}");
        }
        assert_eq!(samples.sum("client_taint_seconds_total", &[]), 0.0);
        let (code, _, log) = daemon.stop();
        assert_eq!(code, Some(0), "{log}");
    }
}

#[test]
fn a_gateway_that_dies_under_its_streams_is_counted_and_found_again() {
    let (pace, folder) = ([("ttft", "50ms"), ("gap", "150ms")], Folder::new());
    let gateway = Beside::start(&pace);
    let address = gateway.address;
    let text = base(address, "") + &load("a", "concurrency = 8");
    let daemon = Daemon::start(&folder.write("c.toml", &text), &[]);
    let streaming =
        |samples: &Samples| samples.sum("requests_in_flight", &[]) == 8.0 && samples.sum("requests_total", &[]) > 0.0;
    daemon.scrape_until("all stream", streaming);
    drop(gateway);
    let broken = |samples: &Samples| outcome(samples, "a", "reset") + outcome(samples, "a", "truncated");
    let samples = daemon.scrape_until("none is in flight", |samples| {
        samples.sum("requests_in_flight", &[]) == 0.0 && outcome(samples, "a", "connect") > 0.0
    });
    assert!((1.0..=8.0).contains(&broken(&samples)), "{}", broken(&samples));

    let _gateway = Beside::at(address, &pace);
    daemon.scrape_until("all stream again", |samples| samples.sum("requests_in_flight", &[]) == 8.0);
    goes_on(&daemon, "a", 8.0);
}

#[test]
fn a_name_that_does_not_exist_is_dns() {
    let folder = Folder::new();
    let text = base(nobody(), "timeouts = { connect = \"2s\" }") + &load("a", "concurrency = 2\ngrace = \"0s\"");
    let (config, set) = (folder.write("c.toml", &text), "targets.t.base_url=http://nonexistent.invalid");
    let daemon = Daemon::start(&config, &["--set", set]);
    // A resolver that does not answer is not told apart from one that is slow.
    let samples = daemon.scrape_until("it is looked up", |samples| samples.sum("requests_total", &[]) >= 2.0);
    let named = outcome(&samples, "a", "dns") + outcome(&samples, "a", "timeout_connect");
    assert_eq!(named, samples.sum("requests_total", &[]));
    let (code, _, log) = daemon.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("nonexistent.invalid"), "{log}");
}

#[test]
fn a_key_that_is_replaced_is_read_again_by_itself_and_by_a_reload() {
    let (folder, mut daemon) = (Folder::new(), None);
    let key = folder.write("key", "first");
    let mut address = nobody();
    for word in ["first", "second", "third"] {
        // The gateway is another one each time, and takes the new key only.
        let gateway = Beside::at(address, &[("api_key", word), ("ttft", "5ms"), ("gap", "1ms")]);
        address = gateway.address;
        let target = format!("api_key_file = {:?}", key.display().to_string());
        let daemon = daemon.get_or_insert_with(|| {
            let text = base(address, &target) + &load("a", "rate = 30");
            Daemon::start(&folder.write("c.toml", &text), &[])
        });
        if word != "first" {
            let before = outcome(&daemon.scrape(), "a", "http_401");
            daemon.scrape_until("it is refused", |samples| outcome(samples, "a", "http_401") > before + 5.0);
            folder.write("key", word);
        }
        if word == "third" {
            daemon.signal("HUP");
            until("it is reloaded", || daemon.log().contains("was reloaded"));
        }
        goes_on(daemon, "a", 20.0);
        drop(gateway);
    }
    let log = daemon.unwrap().stop().2;
    assert!(log.contains("http_401") && log.contains("a changes in place"), "{log}");
}

#[test]
fn ten_thousand_refusals_a_second_are_borne() {
    let folder = Folder::new();
    let pace = "rate = 10_000\narrival = \"constant\"\nmax_in_flight = 1000";
    let text = base(nobody(), "") + &load("a", pace) + &load("calm", "rate = 1");
    let daemon = Daemon::start(&folder.write("c.toml", &text), &[]);
    let samples = daemon.scrape_until("many were planned", |samples| {
        samples.sum("requests_planned_total", &[("load", "a")]) > 40_000.0
    });
    let resident = samples.get("process_resident_memory_bytes", &[]).unwrap();
    assert!(resident < 150.0 * MIB, "{} MiB", resident / MIB);
    let refused = outcome(&samples, "a", "connect");
    assert!(refused > 1000.0, "{refused}");
    assert_eq!(kinds(&daemon, Some("a")), ["failing"]);
    let (code, _, log) = daemon.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.lines().count() < 30, "{log}");
}

#[test]
fn a_gateway_that_is_wrong_in_every_way_at_once_is_data() {
    const FAULTS: &str = "status:code=429 status:code=503 status:code=502 status:code=404 redirect json_error html_page \
        json_answer big_json:size=70MB empty_body bad_finish no_finish usage:kind=huge usage:kind=absurd error:form=data \
        error:form=raw truncate stall comments endless:of=comments giant_line:size=8MB deep_json nul_bytes bad_utf8 \
        bad_json non_object one_byte compressed cut reset reset:when=before_head close close:when=in_head silence \
        huge_head:size=300kB bad_status_line short_length close_delimited no_content slow_accept";
    let (gateway, folder) = (quick(), Folder::new());
    let limits = "timeouts = { connect = \"1s\", first_token = \"1s\", idle = \"1s\", total = \"3s\" }";
    // Each fault is asked for by a load of its own, so that all of them are there.
    let mut text = base(gateway.address, limits) + &load("well", "rate = 20");
    for (n, fault) in FAULTS.split_whitespace().enumerate() {
        text += &format!(
            "[targets.t{n}]\nbase_url = \"http://{}\"\nmodel = \"m\"\n{limits}\nheaders = {{ x-sim-fault = {fault:?} }}\n\
             [loads.l{n}]\ntarget = \"t{n}\"\nworkload = \"w\"\nconcurrency = 1\ngrace = \"1s\"\n",
            gateway.address
        );
    }
    let daemon = Daemon::start(&folder.write("c.toml", &text), &[]);
    let loads = FAULTS.split_whitespace().count();
    let samples = daemon.scrape_until("each has failed or not", |samples| {
        answered(samples, "well") > 60.0
            && (0..loads).all(|n| samples.sum("requests_total", &[("load", &format!("l{n}"))]) >= 2.0)
    });
    let kinds = ["http_429", "http_5xx", "http_4xx", "http_404", "http_3xx", "in_band_error", "bad_response", "parse"];
    for name in kinds.iter().filter(|name| **name != "http_4xx") {
        assert!(samples.sum("requests_total", &[("outcome", name)]) > 0.0, "{name}");
    }
    for name in ["truncated", "reset", "timeout_idle", "timeout_first_token", "empty", "ok"] {
        assert!(samples.sum("requests_total", &[("outcome", name)]) > 0.0, "{name}");
    }
    assert_eq!(outcome(&samples, "well", "ok"), samples.sum("requests_total", &[("load", "well")]));
    let resident = samples.get("process_resident_memory_bytes", &[]).unwrap();
    assert!(resident < 400.0 * MIB, "{} MiB", resident / MIB);
    let (code, _, log) = daemon.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("panicked"), "{log}");
}
