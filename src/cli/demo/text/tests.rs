//! Lines as people see them.

use super::*;
use crate::config::sections::Rate;
use crate::domain::outcome::Outcome;
use crate::domain::shed::ShedReason;
use crate::watch::client_health::TaintReason;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn latency_of(n: u64, p50: u64, p99: u64) -> Latency {
    Latency { n, p50: Some(Duration::from_micros(p50)), p99: Some(Duration::from_micros(p99)) }
}

fn load() -> LoadFigures {
    LoadFigures {
        pace: Some(Pace::Rate(Rate::of(3.0))),
        planned: 15,
        ended: vec![(Outcome::Ok, 14)],
        in_flight: 6,
        output_tokens: 1400,
        ttft: latency_of(44, 62_340, 131_200),
        tpot: latency_of(44, 18_123, 21_000),
        e2el: latency_of(44, 1_870_000, 12_345_000),
        ..LoadFigures::default()
    }
}

fn of(load: LoadFigures) -> Figures {
    Figures { elapsed: ms(15_004), lasted: ms(5000), load: Some(load), unwell: None }
}

#[test]
fn a_line_stands_under_its_heading() {
    let (heading, line) = (heading(), line(&of(load())));
    assert_eq!(
        line,
        "  0:15       3.0/s   3.0/s    2.8/s      6  62.3 ms  131 ms    44  18.1 ms 21.0 ms    44  all ok\n"
    );
    let names = heading.lines().last().unwrap();
    for (name, value) in [("planned", "3.0/s "), ("flight", "6 "), ("n ", "44 ")] {
        let ends = |line: &str, text: &str| line.find(text).map(|at| at + text.trim_end().len());
        assert_eq!(ends(names, name), ends(&line, value), "{name}\n{heading}{line}");
    }
}

#[test]
fn what_does_not_exist_is_no_zero() {
    let nothing =
        LoadFigures { pace: load().pace, planned: 2, shed: vec![(ShedReason::Backoff, 2)], ..LoadFigures::default() };
    let line = line(&of(nothing));
    assert!(line.contains("        -       -     0        -       -     0  none ended"), "{line}");
    assert!(line.ends_with("\n        2 not sent (backoff)\n"), "{line}");
    let figures = Figures { lasted: Duration::ZERO, ..of(load()) };
    assert!(super::line(&figures).contains(" - "), "{}", super::line(&figures));
}

#[test]
fn failures_are_named_and_a_closed_loop_says_how_many_are_under_way() {
    let ended = vec![(Outcome::Ok, 12), (Outcome::Http5xx, 2)];
    let closed = LoadFigures { pace: Some(Pace::Concurrency(8.try_into().unwrap())), ended, ..load() };
    let line = line(&of(closed));
    assert!(line.contains("8 under way ") && line.ends_with("  ok 12, http_5xx 2\n"), "{line}");
    let none_ok = LoadFigures { ended: vec![(Outcome::Connect, 15)], ..load() };
    assert!(super::line(&of(none_ok)).ends_with("  connect 15\n"));
}

