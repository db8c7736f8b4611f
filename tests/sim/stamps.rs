//! The truth log, judged against what a client saw.

use std::time::Duration;

use steadyload::sim::Simulator;
use steadyload::sim::fault::rule::FaultRule;
use steadyload::sim::truth::End;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::peer::{Heard, LOOPBACK, Limits, PATIENT, Running, ask, ask_within, chat, get, say, settings};

const IDS: [&str; 2] = ["connection: close", "x-request-id: r-1"];

fn millis(heard: &Heard) -> Vec<u128> {
    heard.reads.iter().map(|(at, _)| (*at - heard.sent_at).as_millis()).collect()
}

#[tokio::test(start_paused = true)]
async fn every_event_leaves_at_its_moment_and_the_log_says_so() {
    let simulator = Simulator::new(settings(&[]));
    let heard = ask(&simulator, &chat(&IDS)).await;
    // The head at once, role and first token at 200 ms, a token every 20 ms, the end with the last one.
    assert_eq!(millis(&heard), [0, 200, 220, 240, 260, 280]);
    let truth = simulator.truth().get("r-1").unwrap();
    let stamps: Vec<_> =
        truth.token_instants().map(|(at, tokens)| ((at - heard.sent_at).as_millis(), tokens)).collect();
    assert_eq!(stamps, [(200, 1), (220, 1), (240, 1), (260, 1), (280, 1)]);
    assert_eq!(
        (truth.ttft(), truth.n, truth.prompt_tokens, truth.end),
        (Some(Duration::from_millis(200)), 5, 10, End::Whole)
    );
    assert_eq!((truth.received_at, truth.head_written_at), (heard.sent_at, Some(heard.sent_at)));
    assert_eq!(truth.finished_at, Some(heard.sent_at + Duration::from_millis(280)));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_late_delays_no_event_that_comes_after_it() {
    // The pipe holds the head, the role and half of a token: that token's write waits for the reader.
    let (mut near, far) = tokio::io::duplex(500);
    let simulator = Simulator::new(settings(&[]));
    let (served, mut tasks) = (simulator.clone(), JoinSet::new());
    tasks.spawn(async move { served.serve_stream(far).await });
    let start = steadyload::clock::now();
    near.write_all(chat(&IDS).as_bytes()).await.unwrap();
    tokio::time::sleep_until(start + Duration::from_millis(250)).await;
    near.read_to_end(&mut Vec::new()).await.unwrap();
    let truth = simulator.truth().get("r-1").unwrap();
    let stamps: Vec<_> = truth.writes.iter().map(|write| write.after.as_millis()).collect();
    assert_eq!(stamps, [250, 250, 250, 260, 280]);
}

#[tokio::test(start_paused = true)]
async fn a_factor_slows_everything_from_its_moment_on() {
    let mut settings = settings(&[]);
    settings.faults.push(FaultRule::parse("factor=1.5,after=10s").unwrap());
    let simulator = Simulator::new(settings);
    assert_eq!(millis(&ask(&simulator, &chat(&IDS)).await), [0, 200, 220, 240, 260, 280]);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(millis(&ask(&simulator, &chat(&IDS)).await), [0, 300, 330, 360, 390, 420]);
    assert_eq!(simulator.truth().get("r-1").unwrap().fault.as_deref(), Some("factor:by=1.5"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_ends_the_answer_and_the_log_says_so() {
    let simulator = Simulator::new(settings(&[("ttft", "1h")]));
    let (mut near, far) = tokio::io::duplex(4096);
    let (served, mut tasks) = (simulator.clone(), JoinSet::new());
    tasks.spawn(async move { served.serve_stream(far).await });
    let impatient = Limits { quiet: Duration::from_secs(1), ..PATIENT };
    say(&mut near, &chat(&IDS), &impatient).await;
    assert_eq!(simulator.truth().get("r-1").unwrap().end, End::Open);
    drop(near);
    tasks.join_next().await.unwrap().unwrap();
    let truth = simulator.truth().get("r-1").unwrap();
    assert_eq!((truth.end, truth.finished_at, truth.n), (End::Left, None, 0));
}

#[tokio::test(start_paused = true)]
async fn the_log_is_served_as_json_and_knows_refusals_too() {
    let simulator = Simulator::new(settings(&[("truth_capacity", "2")]));
    for id in ["a", "b"] {
        ask(&simulator, &chat(&["connection: close", &format!("x-request-id: {id}"), "x-sim-fault: status=503"])).await;
    }
    ask(&simulator, &chat(&IDS)).await;
    let log: serde_json::Value = serde_json::from_str(&ask(&simulator, &get("/admin/truth")).await.body()).unwrap();
    let requests = log["requests"].as_array().unwrap();
    assert_eq!((log["dropped"].as_u64(), requests.len()), (Some(1), 2));
    assert_eq!(
        (&requests[0]["status"], &requests[0]["fault"]),
        (&503.into(), &"status:code=503,body=auto,retry_after=none,retry_form=seconds".into())
    );
    let (received, first) =
        (requests[1]["received_ns"].as_u64().unwrap(), requests[1]["writes"][0][0].as_u64().unwrap());
    assert_eq!((first - received, &requests[1]["end"]), (200_000_000, &"whole".into()));
    let one = ask(&simulator, &get("/admin/truth?request_id=b")).await.body();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&one).unwrap()["requests"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_truth_file_has_a_line_for_each_request_when_the_gateway_stops() {
    let path = std::env::temp_dir().join(format!("steadyload-sim-truth-{}.jsonl", std::process::id()));
    let mut gateway =
        steadyload::sim::Gateway::bind(settings(&[("ttft", "1ms"), ("gap", "0")]), "127.0.0.1:0".parse().unwrap())
            .await
            .unwrap();
    gateway.write_truth(&path).unwrap();
    assert!(gateway.describe().contains("simulated gateway on http://127.0.0.1:"));
    let running = Running::run(gateway);
    for _ in 0..3 {
        let mut peer = TcpStream::connect(running.addr).await.unwrap();
        say(&mut peer, &chat(&IDS), &LOOPBACK).await;
    }
    running.stop().await;
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|line| line["n"].as_u64().unwrap()).collect::<Vec<_>>(), [5, 5, 5]);
}

#[tokio::test]
async fn on_loopback_the_log_and_the_client_agree() {
    let running = Running::start(settings(&[("ttft", "3ms"), ("gap", "2ms")])).await;
    let mut delays = Vec::new();
    for round in 0..9 {
        let id = format!("x-request-id: loop-{round}");
        let mut peer = TcpStream::connect(running.addr).await.unwrap();
        peer.set_nodelay(true).unwrap();
        let heard = say(&mut peer, &chat(&["connection: close", &id]), &LOOPBACK).await;
        let truth = running.truth.get(&format!("loop-{round}")).unwrap();
        let seen =
            heard.reads.iter().find(|(_, bytes)| bytes.windows(13).any(|part| part == b"\"delta\":{\"con")).unwrap().0;
        let first = truth.token_instants().next().unwrap().0;
        assert!(seen >= first, "no byte arrives before its stamp");
        delays.push(seen - first);
    }
    // The best of them, since a shared machine may take the processor away from either side at any time.
    assert!(delays.iter().min().unwrap() < &Duration::from_millis(1), "{delays:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_endless_answer_is_stamped_up_to_a_bound() {
    let simulator = Simulator::new(settings(&[]));
    let limits = Limits { bytes: 1 << 20, ..PATIENT };
    ask_within(&simulator, &chat(&["x-request-id: r-1", "x-sim-fault: endless"]), &limits).await;
    let truth = simulator.truth().get("r-1").unwrap();
    assert!(truth.n > 1000 && truth.writes.len() <= steadyload::sim::truth::MOST_WRITES);
}
