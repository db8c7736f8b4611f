//! The API: the same numbers as the metrics, and requests that the gateway knows too.

use serde_json::Value;

use crate::rig::{answered, base, faulty, json, kinds, load};
use crate::support::{Daemon, Folder, Samples, until};

#[test]
fn the_status_says_what_the_metrics_say() {
    let faults = ["status:code=429,share=0.2", "reset:share=0.2", "stall:share=0.02"];
    let gateway = faulty(&[("ttft", "20ms"), ("gap", "2ms")], &faults);
    let folder = Folder::new();
    let loads = load("open", "rate = 100\nmax_in_flight = 2") + &load("closed", "concurrency = 3");
    let daemon = Daemon::start(&folder.write("c.toml", &(base(gateway.address, "") + &loads)), &[]);
    let found = |samples: &Samples, name: &str| samples.sum(name, &[]) > 20.0;
    daemon.scrape_until("there is something to compare", |samples| {
        found(samples, "requests_total") && found(samples, "requests_shed_total")
    });
    // A second may end between two answers; then they are of two pictures.
    until("two scrapes around a status are of one picture", || {
        let before = daemon.scrape();
        let status = json(&daemon, "/api/v1/status");
        let after = daemon.scrape();
        let taken = |samples: &Samples| samples.sum("requests_planned_total", &[]) + samples.sum("requests_total", &[]);
        let is_one = taken(&before).to_bits() == taken(&after).to_bits();
        if is_one {
            status["loads"].as_array().unwrap().iter().for_each(|load| compare(load, &before));
        }
        is_one
    });
    assert_eq!(kinds(&daemon, None).first().map(String::as_str), Some("started"));
}

fn compare(status: &Value, samples: &Samples) {
    let load = status["load"].as_str().unwrap();
    let count = |value: &Value| value.as_f64().unwrap();
    let one = |name: &str| samples.get(name, &[("load", load)]).unwrap();
    assert_eq!(count(&status["planned"]), one("requests_planned_total"), "{load}");
    assert_eq!(count(&status["in_flight"]), one("requests_in_flight"), "{load}");
    for (key, name, label) in [("outcomes", "requests_total", "outcome"), ("shed", "requests_shed_total", "reason")] {
        let counts = status[key].as_object().unwrap();
        assert_eq!(counts.len(), samples.all(name, &[("load", load)]).count(), "{name}");
        for (value, n) in counts {
            assert_eq!(Some(count(n)), samples.get(name, &[("load", load), (label, value)]), "{load} {value}");
        }
    }
}

#[test]
fn notable_requests_are_found_in_the_log_of_the_gateway() {
    let gateway = faulty(&[("ttft", "lognormal:20ms,0.5"), ("gap", "1ms")], &["status:code=503,share=0.3"]);
    let folder = Folder::new();
    let text = base(gateway.address, "") + &load("a", "rate = 50") + &load("b", "concurrency = 2");
    let daemon = Daemon::start(&folder.write("c.toml", &text), &[]);
    daemon.scrape_until("there are some", |samples| answered(samples, "a") > 60.0 && answered(samples, "b") > 60.0);
    for load in ["a", "b"] {
        let requests = json(&daemon, &format!("/api/v1/requests?load={load}"));
        for (list, outcome, status) in [("slowest", "ok", 200), ("failed", "http_5xx", 503)] {
            let requests = requests["loads"][load][list].as_array().unwrap();
            assert!((1..=50).contains(&requests.len()), "{load} {list}: {}", requests.len());
            for request in requests {
                let truth = gateway.truth.get(request["request_id"].as_str().unwrap());
                let truth = truth.unwrap_or_else(|| panic!("the gateway has not seen {request}"));
                assert_eq!((truth.status, request["outcome"].as_str()), (status, Some(outcome)), "{request}");
            }
        }
    }
    assert_eq!(daemon.get("/api/v1/requests?load=nobody").0, 404);
}
