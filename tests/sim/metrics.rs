//! `/metrics`, judged against the truth log and by Prometheus' own tool.

use std::time::Duration;

use steadyload::sim::Simulator;
use steadyload::sim::fault::ALL;
use steadyload::sim::truth::{End, Truth};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

use crate::peer::{Limits, PATIENT, ask, ask_within, chat, chat_body, get, post, say, settings};
use crate::promtool::promtool;

const CLOSE: &str = "connection: close";

/// A page of metrics.
struct Page(String);

impl Page {
    async fn of(simulator: &Simulator) -> Self {
        let heard = ask(simulator, &get("/metrics")).await;
        assert!(
            heard.head().contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"),
            "{}",
            heard.head()
        );
        Self(heard.body())
    }

    /// The values of all series of this name that have all these labels.
    fn values(&self, name: &str, labels: &[&str]) -> Vec<&str> {
        let series = self.0.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let rest = series.strip_prefix(name)?;
            (rest.starts_with('{') && labels.iter().all(|label| rest.contains(label))).then_some(value)
        });
        let values: Vec<_> = series.collect();
        assert!(!values.is_empty(), "no {name} with {labels:?} in\n{}", self.0);
        values
    }

    /// Their sum, which is a whole number.
    fn count(&self, name: &str, labels: &[&str]) -> u64 {
        let whole = |value: &str| value.strip_suffix(".0").unwrap().parse::<u64>().unwrap();
        self.values(name, labels).into_iter().map(whole).sum()
    }

    /// The sum of a histogram of times.
    fn time(&self, name: &str) -> Duration {
        let secs: Vec<f64> = self.values(name, &[]).into_iter().map(|value| value.parse().unwrap()).collect();
        Duration::try_from_secs_f64(secs.iter().sum()).unwrap()
    }

    fn finished(&self, reason: &str) -> u64 {
        self.count("vllm:request_success_total", &[&format!(r#"finished_reason="{reason}""#)])
    }
}

/// Ten requests of every kind that ends well, and one that is refused.
async fn traffic(simulator: &Simulator) {
    let whole = chat_body("").replace(r#""stream":true"#, r#""stream":false"#);
    let natural = r#"{"prompt":"hello you","max_tokens":50,"stream":true}"#;
    let native = r#"{"text":"hello","sampling_params":{"max_new_tokens":4,"ignore_eos":true},"stream":true}"#;
    for _ in 0..3 {
        for request in
            [chat(&[CLOSE]), post("/v1/chat/completions", &[CLOSE], &whole), post("/generate", &[CLOSE], native)]
        {
            assert_eq!(ask(simulator, &request).await.status(), 200);
        }
    }
    assert_eq!(ask(simulator, &post("/v1/completions", &[CLOSE], natural)).await.status(), 200);
    assert_eq!(ask(simulator, &post("/v1/completions", &[CLOSE], "{}")).await.status(), 400);
}

#[tokio::test(start_paused = true)]
async fn the_counters_are_the_truth() {
    let simulator = Simulator::new(settings(&[("natural_tokens", "7"), ("cached_tokens", "1")]));
    traffic(&simulator).await;
    let truths = simulator.truth().all();
    let page = Page::of(&simulator).await;
    let answered: Vec<_> = truths.iter().filter(|truth| truth.status == 200).collect();
    let sum = |of: fn(&Truth) -> u64| answered.iter().map(|truth| of(truth)).sum::<u64>();
    assert_eq!((answered.len(), truths.len()), (10, 11));
    assert_eq!((page.finished("length"), page.finished("stop")), (9, 1));
    assert_eq!((page.finished("abort"), page.finished("error")), (0, 0));
    assert_eq!(page.count("sim:requests_refused_total", &[]), 1);
    assert_eq!(page.count("vllm:generation_tokens_total", &[]), sum(|truth| truth.n));
    assert_eq!(page.count("sim:streams_written_tokens_total", &[]), sum(|truth| truth.n));
    assert_eq!(page.count("vllm:prompt_tokens_total", &[]), sum(|truth| u64::from(truth.prompt_tokens)));
    assert_eq!(page.count("vllm:prefix_cache_hits_total", &[]), 10);
    for name in ["time_to_first_token", "e2e_request_latency", "request_time_per_output_token", "request_queue_time"] {
        assert_eq!(page.count(&format!("vllm:{name}_seconds_count"), &[]), 10, "{name}");
    }
    let writes: usize = answered.iter().map(|truth| truth.writes.len()).sum();
    assert_eq!(page.count("vllm:inter_token_latency_seconds_count", &[]) + 10, u64::try_from(writes).unwrap());
    let ttft: Duration = answered.iter().map(|truth| truth.ttft().unwrap()).sum();
    assert_eq!(page.time("vllm:time_to_first_token_seconds_sum"), ttft);
    // Under simulated time every event leaves at its moment: role, tokens, the end, usage and [DONE] have one.
    assert_eq!(page.time("sim:event_lag_seconds_sum"), Duration::ZERO);
    let events = 3 * (1 + 5 + 3) + 3 + 3 * (4 + 1) + (7 + 2);
    assert_eq!(page.count("sim:event_lag_seconds_count", &[]), events);
}

#[tokio::test(start_paused = true)]
async fn hidden_reasoning_is_generated_but_not_written() {
    let simulator = Simulator::new(settings(&[("reasoning_tokens", "2")]));
    let whole = chat_body("").replace(r#""stream":true"#, r#""stream":false"#);
    for request in [chat(&[CLOSE]), post("/v1/chat/completions", &[CLOSE], &whole)] {
        ask(&simulator, &request).await;
    }
    let page = Page::of(&simulator).await;
    assert_eq!(simulator.truth().all().iter().map(|truth| truth.n).collect::<Vec<_>>(), [3, 3]);
    assert_eq!(page.count("sim:streams_written_tokens_total", &[]), 6);
    assert_eq!(page.count("vllm:generation_tokens_total", &[]), 10);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_running_until_then_and_aborted_after() {
    let simulator = Simulator::new(settings(&[]));
    let (mut near, far) = tokio::io::duplex(1 << 20);
    let (served, mut tasks) = (simulator.clone(), JoinSet::new());
    tasks.spawn(async move { served.serve_stream(far).await });
    near.write_all(chat(&[CLOSE]).as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(230)).await;
    let page = Page::of(&simulator).await;
    assert_eq!((page.count("vllm:num_requests_running", &[]), page.count("sim:requests_open", &[])), (1, 1));
    assert_eq!((page.count("vllm:generation_tokens_total", &[]), page.finished("abort")), (2, 0));
    drop(near);
    tasks.join_next().await.unwrap().unwrap();
    let page = Page::of(&simulator).await;
    assert_eq!((page.count("vllm:num_requests_running", &[]), page.finished("abort")), (0, 1));
    assert_eq!(page.count("vllm:e2e_request_latency_seconds_count", &[]), 0);
    assert_eq!(page.count("vllm:time_to_first_token_seconds_count", &[]), 1);
}

/// Whatever goes wrong, each request is counted once, and none stays open.
#[tokio::test(start_paused = true)]
async fn every_fault_is_counted_once() {
    let brief = Limits { quiet: Duration::from_secs(60), bytes: 1 << 18 };
    for doc in ALL {
        let simulator = Simulator::new(settings(&[]));
        let heard = ask_within(&simulator, &chat(&[CLOSE, &format!("x-sim-fault: {}", doc.name)]), &brief).await;
        let page = Page::of(&simulator).await;
        let truths = simulator.truth().all();
        let count = ["stop", "length", "abort", "error"].map(|reason| page.finished(reason));
        let wanted = match truths.first() {
            None => [0, 0, 0, 0],
            Some(truth) if truth.end == End::Left => [0, 0, 1, 0],
            Some(truth) if truth.end == End::Cut || truth.n < 5 => [0, 0, 0, 1],
            Some(_) => [0, 1, 0, 0],
        };
        if truths.is_empty() {
            assert!(heard.body().contains("acts before a request is read"), "{}", doc.name);
        }
        assert_eq!((count, page.count("sim:requests_open", &[])), (wanted, 0), "{}", doc.name);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_cut_by_its_own_finish_reason_is_counted_as_that() {
    let simulator = Simulator::new(settings(&[]));
    for reason in ["error", "abort"] {
        ask(&simulator, &chat(&[CLOSE, &format!("x-sim-fault: bad_finish={reason}")])).await;
    }
    let page = Page::of(&simulator).await;
    assert_eq!((page.finished("error"), page.finished("abort"), page.finished("length")), (1, 1, 0));
}

/// A reader that is late makes events late, and the lag says so.
#[tokio::test(start_paused = true)]
async fn lag_is_the_write_minus_its_moment() {
    let simulator = Simulator::new(settings(&[]));
    let (mut near, far) = tokio::io::duplex(500);
    let (served, mut tasks) = (simulator.clone(), JoinSet::new());
    tasks.spawn(async move { served.serve_stream(far).await });
    near.write_all(chat(&[CLOSE]).as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(250)).await;
    say(&mut near, "", &PATIENT).await;
    let page = Page::of(&simulator).await;
    // Due at 220 and 240 ms and written at 250: the first token had begun at its moment.
    assert_eq!(page.time("sim:event_lag_seconds_sum"), Duration::from_millis(40));
    assert_eq!(page.count("sim:event_lag_seconds_bucket", &[r#"le="0.01""#]), 8);
}

#[tokio::test(start_paused = true)]
async fn promtool_can_read_both_servers() {
    for kind in ["vllm", "sglang"] {
        let simulator = Simulator::new(settings(&[("server", kind), ("natural_tokens", "7")]));
        traffic(&simulator).await;
        let page = Page::of(&simulator).await;
        let (code, said) = promtool(&["check", "metrics"], &page.0);
        // 3 is its opinion of names, and these are the servers' own; 1 would be text that it cannot read.
        assert_eq!(code, Some(3), "{said}");
        let of_names = ["metric names should not contain ':'", "metric name should not include type 'histogram'"];
        let others = said.lines().filter(|line| !of_names.iter().any(|opinion| line.contains(opinion)));
        let others: Vec<_> = others.collect();
        assert!(others.is_empty(), "{others:?}");
    }
    let (code, said) = promtool(&["check", "metrics"], "vllm:x{a=\"b} 1\n");
    assert_eq!(code, Some(1), "it does look: {said}");
}