#[test]
fn a_bad_stretch_is_told_in_words_and_in_110_columns() {
    let every: Vec<_> = Outcome::ALL.into_iter().map(|outcome| (outcome, 1_000)).collect();
    let shed = vec![(ShedReason::InflightCap, 3), (ShedReason::Late, 2)];
    let bad = LoadFigures { ended: every[..6].to_vec(), shed, not_kept: true, paused: true, ..load() };
    let unwell = Unwell { seconds: 2, reasons: vec![TaintReason::Late, TaintReason::EventLoopDelay] };
    let text = line(&Figures { unwell: Some(unwell), ..of(bad) });
    for part in [
        "ok 1000, short_output 1000",
        "5 not sent (inflight_cap 3, late 2)",
        "paused",
        "the gateway does not take all of the load",
        "this machine was too slow or too full for 2 s of it (late, event_loop_delay)",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    assert!(text.lines().skip(1).all(|line| line.starts_with(INDENT)), "{text}");
}

#[test]
fn latencies_have_three_digits() {
    for (micros, shown) in [
        (250, "0.25 ms"),
        (9_994, "9.99 ms"),
        (9_996, "10.0 ms"),
        (99_960, "100 ms"),
        (999_600, "1.00 s"),
        (12_345_000, "12.3 s"),
    ] {
        assert_eq!(latency(Duration::from_micros(micros)), shown);
    }
}

#[test]
fn times_are_to_the_nearest_second() {
    for (millis, shown) in [(4_800, "0:05"), (65_100, "1:05"), (3_723_000, "1:02:03")] {
        assert_eq!(clock(ms(millis)), shown);
    }
}

#[test]
fn the_summary_has_every_number_of_the_law() {
    let ended = vec![(Outcome::Ok, 82), (Outcome::Http5xx, 6), (Outcome::Canceled, 1)];
    let shed = vec![(ShedReason::Shutdown, 3)];
    let figures =
        Figures { elapsed: ms(31_000), ..of(LoadFigures { planned: 92, ended, shed, in_flight: 0, ..load() }) };
    let text = summary(&figures);
    assert!(text.contains("92 planned = 3 shed (shutdown) + 82 ok + 6 http_5xx + 1 canceled\n"), "{text}");
    assert!(text.contains("E2EL      P50  1.87 s   P99  12.3 s   n 44"), "{text}");
    assert!(text.contains("ran for 0:31\n") && text.contains("output    45.2 tokens/s\n"), "{text}");
}

#[test]
fn the_opening_says_where_everything_is_and_which_port_was_taken() {
    let at = |port: u16| ([127, 0, 0, 1], port).into();
    let places = |daemon: u16, gateway: u16| Places {
        daemon: at(daemon),
        gateway: at(gateway),
        configuration: "/tmp/d/steadyload.toml".into(),
        token: "/tmp/d/admin-token".into(),
    };
    let pace = Pace::Rate(Rate::of(2.5));
    let text = opening(&pace, Some(ms(30_000)), ms(5000), &places(9877, 9878));
    for part in [
        "http://127.0.0.1:9877/metrics ",
        "sends an LLM gateway 2.5 requests a second",
        "for 30s, or until Ctrl-C",
        "loads/demo/pause\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("taken"), "{text}");
    let text = opening(&pace, None, ms(5000), &places(9880, 9879));
    assert!(
        text.contains("port 9877 is taken, so the page is on 9880\nport 9878 is taken, so the gateway is on 9879\n"),
        "{text}"
    );
}

#[test]
fn a_load_that_was_taken_out_is_said_to_be_gone() {
    let gone = Figures { load: None, ..of(load()) };
    assert_eq!(line(&gone), "  0:15  the load demo is not in the settings any more\n");
    assert!(summary(&gone).contains("taken out"));
}

#[test]
fn a_load_that_the_gateway_does_not_keep_up_with_is_called_so_at_the_end() {
    let of = |ended| summary(&of(LoadFigures { ended, ..load() }));
    assert!(of(vec![(Outcome::Ok, 64), (Outcome::Canceled, 1715)]).contains("the gateway does not keep up"));
    assert!(!of(vec![(Outcome::Ok, 64), (Outcome::Canceled, 5)]).contains("keep up"));
}

#[test]
fn the_end_says_what_an_impatient_one_leaves_behind() {
    let address = ([127, 0, 0, 1], 1).into();
    let places = Places {
        daemon: address,
        gateway: address,
        configuration: "/tmp/steadyload-demo-1/steadyload.toml".into(),
        token: "/tmp/steadyload-demo-1/admin-token".into(),
    };
    assert!(ending(&places).contains("leaves\n/tmp/steadyload-demo-1 behind"), "{}", ending(&places));
}
