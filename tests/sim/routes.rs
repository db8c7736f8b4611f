//! What each route answers when nothing goes wrong.

use serde_json::Value as Json;
use steadyload::sim::Simulator;

use crate::peer::{Heard, ask, chat, chat_body, get, post, settings, timeless};

const CLOSE: &str = "connection: close";

async fn ask_with(pairs: &[(&str, &str)], request: &str) -> Heard {
    ask(&Simulator::new(settings(pairs)), request).await
}

async fn json_of(pairs: &[(&str, &str)], request: &str) -> Json {
    serde_json::from_str(&ask_with(pairs, request).await.body()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_chat_stream_has_the_bytes_of_vllm() {
    let heard = ask_with(&[("text", "ascii")], &chat(&[CLOSE])).await;
    assert_eq!(
        heard.head(),
        "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    );
    let events = heard.events();
    let open = events[0].split(r#","choices""#).next().unwrap().to_owned();
    assert!(open.starts_with(r#"{"id":"chatcmpl-"#), "{open}");
    assert!(open.ends_with(r#""object":"chat.completion.chunk","created":0,"model":"sim-model""#), "{open}");
    assert_eq!(
        events[0],
        format!(
            r#"{open},"choices":[{{"index":0,"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}],"prompt_token_ids":null,"prompt_text":null}}"#
        )
    );
    let word = heard.json()[1]["choices"][0]["delta"]["content"].to_string();
    assert_eq!(
        events[1],
        format!(
            r#"{open},"choices":[{{"index":0,"delta":{{"content":{word}}},"logprobs":null,"finish_reason":null,"token_ids":null}}]}}"#
        )
    );
    assert_eq!(
        events[6],
        format!(
            r#"{open},"choices":[{{"index":0,"delta":{{"content":""}},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}}]}}"#
        )
    );
    assert!(events[7].starts_with(&format!(
        r#"{open},"choices":[],"usage":{{"prompt_tokens":10,"total_tokens":15,"completion_tokens":5,"#
    )));
    assert_eq!((events.len(), events[8].as_str()), (9, "[DONE]"));
    let (chunks, is_whole) = heard.chunks();
    assert!(is_whole && chunks.len() == 9, "each event is a chunk of its own");
}

#[tokio::test(start_paused = true)]
async fn a_completion_stream_has_the_bytes_of_vllm() {
    let body = r#"{"model":"sim-model","prompt":"hello you","max_tokens":2,"stream":true}"#;
    let heard = ask_with(&[], &post("/v1/completions", &[CLOSE], body)).await;
    let events = heard.json();
    assert_eq!(heard.events().len(), 4, "two tokens, the end, [DONE]");
    assert!(heard.events()[0].contains(r#""object":"text_completion","created":0,"#));
    assert!(events[0]["choices"][0]["text"].as_str().is_some_and(|text| !text.is_empty()));
    assert!(heard.events()[0].contains(
        r#","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}"#
    ));
    assert_eq!(
        (&events[2]["choices"][0]["text"], &events[2]["choices"][0]["finish_reason"]),
        (&"".into(), &"length".into())
    );
}

fn generate(rest: &str) -> String {
    let body = format!(r#"{{"text":"hello","sampling_params":{{"max_new_tokens":3,"ignore_eos":true}}{rest}}}"#);
    post("/generate", &[CLOSE], &body)
}

#[tokio::test(start_paused = true)]
async fn sglangs_events_repeat_all_text_so_far() {
    let heard = ask_with(&[("cached_tokens", "1")], &generate(r#","stream":true"#)).await;
    let events = heard.json();
    assert_eq!((events.len(), heard.events().last().map(String::as_str)), (3, Some("[DONE]")));
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["output_ids"].as_array().unwrap().len(), index + 1);
        assert_eq!(event["meta_info"]["completion_tokens"], index + 1);
        assert_eq!(
            (&event["meta_info"]["prompt_tokens"], &event["meta_info"]["cached_tokens"]),
            (&2.into(), &1.into())
        );
    }
    let texts: Vec<_> = events.iter().map(|event| event["text"].as_str().unwrap()).collect();
    assert!(texts[1].starts_with(texts[0]) && texts[2].starts_with(texts[1]) && texts[2].len() > texts[0].len());
    assert!(events[1]["meta_info"]["finish_reason"].is_null());
    assert_eq!(events[2]["meta_info"]["finish_reason"].to_string(), r#"{"type":"length","length":3}"#);
}

#[tokio::test(start_paused = true)]
async fn sglangs_events_carry_only_what_is_new_when_told_so() {
    let heard = ask_with(&[("stream_output", "true")], &generate(r#","stream":true"#)).await;
    let ids: Vec<_> = heard.json().iter().map(|event| event["output_ids"].to_string()).collect();
    assert_eq!(ids, ["[1000]", "[1001]", "[1002]"]);
    let whole = json_of(&[], &generate("")).await;
    let parts: String = heard.json().iter().map(|event| event["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(whole["text"], parts.as_str());
    assert_eq!(whole["meta_info"]["finish_reason"]["type"], "length");
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_stream_is_one_json_with_the_same_text() {
    let request =
        post("/v1/chat/completions", &[CLOSE], &chat_body("").replace(r#""stream":true"#, r#""stream":false"#));
    let heard = ask_with(&[], &request).await;
    let answer: Json = serde_json::from_str(&heard.body()).unwrap();
    assert!(heard.head().contains("content-type: application/json\r\ncontent-length: "), "{}", heard.head());
    assert_eq!((&answer["object"], &answer["usage"]["completion_tokens"]), (&"chat.completion".into(), &5.into()));
    let stream = ask_with(&[], &chat(&[CLOSE])).await;
    assert_eq!(answer["choices"][0]["message"]["content"], stream.text().as_str());
    let body = r#"{"prompt":[1,2,3],"max_tokens":2}"#;
    let answer = json_of(&[], &post("/v1/completions", &[CLOSE], body)).await;
    assert_eq!((&answer["object"], &answer["usage"]["prompt_tokens"]), (&"text_completion".into(), &3.into()));
}

#[tokio::test(start_paused = true)]
async fn models_and_health_answer_and_other_paths_do_not() {
    let models = json_of(&[("max_model_len", "2048")], &get("/v1/models")).await;
    assert_eq!((&models["data"][0]["id"], &models["data"][0]["max_model_len"]), (&"sim-model".into(), &2048.into()));
    let health = ask_with(&[], &get("/health")).await;
    assert_eq!((health.status(), health.raw_body().len()), (200, 0));
    assert!(health.head().contains("content-length: 0\r\n"));
    let missing = ask_with(&[], &get("/v1/nope")).await;
    assert_eq!((missing.status(), missing.body().as_str()), (404, r#"{"detail":"Not Found"}"#));
    let wrong = ask_with(&[], &get("/v1/chat/completions")).await;
    assert_eq!((wrong.status(), wrong.body().as_str()), (405, r#"{"detail":"Method Not Allowed"}"#));
    let head = ask_with(&[], &get("/v1/models").replace("GET", "HEAD")).await;
    assert!(head.raw_body().is_empty() && !head.head().contains("content-length: 0\r\n"));
}

#[tokio::test(start_paused = true)]
async fn a_prefix_hides_every_other_path() {
    let prefix = [("prefix", "/api/llm")];
    assert_eq!(ask_with(&prefix, &get("/api/llm/v1/models")).await.status(), 200);
    for path in ["/v1/models", "/health", "/api/v1/models", "/api/llm//v1/models", "/api/llm/models"] {
        assert_eq!(ask_with(&prefix, &get(path)).await.status(), 404, "{path}");
    }
    assert_eq!(ask_with(&prefix, &get("/admin/truth")).await.status(), 200);
    let sdk = [("sdk_paths", "true")];
    assert_eq!(ask_with(&sdk, &post("/chat/completions", &[CLOSE], &chat_body(""))).await.status(), 200);
    assert_eq!(ask_with(&[], &post("/chat/completions", &[CLOSE], &chat_body(""))).await.status(), 404);
}

#[tokio::test(start_paused = true)]
async fn a_missing_or_wrong_key_is_refused_like_vllm_does() {
    let key = [("api_key", "sk-right")];
    for headers in [&[CLOSE][..], &[CLOSE, "authorization: Bearer sk-wrong"], &[CLOSE, "authorization: sk-right"]] {
        let heard = ask_with(&key, &chat(headers)).await;
        assert_eq!((heard.status(), heard.body().as_str()), (401, r#"{"error":"Unauthorized"}"#));
    }
    assert_eq!(ask_with(&key, &chat(&[CLOSE, "authorization: Bearer sk-right"])).await.status(), 200);
    assert_eq!(ask_with(&key, &get("/v1/models")).await.status(), 401);
    assert_eq!(ask_with(&key, &get("/health")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn usage_comes_as_asked_or_as_set() {
    let usages = async |pairs: &[(&str, &str)], rest: &str| -> Vec<String> {
        let body = chat_body("").replace(r#","stream_options":{"include_usage":true}"#, rest);
        let heard = ask_with(pairs, &post("/v1/chat/completions", &[CLOSE], &body)).await;
        let count = |event: &Json| {
            event
                .get("usage")
                .map(|usage| format!("{}:{}", event["choices"].as_array().unwrap().len(), usage["completion_tokens"]))
        };
        heard.json().iter().filter_map(count).collect()
    };
    let asked = r#","stream_options":{"include_usage":true}"#;
    let both = r#","stream_options":{"include_usage":true,"continuous_usage_stats":true}"#;
    let growing = ["1:0", "1:1", "1:2", "1:3", "1:4", "1:5", "1:5", "0:5"];
    assert!(usages(&[], "").await.is_empty());
    assert_eq!(usages(&[], asked).await, ["0:5"]);
    assert_eq!(usages(&[], both).await, growing);
    assert_eq!(usages(&[("usage", "continuous")], "").await, growing);
    assert_eq!(usages(&[("usage", "final_with_choices")], "").await, ["1:5"]);
    assert!(usages(&[("usage", "none")], both).await.is_empty());
    assert_eq!(usages(&[("usage_null", "true")], asked).await.last().unwrap(), "0:5");
}

#[tokio::test(start_paused = true)]
async fn reasoning_is_shown_or_only_counted() {
    let shown = [("reasoning_tokens", "2"), ("reasoning", "shown"), ("reasoning_field", "reasoning")];
    let heard = ask_with(&shown, &chat(&[CLOSE])).await;
    let fields: Vec<_> = heard.json()[1..6]
        .iter()
        .map(|event| event["choices"][0]["delta"].as_object().unwrap().keys().next().unwrap().clone())
        .collect();
    assert_eq!(fields, ["reasoning", "reasoning", "content", "content", "content"]);
    assert_eq!(heard.json()[7]["usage"]["completion_tokens_details"]["reasoning_tokens"], 2);

    let heard = ask_with(&[("reasoning_tokens", "2")], &chat(&[CLOSE])).await;
    assert_eq!(heard.json().len(), 6, "role, three tokens, the end, usage");
    let usage = &heard.json()[5]["usage"];
    assert_eq!(
        (&usage["completion_tokens"], &usage["completion_tokens_details"]["reasoning_tokens"]),
        (&5.into(), &2.into())
    );
    let first = heard.reads.iter().find(|(_, bytes)| bytes.windows(9).any(|nine| nine == b"assistant")).unwrap().0;
    assert_eq!((first - heard.sent_at).as_millis(), 240, "two hidden tokens take two gaps");
}

#[tokio::test(start_paused = true)]
async fn several_tokens_may_share_an_event_and_split_characters_have_none_of_the_text() {
    let heard = ask_with(&[("tokens_per_chunk", "2"), ("usage", "continuous")], &chat(&[CLOSE])).await;
    let counts: Vec<_> =
        heard.json().iter().map(|event| event["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert_eq!(counts, [0, 2, 4, 5, 5, 5]);
    let plain = ask_with(&[], &chat(&[CLOSE])).await;
    assert_eq!(heard.text(), plain.text());
    let split = ask_with(&[("split_chars", "2")], &chat(&[CLOSE])).await;
    let is_empty: Vec<_> =
        split.json()[1..6].iter().map(|event| event["choices"][0]["delta"]["content"] == "").collect();
    assert_eq!((is_empty, split.text()), (vec![false, true, false, true, false], plain.text()));
    let last = ask_with(&[("split_chars", "5")], &chat(&[CLOSE])).await;
    assert_eq!(last.text(), plain.text(), "the last token has no next one that could carry its text");
}

#[tokio::test(start_paused = true)]
async fn the_model_ends_by_itself_unless_told_not_to() {
    let body = chat_body("").replace(r#","ignore_eos":true"#, "").replace(r#""max_tokens":5"#, r#""max_tokens":50"#);
    let heard = ask_with(&[("natural_tokens", "3")], &post("/v1/chat/completions", &[CLOSE], &body)).await;
    let events = heard.json();
    assert_eq!((events.len(), &events[4]["choices"][0]["finish_reason"]), (6, &"stop".into()));
}

#[tokio::test(start_paused = true)]
async fn the_seed_decides_text_ids_and_drawn_times() {
    let pairs = [("seed", "7"), ("ttft", "lognormal:200ms,0.5"), ("gap", "lognormal:20ms,0.3"), ("text", "mixed")];
    let run = async |pairs: &[(&str, &str)]| {
        let heard = ask_with(pairs, &chat(&[CLOSE])).await;
        let times: Vec<_> = heard.reads.iter().map(|(at, _)| (*at - heard.sent_at).as_millis()).collect();
        (heard.body(), times)
    };
    let first = run(&pairs).await;
    assert_eq!(first, run(&pairs).await);
    let other = run(&[("seed", "8"), pairs[1], pairs[2], pairs[3]]).await;
    assert!(first.0 != other.0 && first.1 != other.1);
    assert!(first.1.windows(2).all(|pair| pair[0] <= pair[1]));
}

#[tokio::test(start_paused = true)]
async fn requests_follow_one_another_on_a_connection_even_when_sent_ahead() {
    let simulator = Simulator::new(settings(&[]));
    let health = get("/health").replace("connection: close\r\n", "").repeat(500);
    let all = format!("{}{}{health}{}", chat(&[]), chat(&[]), get("/health"));
    let heard = ask(&simulator, &all).await;
    let text = timeless(&String::from_utf8(heard.bytes()).unwrap());
    assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 503);
    assert_eq!(text.matches("data: [DONE]\n\n\r\n0\r\n\r\n").count(), 2);
    assert_eq!(text.matches("connection: close").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_http_1_0_client_gets_no_chunks() {
    let request = chat(&[]).replace("HTTP/1.1", "HTTP/1.0");
    let heard = ask_with(&[], &request).await;
    assert!(!heard.head().contains("chunked") && heard.head().contains("connection: close"));
    assert!(heard.raw_body().starts_with(b"data: {") && heard.raw_body().ends_with(b"data: [DONE]\n\n"));
}
