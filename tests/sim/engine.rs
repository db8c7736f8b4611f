//! The gateway with a modelled engine behind it, under a paused clock: what leaves and when, and what it says of the cache.

use std::time::Duration;

use steadyload::clock;
use steadyload::sim::Simulator;
use steadyload::sim::fault::rule::FaultRule;
use steadyload::sim::model::{Params, Workload};
use steadyload::sim::settings::Settings;
use steadyload::sim::truth::{End, Truth};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::peer::{ask, post, settings};

/// Steps of 10 ms, 2 ms to the queue, a thousand prompt tokens a second, and no noise.
fn engine(pairs: &[(&str, &str)]) -> Settings {
    let mut settings = settings(&[]);
    settings.use_preset("7b-rtx4090").unwrap();
    let params = Params {
        prefill_rate: 1000.0,
        step: Duration::from_millis(10),
        step_per_request: Duration::ZERO,
        step_per_kv_token: Duration::ZERO,
        request_overhead: Duration::from_millis(2),
        jitter: 0.0,
        ..settings.engine.unwrap()
    };
    settings.engine = Some(params);
    for (key, value) in pairs {
        settings.set(key, value).unwrap();
    }
    settings.check().unwrap();
    settings
}

/// A prompt of 100 tokens, 8 of them the template's.
fn request(id: &str, front: &str, rest: &str) -> String {
    request_of(5, id, front, rest)
}

fn request_of(tokens: u32, id: &str, front: &str, rest: &str) -> String {
    let text = format!("{front:x<368}");
    let body = format!(
        r#"{{"model":"sim-7b","messages":[{{"role":"user","content":"{text}"}}],"max_tokens":{tokens},"ignore_eos":true{rest}}}"#
    );
    post("/v1/chat/completions", &[&format!("x-request-id: {id}"), "connection: close"], &body)
}

const STREAM: &str = r#","stream":true,"stream_options":{"include_usage":true}"#;

fn millis(truth: &Truth) -> Vec<u128> {
    truth.writes.iter().map(|write| write.after.as_millis()).collect()
}

