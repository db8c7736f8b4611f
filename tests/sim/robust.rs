//! Bad requests, many requests, and the administrator.

use std::time::Duration;

use steadyload::sim::Simulator;
use steadyload::sim::fault::ALL;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::peer::{End, Limits, PATIENT, Running, ask, ask_within, chat, chat_body, get, post, say, settings};

const CLOSE: &str = "connection: close";

#[tokio::test(start_paused = true)]
async fn bad_requests_get_an_error_and_no_panic() {
    let simulator = Simulator::new(settings(&[]));
    for (body, status) in
        [("", 400), ("{", 400), ("[]", 400), ("null", 400), ("{}", 400), ("\u{0}", 400), (r#"{"messages":[5]}"#, 400)]
    {
        for path in ["/v1/chat/completions", "/v1/completions", "/generate"] {
            let heard = ask(&simulator, &post(path, &[CLOSE], body)).await;
            assert_eq!(heard.status(), status, "{path} {body}");
            assert!(heard.body().starts_with(r#"{"error":{"message":"#), "{}", heard.body());
        }
    }
    for bytes in ["GET\r\n\r\n", "nonsense\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"] {
        let heard = ask(&simulator, bytes).await;
        assert_eq!(heard.end, End::Fin, "{bytes:?}");
    }
    assert_eq!(ask(&simulator, &get("/health")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn every_fault_meets_every_kind_of_request_and_the_gateway_goes_on() {
    let simulator =
        Simulator::new(settings(&[("reasoning_tokens", "2"), ("split_chars", "2"), ("usage", "continuous")]));
    let limits = Limits { bytes: 100_000, ..PATIENT };
    let texts = ALL.iter().flat_map(|doc| {
        let at = doc.params.iter().any(|param| param.key == "at");
        [
            Some(doc.name.to_owned()),
            at.then(|| format!("{}:at=0", doc.name)),
            at.then(|| format!("{}:at=4000000000", doc.name)),
        ]
    });
    for text in texts.flatten() {
        for stream in ["true", "false"] {
            for (path, rest) in [
                ("/v1/chat/completions", r#""messages":[{"role":"user","content":"hello"}],"max_tokens":4"#),
                ("/v1/completions", r#""prompt":"hello","max_tokens":1"#),
                ("/generate", r#""text":"hello","sampling_params":{"max_new_tokens":3}"#),
                ("/generate", r#""nothing":"that can be answered""#),
            ] {
                let request =
                    post(path, &[CLOSE, &format!("x-sim-fault: {text}")], &format!(r#"{{"stream":{stream},{rest}}}"#));
                ask_within(&simulator, &request, &limits).await;
            }
        }
    }
    assert_eq!(ask(&simulator, &get("/health")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn requests_may_come_in_chunks_or_wait_for_leave_to_send_their_body() {
    let simulator = Simulator::new(settings(&[]));
    let body = chat_body("");
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n";
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    assert_eq!(ask(&simulator, &chunked).await.events().len(), 9);

    let (mut near, far) = tokio::io::duplex(1 << 20);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { simulator.serve_stream(far).await });
    let asking = format!("{head}expect: 100-continue\r\ncontent-length: {}\r\n\r\n", body.len());
    near.write_all(asking.as_bytes()).await.unwrap();
    let mut leave = vec![0; 25];
    near.read_exact(&mut leave).await.unwrap();
    assert_eq!(leave, b"HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(say(&mut near, &body, &PATIENT).await.events().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_byte_by_byte_is_received_with_its_last_one() {
    let simulator = Simulator::new(settings(&[]));
    let (mut near, far) = tokio::io::duplex(1 << 20);
    let (served, mut tasks) = (simulator.clone(), JoinSet::new());
    tasks.spawn(async move { served.serve_stream(far).await });
    for byte in chat(&["x-request-id: slow"]).as_bytes() {
        tokio::time::advance(Duration::from_millis(1)).await;
        near.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let sent_at = steadyload::clock::now();
    let heard = say(&mut near, "", &PATIENT).await;
    let truth = simulator.truth().get("slow").unwrap();
    assert_eq!((truth.received_at, (heard.reads[1].0 - sent_at).as_millis()), (sent_at, 200));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_fault_in_the_header_is_refused_with_the_list() {
    let simulator = Simulator::new(settings(&[]));
    let heard = ask(&simulator, &chat(&[CLOSE, "x-sim-fault: stal"])).await;
    assert!(
        heard.status() == 400 && heard.body().contains("no fault is called `stal`; there are factor, "),
        "{}",
        heard.body()
    );
    let heard = ask(&simulator, &chat(&[CLOSE, "x-sim-fault: slow_accept"])).await;
    assert!(heard.body().contains("acts before a request is read"), "{}", heard.body());
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_without_being_kept() {
    let running = Running::start(settings(&[])).await;
    let peer = TcpStream::connect(running.addr).await.unwrap();
    let (mut read, mut write) = peer.into_split();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let head = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: sim\r\ncontent-length: {}\r\n\r\n", 100 << 20);
        // The gateway stops reading and closes: that this write fails is its right.
        if write.write_all(head.as_bytes()).await.is_ok() {
            while write.write_all(&[b'a'; 65_536]).await.is_ok() {}
        }
    });
    let mut answer = vec![0; 12];
    read.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 413");
    drop(read);
    tasks.shutdown().await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rules_are_put_listed_and_deleted_while_it_runs() {
    let mut start = settings(&[]);
    start.faults.push(steadyload::sim::fault::rule::FaultRule::parse("status=500").unwrap());
    let simulator = Simulator::new(start);
    let put = |body: &str| post("/admin/faults", &[CLOSE], body).replacen("POST", "PUT", 1);
    let status = async || ask(&simulator, &chat(&[CLOSE])).await.status();
    assert_eq!(status().await, 500);
    let rule = r#"{"fault":"status:code=503,retry_after=7","share":1,"after":"2s","for":"1h","times":2}"#;
    let listed: serde_json::Value = serde_json::from_str(&ask(&simulator, &put(rule)).await.body()).unwrap();
    assert_eq!(listed[0]["fault"], "status:code=503,body=auto,retry_after=7,retry_form=seconds");
    assert_eq!(
        (&listed[0]["after"], &listed[0]["times"], &listed[1]["origin"]),
        (&"2s".into(), &2.into(), &"start".into())
    );
    assert_eq!(status().await, 500, "not before its moment");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!([status().await, status().await, status().await], [503, 503, 500], "twice");
    let by_header = ask(&simulator, &chat(&[CLOSE, "x-sim-fault: status=418"])).await;
    assert_eq!(by_header.status(), 418, "the header beats the rules");
    for bad in ["", "5", r#"{"fault":"nope"}"#, r#"{"fault":"crlf","shares":1}"#, r#"{"fault":"crlf","share":2}"#] {
        assert_eq!(ask(&simulator, &put(bad)).await.status(), 400, "{bad}");
    }
    let listed = ask(&simulator, &get("/admin/faults").replacen("GET", "DELETE", 1)).await.body();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&listed).unwrap().as_array().unwrap().len(), 1);
    let listed = ask(&simulator, &put(r#"[{"fault":"crlf"},{"fault":"factor=2"}]"#)).await.body();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&listed).unwrap().as_array().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn two_thousand_streams_run_side_by_side() {
    let simulator = Simulator::new(settings(&[]));
    let mut tasks = JoinSet::new();
    for index in 0..2000 {
        let simulator = simulator.clone();
        tasks.spawn(async move {
            let heard = ask(&simulator, &chat(&[CLOSE, &format!("x-request-id: many-{index}")])).await;
            heard.body().ends_with("data: [DONE]\n\n")
        });
    }
    let whole = tasks.join_all().await.into_iter().filter(|whole| *whole).count();
    assert_eq!((whole, simulator.truth().all().len()), (2000, 2000));
    assert!(simulator.truth().all().iter().all(|truth| truth.ttft() == Some(Duration::from_millis(200))));
}
