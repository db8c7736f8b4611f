//! The bytes of every fault. [`CASES`] is walked against the list of faults: a new one without a case fails here.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::time::Duration;

use steadyload::sim::Simulator;
use steadyload::sim::fault::rule::FaultRule;
use steadyload::sim::fault::{ALL, Fault};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::peer::{
    End, Heard, LOOPBACK, Limits, PATIENT, Running, ask_within, chat, chat_body, listen, post, say, settings,
};

const CLOSE: &str = "connection: close";

/// What is heard with a fault, and beside it what is heard without.
type Check = fn(&Heard, &Heard);

enum Case {
    /// The header asks for the fault, over an in-memory connection under a paused clock.
    Memory(&'static str, Check),
    /// The same over TCP, where a reset is one.
    Tcp(&'static str, Check),
    /// A connection fault, which has a test of its own below.
    Own(&'static str),
}

use Case::{Memory, Own, Tcp};

fn refused(status: u16, head: &str, body: &str, heard: &Heard) {
    assert_eq!(heard.status(), status);
    assert!(heard.head().contains(head), "{}", heard.head());
    assert!(heard.body().contains(body), "{}", heard.body());
}

/// The body of the good answer up to `count` events.
fn first(good: &Heard, count: usize) -> String {
    good.body().split_inclusive("\n\n").take(count).collect()
}

/// The good answer's event number `index`, from 0.
fn nth(good: &Heard, index: usize) -> String {
    good.body().split_inclusive("\n\n").skip(index).take(1).collect()
}

/// The good answer with `extra` after its role event and three tokens.
fn with_extra(good: &Heard, extra: &str) -> String {
    let all = good.body();
    let (before, after) = all.split_at(first(good, 4).len());
    format!("{before}{extra}{after}")
}

const ERROR: &str = r#"{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","param":null,"code":500}}"#;

fn last_usage(heard: &Heard) -> String {
    heard
        .json()
        .iter()
        .rev()
        .find_map(|event| event.get("usage"))
        .map_or_else(String::new, |usage| usage["completion_tokens"].to_string())
}

fn millis(heard: &Heard) -> Vec<u128> {
    heard.reads.iter().map(|(at, _)| (*at - heard.sent_at).as_millis()).collect()
}

const CASES: &[Case] = &[
    Memory("factor=2", |heard, good| {
        assert_eq!((heard.body(), millis(heard)), (good.body(), vec![0, 400, 440, 480, 520, 560]));
    }),
    Own("slow_accept"),
    Own("idle_close"),
    Own("stale_close"),
    Memory("status=401", |heard, _| refused(401, "application/json", r#"{"error":"Unauthorized"}"#, heard)),
    Memory("status=403", |heard, _| refused(403, "HTTP/1.1 403 Forbidden\r\n", r#""code":403}}"#, heard)),
    Memory("status=404", |heard, _| refused(404, "HTTP/1.1 404 Not Found\r\n", r#"{"detail":"Not Found"}"#, heard)),
    Memory("status=422", |heard, _| {
        refused(422, "Unprocessable", r#"{"detail":[{"type":"missing","loc":["body","messages"]"#, heard)
    }),
    Memory("status=429", |heard, _| refused(429, "retry-after: 1\r\n", r#""code":"rate_limit_exceeded""#, heard)),
    Memory("status:code=429,retry_after=30,body=empty", |heard, _| {
        refused(429, "retry-after: 30\r\n", "", heard);
        assert!(heard.head().contains("content-length: 0\r\n"));
    }),
    Memory("status=500", |heard, _| refused(500, "application/json", r#""type":"InternalServerError""#, heard)),
    Memory("status=502", |heard, _| {
        refused(
            502,
            "server: nginx/1.22.1\r\ncontent-type: text/html\r\n",
            "<center><h1>502 Bad Gateway</h1></center>\r\n",
            heard,
        );
    }),
    Memory("status=503", |heard, _| refused(503, "text/plain", "no healthy upstream", heard)),
    Memory("status:code=503,body=json", |heard, _| {
        refused(503, "application/json", r#"{"error":{"message":"Service Unavailable""#, heard)
    }),
    Memory("status:code=500,body=text", |heard, _| refused(500, "text/plain", "Internal Server Error", heard)),
    Memory("status:code=204", |heard, _| {
        assert!(heard.raw_body().is_empty() && !heard.head().contains("content-length"))
    }),
    Memory("unknown_field", |heard, _| {
        refused(422, "application/json", r#"{"detail":"Unexpected fields in the request: {'ignore_eos'}"}"#, heard);
    }),
    Memory("unknown_field:form=fastapi,field=min_tokens", |heard, _| {
        refused(422, "json", r#"{"detail":[{"type":"extra_forbidden","loc":["body","min_tokens"]"#, heard);
    }),
    Memory("unknown_field:form=openai", |heard, _| {
        refused(400, "json", "Unrecognized request argument supplied: ignore_eos", heard)
    }),
    Memory("redirect:code=301,location=http://other/v1", |heard, _| {
        refused(301, "location: http://other/v1\r\n", "", heard)
    }),
    Memory("json_error", |heard, _| {
        refused(200, "content-type: application/json\r\n", ERROR, heard);
    }),
    Memory("json_error:form=object", |heard, _| refused(200, "json", r#"{"object":"error","message":"#, heard)),
    Memory("json_error:form=text", |heard, _| refused(200, "json", r#"{"error":"EngineCore"#, heard)),
    Memory("html_page", |heard, _| refused(200, "content-type: text/html", "<!DOCTYPE html>", heard)),
    Memory("json_answer", |heard, _| refused(200, "application/json", r#""object":"chat.completion","#, heard)),
    Memory("big_json:size=300kB", |heard, _| {
        assert!(heard.head().contains("content-length: 300000\r\n"));
        let body = heard.body();
        assert_eq!(body.len(), 300_000);
        assert!(serde_json::from_str::<serde_json::Value>(&body).is_ok());
    }),
    Memory("empty_body", |heard, _| {
        refused(200, "text/event-stream", "", heard);
        assert!(heard.raw_body().is_empty() && heard.head().contains("content-length: 0\r\n"));
    }),
    Memory("no_content", |heard, _| {
        assert_eq!((heard.status(), heard.raw_body().len()), (204, 0));
        assert!(!heard.head().contains("content-length") && !heard.head().contains("chunked"));
    }),
    Memory("bad_finish", |heard, _| assert_eq!(heard.json()[4]["choices"][0]["finish_reason"], "error")),
    Memory("bad_finish:reason=abort,at=1", |heard, _| {
        assert_eq!(heard.json()[2]["choices"][0]["finish_reason"], "abort");
        assert_eq!((last_usage(heard).as_str(), heard.events().last().unwrap().as_str()), ("1", "[DONE]"));
    }),
    Memory("role_chunk=early", |heard, good| {
        assert_eq!((heard.body(), millis(heard)[..3].to_vec()), (good.body(), vec![0, 200, 220]));
        assert!(String::from_utf8_lossy(&heard.reads[0].1).contains(r#""role":"assistant""#));
    }),
    Memory("role_chunk=late", |heard, good| {
        let (late, usual) = (heard.events(), good.events());
        assert_eq!([&late[0], &late[1], &late[2]], [&usual[1], &usual[0], &usual[2]]);
    }),
    Memory("usage=missing", |heard, _| assert_eq!((last_usage(heard).as_str(), heard.events().len()), ("", 8))),
    Memory("usage=huge", |heard, _| assert_eq!(last_usage(heard), "18446744073709551615")),
    Memory("usage=negative", |heard, _| assert_eq!(last_usage(heard), "-5")),
    Memory("usage=float", |heard, _| assert_eq!(last_usage(heard), "5.5")),
    Memory("usage=absurd", |heard, _| assert!(heard.events()[7].contains(r#""completion_tokens":1e400,"#))),
    Memory("usage=strings", |heard, _| assert_eq!(last_usage(heard), r#""5""#)),
    Memory("usage=disagree", |heard, _| {
        assert_eq!((&heard.json()[6]["usage"]["completion_tokens"], last_usage(heard).as_str()), (&6.into(), "5"));
    }),
    Memory("no_done", |heard, good| {
        assert_eq!((heard.body(), heard.chunks().1), (first(good, 8), true));
    }),
    Memory("no_finish", |heard, good| {
        assert_eq!(heard.body(), good.body().replace(&nth(good, 6), ""));
        assert!(heard.body().ends_with("data: [DONE]\n\n"));
    }),
    Memory("finish_with_text", |heard, _| {
        let choice = &heard.json()[5]["choices"][0];
        assert!(choice["finish_reason"] == "length" && choice["delta"]["content"] != "");
        assert_eq!(heard.events().len(), 8);
    }),
    Memory("content_type=number", |heard, _| assert_eq!(heard.json()[1]["choices"][0]["delta"]["content"], 5)),
    Memory("content_type=parts", |heard, _| {
        assert_eq!(heard.json()[1]["choices"][0]["delta"]["content"][0]["type"], "text")
    }),
    Memory("content_type=object", |heard, _| {
        assert!(heard.json()[1]["choices"][0]["delta"]["content"]["text"].is_string())
    }),
    Memory("content_type=null", |heard, _| assert!(heard.json()[1]["choices"][0]["delta"]["content"].is_null())),
    Memory("error", |heard, good| {
        assert_eq!(heard.body(), format!("{}data: {ERROR}\n\ndata: [DONE]\n\n", first(good, 4)));
        assert_eq!((heard.chunks().1, *millis(heard).last().unwrap()), (true, 260));
    }),
    Memory("error:at=0,then=close", |heard, _| {
        assert_eq!((heard.body(), heard.chunks().1), (format!("data: {ERROR}\n\n"), true));
    }),
    Memory("error:form=event,then=close", |heard, good| {
        assert_eq!(heard.body(), format!("{}event: error\ndata: {ERROR}\n\n", first(good, 4)));
    }),
    Memory("error:form=raw,then=close", |heard, good| {
        assert_eq!(heard.body(), format!("{}{ERROR}\n\n", first(good, 4)))
    }),
    Memory("error:form=llama,then=close", |heard, good| {
        assert!(
            heard.body().starts_with(&format!(r#"{}error: {{"code":500,"#, first(good, 4)))
                && heard.body().ends_with("}\n\n")
        );
    }),
    Memory("error:form=object,at=1,then=open", |heard, good| {
        assert!(heard.body().starts_with(&format!(r#"{}data: {{"object":"error","#, first(good, 2))));
        assert_eq!((heard.end, heard.chunks().1), (End::Open, false));
    }),
    Memory("truncate", |heard, good| {
        assert_eq!((heard.body(), heard.chunks().1, heard.end), (first(good, 4), true, End::Fin));
    }),
    Memory("truncate:at=99", |heard, good| assert_eq!((heard.body(), heard.chunks().1), (first(good, 6), true))),
    Memory("stall:at=2", |heard, good| {
        assert_eq!((heard.body(), heard.chunks().1, heard.end), (first(good, 3), false, End::Open));
    }),
    Memory("stall_comments:at=2,every=15m", |heard, good| {
        assert!(heard.body().starts_with(&format!("{}: keep-alive\n\n: keep-alive\n\n", first(good, 3))));
        assert_eq!((heard.end, (heard.reads[5].0 - heard.reads[4].0).as_secs()), (End::Endless, 900));
    }),
    Memory("comments", |heard, good| assert_eq!(heard.body(), good.body().replace("\n\n", "\n\n: keep-alive\n\n"))),
    Memory("endless", |heard, good| {
        let bytes = heard.bytes();
        // The id is another gateway's, so what is compared begins after it.
        let token = nth(good, 2).split_once(r#","choices""#).unwrap().1.to_owned();
        assert!(String::from_utf8_lossy(&bytes).matches(&token).count() > 1000);
        assert_eq!((heard.end, *millis(heard).last().unwrap()), (End::Endless, 200));
    }),
    Memory("endless:of=comments", |heard, _| {
        assert!(String::from_utf8_lossy(&heard.bytes()).matches(": keep-alive\n\n").count() > 1000);
        assert_eq!(heard.end, End::Endless);
    }),
    Memory("giant_line:size=500kB", |heard, good| {
        assert_eq!(heard.body(), with_extra(good, &format!("data: {}\n\n", "a".repeat(500_000))));
    }),
    Memory("giant_line:size=70kB,form=raw,at=3", |heard, good| {
        assert_eq!(heard.body(), with_extra(good, &format!("{}\n\n", "a".repeat(70_000))));
    }),
    Memory("giant_line", |heard, _| assert_eq!(heard.end, End::Endless)),
    Memory("deep_json:depth=1000", |heard, good| {
        let nest = format!(r#"{{"choices":{}{}}}"#, "[".repeat(1000), "]".repeat(1000));
        assert_eq!(heard.body(), with_extra(good, &format!("data: {nest}\n\n")));
    }),
    Memory("nul_bytes", |heard, good| {
        let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\0\0\"}}]}\n\n";
        assert_eq!(heard.body(), with_extra(good, event));
    }),
    Memory("bad_utf8", |heard, _| {
        let body = heard.chunks().0.concat();
        assert!(String::from_utf8(body.clone()).is_err());
        assert!(body.windows(4).any(|bytes| bytes == b"\xc3\x28\xff\"") && body.ends_with(b"data: [DONE]\n\n"));
    }),
    Memory("bad_json", |heard, good| {
        assert_eq!(heard.body(), with_extra(good, "data: {\"choices\":[{\"delta\":{\"content\":\"cut\n\n"));
    }),
    Memory("non_object", |heard, good| {
        assert_eq!(heard.body(), with_extra(good, "data: 5\n\ndata: null\n\ndata: []\n\n"))
    }),
    Memory("crlf", |heard, good| assert_eq!(heard.body(), good.body().replace('\n', "\r\n"))),
    Memory("cr_only", |heard, good| assert_eq!(heard.body(), good.body().replace('\n', "\r"))),
    Memory("no_space", |heard, good| assert_eq!(heard.body(), good.body().replace("data: ", "data:"))),
    Memory("multi_line", |heard, good| {
        let joined = heard.body().replace("\ndata: \"object\"", "\"object\"");
        assert_eq!((joined, heard.body().matches("data: ").count()), (good.body(), 17));
    }),
    Memory("bom", |heard, good| assert_eq!(heard.body(), format!("\u{feff}{}", good.body()))),
    Memory("blank_lines:count=3", |heard, good| assert_eq!(heard.body(), good.body().replace("\n\n", "\n\n\n\n\n"))),
    Memory("done_unterminated", |heard, good| {
        assert_eq!(heard.body(), good.body().trim_end_matches('\n').to_owned() + "\n")
    }),
    Memory("split_utf8:pause=3ms", |heard, good| {
        assert_eq!(heard.body(), good.body());
        let cuts: Vec<_> = heard.reads.iter().filter(|(_, bytes)| std::str::from_utf8(bytes).is_err()).collect();
        assert!(cuts.len() >= 2, "no character was cut");
        assert!((cuts[1].0 - cuts[0].0) == Duration::from_millis(3));
    }),
    Memory("one_byte", |heard, good| assert_eq!(heard.body(), good.body())),
    Memory("coalesced", |heard, good| {
        assert_eq!((heard.body(), millis(heard), heard.chunks().0.len()), (good.body(), vec![280], 1));
    }),
    Memory("compressed", |heard, good| {
        assert!(heard.head().contains("content-encoding: gzip\r\n"));
        let mut body = String::new();
        let (chunks, is_whole) = heard.chunks();
        flate2::read::GzDecoder::new(chunks.concat().as_slice()).read_to_string(&mut body).unwrap();
        assert_eq!((crate::peer::timeless(&body), is_whole, millis(heard)), (good.body(), true, millis(good)));
    }),
    Memory("compressed=deflate", |heard, good| {
        assert!(heard.head().contains("content-encoding: deflate\r\n"));
        let mut body = String::new();
        flate2::read::ZlibDecoder::new(heard.chunks().0.concat().as_slice()).read_to_string(&mut body).unwrap();
        assert_eq!(crate::peer::timeless(&body), good.body());
    }),
    Memory("cut", |heard, good| {
        assert!(good.body().starts_with(&heard.body()) && heard.body().starts_with(&first(good, 4)));
        assert!(!heard.body().ends_with("\n\n"), "inside an event");
        assert_eq!((heard.chunks().1, heard.end), (false, End::Fin));
    }),
    Memory("cut:place=between", |heard, good| {
        assert_eq!((heard.body(), heard.chunks().1, heard.end), (first(good, 4), false, End::Fin));
    }),
    Tcp("reset=before_head", |heard, _| assert_eq!((heard.end, heard.reads.len()), (End::Rst, 0))),
    Tcp("reset=after_head", |heard, _| assert_eq!((heard.end, heard.raw_body().len()), (End::Rst, 0))),
    Tcp("reset", |heard, good| {
        assert_eq!((heard.end, heard.body(), heard.chunks().1), (End::Rst, first(good, 4), false))
    }),
    Memory("close", |heard, _| assert_eq!((heard.end, heard.reads.len()), (End::Fin, 0))),
    Tcp("close", |heard, _| assert_eq!((heard.end, heard.reads.len()), (End::Fin, 0))),
    Memory("close=in_head", |heard, _| {
        let text = String::from_utf8(heard.bytes()).unwrap();
        assert!(
            heard.end == End::Fin && text.starts_with("HTTP/1.1 200 OK\r\n") && !text.contains("\r\n\r\n"),
            "{text}"
        );
    }),
    Memory("silence", |heard, _| assert_eq!((heard.end, heard.status(), heard.raw_body().len()), (End::Open, 200, 0))),
    Memory("silence=withheld", |heard, _| assert_eq!((heard.end, heard.reads.len()), (End::Open, 0))),
    Memory("head_pieces:size=10,pause=2ms", |heard, good| {
        assert_eq!((heard.head(), heard.body()), (good.head(), good.body()));
        assert_eq!((heard.reads[0].1.len(), heard.reads[1].1.len(), millis(heard)[1]), (10, 10, 2));
    }),
    Memory("huge_head", |heard, good| {
        let line = format!("x-padding: {}\r\n", "a".repeat(100_000));
        assert_eq!((heard.head().replace(&line, ""), heard.body()), (good.head(), good.body()));
        assert!(heard.head().contains(&line));
    }),
    Memory("bad_status_line", |heard, good| {
        assert!(heard.bytes().starts_with(b"HTTP/one.one OK 200\r\nserver: uvicorn\r\n"));
        assert_eq!(heard.raw_body().len(), good.raw_body().len());
    }),
    Memory("short_length", |heard, good| {
        assert!(heard.head().contains("content-length: 1000000000\r\n"));
        assert_eq!((heard.body(), heard.end), (first(good, 4), End::Fin));
    }),
    Memory("close_delimited", |heard, good| {
        assert!(heard.head().starts_with("HTTP/1.0 200 OK\r\n"));
        assert!(!heard.head().contains("content-length") && !heard.head().contains("chunked"));
        assert_eq!((heard.body(), heard.end), (good.body(), End::Fin));
    }),
];

impl Case {
    const fn text(&self) -> &'static str {
        match self {
            Memory(text, _) | Tcp(text, _) | Own(text) => text,
        }
    }
}

#[test]
fn every_fault_has_a_case() {
    let tested: BTreeSet<_> = CASES.iter().map(|case| Fault::parse(case.text()).unwrap().name()).collect();
    let untested: Vec<_> = ALL.iter().map(|doc| doc.name).filter(|name| !tested.contains(name)).collect();
    assert!(untested.is_empty(), "no case for {untested:?}");
}

#[tokio::test(start_paused = true)]
async fn each_fault_has_its_bytes() {
    // The seed whose answer begins with characters of several bytes.
    let fresh = || Simulator::new(settings(&[("seed", "3")]));
    let limits = Limits { bytes: 700_000, ..PATIENT };
    let good = ask_within(&fresh(), &chat(&[CLOSE]), &limits).await;
    assert_eq!((good.events().len(), good.end), (9, End::Fin));
    for case in CASES {
        let Memory(text, check) = case else { continue };
        let limits =
            if text.starts_with("stall_comments") { Limits { bytes: 5000, ..PATIENT } } else { Limits { ..limits } };
        let heard = ask_within(&fresh(), &chat(&[CLOSE, &format!("x-sim-fault: {text}")]), &limits).await;
        let shown: String = String::from_utf8_lossy(&heard.bytes()).chars().take(3000).collect();
        eprintln!("{text}: {:?} after {:?}: {shown}", heard.end, millis(&heard).last());
        check(&heard, &good);
    }
}

#[tokio::test]
async fn each_fault_of_the_socket_has_its_end() {
    for case in CASES {
        let Tcp(text, check) = case else { continue };
        let heard = over_tcp(&[CLOSE, &format!("x-sim-fault: {text}")]).await;
        eprintln!("{text}: {:?}: {}", heard.end, String::from_utf8_lossy(&heard.bytes()));
        check(&heard, &over_tcp(&[CLOSE]).await);
    }
}

async fn over_tcp(headers: &[&str]) -> Heard {
    let running = Running::start(settings(&[("ttft", "2ms"), ("gap", "1ms")])).await;
    let mut peer = TcpStream::connect(running.addr).await.unwrap();
    let heard = say(&mut peer, &chat(headers), &LOOPBACK).await;
    running.stop().await;
    heard
}

#[tokio::test(start_paused = true)]
async fn faults_of_the_way_out_reach_whole_answers_too() {
    let body = chat_body("").replace(r#""stream":true"#, r#""stream":false"#);
    let ask = async |fault: &str| {
        let request = post("/v1/chat/completions", &[CLOSE, &format!("x-sim-fault: {fault}")], &body);
        ask_within(&Simulator::new(settings(&[])), &request, &PATIENT).await
    };
    let good = ask("factor=1").await;
    let cut = ask("cut").await;
    assert!(cut.end == End::Fin && cut.raw_body().len() < good.raw_body().len() && !cut.raw_body().is_empty());
    assert_eq!(ask("one_byte").await.body(), good.body());
    assert_eq!(ask("coalesced").await.body(), good.body());
    assert_eq!(ask("silence").await.end, End::Open);
    assert_eq!(ask("no_done").await.body(), good.body(), "there is no event to leave out");
}

async fn connect(rule: &str) -> (Running, TcpStream) {
    let mut settings = settings(&[("ttft", "1ms"), ("gap", "0")]);
    settings.faults.push(FaultRule::parse(rule).unwrap());
    let running = Running::start(settings).await;
    let peer = TcpStream::connect(running.addr).await.unwrap();
    (running, peer)
}

/// Reads one whole answer and leaves the connection as it is.
async fn hear_one(peer: &mut TcpStream) -> usize {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"data: [DONE]\n\n\r\n0\r\n\r\n") {
        assert!(peer.read_buf(&mut bytes).await.unwrap() > 0);
    }
    bytes.len()
}

#[tokio::test]
async fn a_slow_accept_delays_the_first_request_of_a_connection() {
    let (running, mut peer) = connect("slow_accept=20ms").await;
    let start = steadyload::clock::now();
    tokio::io::AsyncWriteExt::write_all(&mut peer, chat(&[]).as_bytes()).await.unwrap();
    assert!(hear_one(&mut peer).await > 0);
    assert!(start.elapsed() >= Duration::from_millis(19));
    running.stop().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_time() {
    let (running, mut peer) = connect("idle_close=5ms").await;
    tokio::io::AsyncWriteExt::write_all(&mut peer, chat(&[]).as_bytes()).await.unwrap();
    assert!(hear_one(&mut peer).await > 0);
    let heard = listen(&mut peer, &LOOPBACK).await;
    assert_eq!((heard.end, heard.reads.len()), (End::Fin, 0));
    running.stop().await;
}

#[tokio::test]
async fn a_stale_connection_ends_as_the_next_request_arrives() {
    for (rule, end) in [("stale_close", End::Fin), ("stale_close=rst", End::Rst)] {
        let (running, mut peer) = connect(rule).await;
        tokio::io::AsyncWriteExt::write_all(&mut peer, chat(&[]).as_bytes()).await.unwrap();
        assert!(hear_one(&mut peer).await > 0);
        let heard = say(&mut peer, &chat(&[]), &LOOPBACK).await;
        assert_eq!((heard.end, heard.reads.len()), (end, 0));
        assert_eq!(running.truth.all().len(), 1, "the second request was never read");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn keep_alive_closes_a_kept_connection_but_not_a_new_one() {
    let simulator = Simulator::new(settings(&[("keep_alive", "5s")]));
    let heard = ask_within(&simulator, &chat(&[]), &PATIENT).await;
    assert_eq!(heard.end, End::Fin);
    let quiet = ask_within(&simulator, "", &PATIENT).await;
    assert_eq!(quiet.end, End::Open);
}
