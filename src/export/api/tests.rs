//! What the API says of a daemon at work and of one that has just started.

use super::*;
use crate::export::metrics::tests::{TAKEN, odd_names, quiet, traffic};

#[test]
fn the_status_of_a_daemon_at_work_is_in_one_answer() {
    let status = status(&traffic(2));
    let at = |pointer: &str| status.pointer(pointer).unwrap_or(&Value::Null).clone();
    assert_eq!((at("/phase"), at("/uptime_seconds")), (json!("running"), json!(100.0)));
    assert_eq!(at("/loads/0/pace/requests_per_second"), json!(3.5));
    assert_eq!(at("/loads/1/pace"), json!({ "concurrency": 8 }));
    assert_eq!(at("/loads/0/planned"), json!(432));
    assert_eq!((at("/loads/0/in_flight"), at("/loads/1/in_flight")), (json!(1), json!(2)));
    assert_eq!((at("/loads/0/outcomes/ok"), at("/loads/0/outcomes/http_5xx")), (json!(401), json!(1)));
    assert_eq!(at("/loads/0/outcomes").as_object().map(Map::len), Some(24));
    assert_eq!(at("/loads/0/shed/late"), json!(1));
    assert_eq!(at("/loads/0/windows/5m/ttft/n"), json!(397));
    let p99 = at("/loads/0/windows/5m/ttft/p99_seconds").as_f64().unwrap();
    assert!((p99 - 0.099).abs() < 0.001, "{p99}");
    assert_eq!(at("/loads/0/windows/24h/tainted_minutes"), json!(1));
    assert_eq!((at("/state/saved"), at("/dropped/events")), (json!(true), json!(2)));
    assert_eq!(at("/client/tainted_by"), json!([]));
}

#[test]
fn what_does_not_exist_is_null() {
    let mut view = quiet(1);
    view.loads[0].pace = None;
    let status = status(&view);
    for pointer in [
        "/uptime_seconds",
        "/state",
        "/loads/0/paused",
        "/loads/0/last_success_unix",
        "/loads/0/windows/1h/ttft/p99_seconds",
        "/reload/failure",
    ] {
        assert_eq!(status.pointer(pointer), Some(&Value::Null), "{pointer}");
    }
    assert_eq!(status.pointer("/loads/0/windows/1h/ttft/n"), Some(&json!(0)));
    assert_eq!(status.pointer("/loads/0/pace"), Some(&json!({ "concurrency": 0 })));
}

#[test]
fn requests_are_those_of_all_loads_or_of_the_one_that_is_named() {
    let mut view = traffic(2);
    let loads = |view: &View, load: Option<&str>| {
        requests(view, load).map(|value| value["loads"].as_object().unwrap().keys().cloned().collect::<Vec<_>>())
    };
    assert_eq!(loads(&view, None), Some(vec!["load0".to_owned(), "load1".to_owned()]));
    assert_eq!(loads(&view, Some("load1")), Some(vec!["load1".to_owned()]));
    assert_eq!(loads(&view, Some("load")), None);
    assert_eq!(loads(&quiet(0), None), Some(vec![]));
    odd_names(&mut view);
    assert_eq!(loads(&view, Some("a\"b\\c\nd1")).unwrap().len(), 1);
}

#[test]
fn a_request_is_shown_with_its_stamps_after_the_plan() {
    let value = requests(&traffic(1), None).unwrap();
    let [slowest, failed] = ["slowest", "failed"].map(|list| value["loads"]["load0"][list].as_array().unwrap().clone());
    // The 22 outcomes that are no answer.
    assert_eq!((slowest.len(), failed.len()), (50, 22));
    let e2el = |request: &Value| request["e2el_seconds"].as_f64().unwrap();
    assert!(slowest.is_sorted_by(|a, b| e2el(a) >= e2el(b)), "{slowest:?}");
    for request in &slowest {
        let at = |key: &str| request[key].as_f64().unwrap();
        assert!(
            at("sent_seconds") <= at("first_token_seconds") && at("first_token_seconds") <= at("last_token_seconds")
        );
        assert!((at("last_token_seconds") - at("sent_seconds") - e2el(request)).abs() < 1e-9);
        assert!((at("planned_unix") - TAKEN.as_secs_f64()).abs() < 60.0, "{request}");
        assert_eq!(request["outcome"], json!("ok"));
    }
    assert!(failed.iter().all(|request| request["e2el_seconds"].is_null() && request["outcome"] != json!("ok")));
}

#[test]
fn events_say_what_happened() {
    let events = events(&traffic(1));
    let started = json!({ "at_unix": 1_800_000_000.0, "kind": "started", "load": null, "text": "started" });
    assert_eq!(events, json!({ "events": [started] }));
}