#[tokio::test(start_paused = true)]
async fn tokens_leave_when_the_engine_has_made_them() {
    let simulator = Simulator::new(engine(&[]));
    for (id, expected) in [("a", [112, 122, 132, 142, 152]), ("b", [112, 122, 132, 142, 152])] {
        let heard = ask(&simulator, &request(id, id, STREAM)).await;
        let truth = simulator.truth().get(id).unwrap();
        assert_eq!((millis(&truth), truth.n, truth.end), (expected.to_vec(), 5, End::Whole));
        // The head is not held back.
        assert_eq!(truth.head_written_at, Some(truth.received_at));
        assert!(heard.body().contains(r#""cached_tokens":0"#), "{}", heard.body());
    }
}

#[tokio::test(start_paused = true)]
async fn every_answer_says_how_much_of_its_prompt_was_cached() {
    let simulator = Simulator::new(engine(&[]));
    let continuous = r#","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}"#;
    let native = |rest: &str| {
        let body =
            format!(r#"{{"text":"{:y<400}","sampling_params":{{"max_new_tokens":5,"ignore_eos":true}}{rest}}}"#, "");
        post("/generate", &["connection: close"], &body)
    };
    let text = |rest: &str| {
        let body = format!(r#"{{"model":"sim-7b","prompt":"{:z<400}","max_tokens":5,"ignore_eos":true{rest}}}"#, "");
        post("/v1/completions", &["connection: close"], &body)
    };
    for (kind, first, others) in [
        ("chat", request("x", "q", STREAM), [request("x", "q", ""), request("x", "q", continuous)]),
        ("completions", text(STREAM), [text(""), text(continuous)]),
        ("generate", native(r#","stream":true"#), [native(""), native(r#","stream":true"#)]),
    ] {
        let heard = ask(&simulator, &first).await.body();
        assert!(heard.contains(r#""cached_tokens":0"#) && !heard.contains(r#""cached_tokens":9"#), "{kind}: {heard}");
        for other in others {
            let heard = ask(&simulator, &other).await.body();
            // Of 92 (chat) or 100 tokens of text, the full blocks of 16 but for the last token.
            let cached = if kind == "chat" { 80 } else { 96 };
            assert!(heard.contains(&format!(r#""cached_tokens":{cached}"#)), "{kind}: {heard}");
            assert!(!heard.contains(r#""cached_tokens":0"#), "{kind}: {heard}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_coalesced_answer_knows_the_cache_too() {
    let simulator = Simulator::new(engine(&[]));
    ask(&simulator, &request("a", "q", STREAM)).await;
    let request = request("b", "q", STREAM).replace("connection: close", "connection: close\r\nx-sim-fault: coalesced");
    let heard = ask(&simulator, &request).await;
    assert!(heard.body().contains(r#""cached_tokens":80"#), "{}", heard.body());
    assert_eq!(millis(&simulator.truth().get("b").unwrap()), [72]);
}

#[tokio::test(start_paused = true)]
async fn a_whole_answer_comes_with_its_last_token() {
    let simulator = Simulator::new(engine(&[]));
    ask(&simulator, &request("a", "a", "")).await;
    let truth = simulator.truth().get("a").unwrap();
    assert_eq!((millis(&truth), truth.n, truth.status), (vec![152], 5, 200));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_full_makes_others_wait_and_one_who_leaves_makes_room() {
    let simulator = Simulator::new(engine(&[("max_running_requests", "1")]));
    let mut tasks = JoinSet::new();
    let mut peers = Vec::new();
    let start = clock::now();
    for (id, tokens) in [("first", 100), ("second", 5), ("third", 1)] {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        let served = simulator.clone();
        tasks.spawn(async move { served.serve_stream(far).await });
        near.write_all(request_of(tokens, id, id, STREAM).as_bytes()).await.unwrap();
        peers.push(near);
    }
    tokio::time::sleep_until(start + Duration::from_millis(500)).await;
    drop(peers.remove(0));
    for peer in &mut peers {
        peer.read_to_end(&mut Vec::new()).await.unwrap();
    }
    let truth = |id| simulator.truth().get(id).unwrap();
    assert_eq!((truth("first").end, truth("first").n), (End::Left, 39));
    // The step that the first was in goes on to 502 ms; then 110 ms for the first token of the next.
    assert_eq!(millis(&truth("second")), [612, 622, 632, 642, 652]);
    assert_eq!(millis(&truth("third")), [762]);
}

#[tokio::test(start_paused = true)]
async fn a_factor_stretches_what_the_engine_does() {
    let mut settings = engine(&[]);
    settings.faults.push(FaultRule::parse("factor=2").unwrap());
    let simulator = Simulator::new(settings);
    ask(&simulator, &request("a", "a", STREAM)).await;
    assert_eq!(millis(&simulator.truth().get("a").unwrap()), [224, 244, 264, 284, 304]);
}

#[tokio::test(start_paused = true)]
async fn several_tokens_an_event_and_hidden_reasoning_take_their_time() {
    let simulator = Simulator::new(engine(&[("tokens_per_chunk", "2")]));
    ask(&simulator, &request("a", "a", STREAM)).await;
    assert_eq!(millis(&simulator.truth().get("a").unwrap()), [122, 142, 152]);
    let simulator = Simulator::new(engine(&[("reasoning_tokens", "3")]));
    ask(&simulator, &request("a", "a", STREAM)).await;
    assert_eq!(millis(&simulator.truth().get("a").unwrap()), [142, 152]);
}

#[tokio::test(start_paused = true)]
async fn refusals_and_faults_in_place_of_an_answer_cost_the_engine_nothing() {
    let simulator = Simulator::new(engine(&[("max_running_requests", "1")]));
    for id in 0..20 {
        let fault =
            request(&id.to_string(), "f", STREAM).replace("connection:", "x-sim-fault: status=503\r\nconnection:");
        assert_eq!(ask(&simulator, &fault).await.status(), 503);
    }
    ask(&simulator, &request("a", "a", STREAM)).await;
    assert_eq!(millis(&simulator.truth().get("a").unwrap()), [112, 122, 132, 142, 152]);
}

/// Requests per second that a closed loop of `workers` gets answered, over connections in memory.
async fn closed_loop(settings: Settings, workers: u32, rounds: u32) -> f64 {
    let simulator = Simulator::new(settings);
    let start = clock::now();
    let mut tasks = JoinSet::new();
    for worker in 0..workers {
        let simulator = simulator.clone();
        tasks.spawn(async move {
            tokio::time::sleep(Duration::from_millis(67) * worker).await;
            for round in 0..rounds {
                let text = format!("{worker} {round} {:x<980}", "");
                let body = format!(
                    r#"{{"model":"sim-7b","messages":[{{"role":"user","content":"{text}"}}],"max_tokens":100,"ignore_eos":true}}"#
                );
                let heard = ask(&simulator, &post("/v1/chat/completions", &["connection: close"], &body)).await;
                assert_eq!(heard.status(), 200);
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    // From when the last worker has begun to when the first may have ended.
    let all: Vec<_> = simulator.truth().all().iter().map(|truth| truth.finished_at.unwrap() - start).collect();
    let (from, to) =
        (Duration::from_millis(67) * workers + Duration::from_secs(4), all[all.len() - 2 * workers as usize]);
    let counted = u32::try_from(all.iter().filter(|at| (from..to).contains(*at)).count()).unwrap();
    f64::from(counted) / (to - from).as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn a_closed_loop_gets_what_the_parameters_say_and_its_knee_is_there() {
    let settings = || {
        let mut settings = settings(&[]);
        settings.use_preset("7b-rtx4090").unwrap();
        settings
    };
    let engine = settings().engine.unwrap();
    let workload = Workload { prompt_tokens: 256, cached_tokens: 0, output_tokens: 100 };
    let (knee, most) = (engine.knee(workload), engine.most_throughput(workload));
    let mut last = 0.0;
    for workers in [1, 4, 16, knee, 48] {
        let measured = closed_loop(settings(), workers, 20).await;
        let computed = engine.throughput(workload, workers);
        assert!((measured / computed - 1.0).abs() < 0.05, "{workers}: {measured} instead of {computed}");
        assert!(
            measured > last * 0.99 && (measured > 0.93 * most) == (workers >= knee),
            "{workers}: {measured} of {most}"
        );
        last = measured;
    }
}
