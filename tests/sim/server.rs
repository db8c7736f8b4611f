//! The routes by which a server tells of itself and counts tokens, for both kinds of server.

use serde_json::{Value as Json, json};
use steadyload::sim::Simulator;

use crate::peer::{Heard, ask, chat, chat_body, get, post, settings};

const CLOSE: &str = "connection: close";

const VLLM: (&str, &str) = ("server", "vllm");

const SGLANG: (&str, &str) = ("server", "sglang");

async fn ask_with(pairs: &[(&str, &str)], request: &str) -> Heard {
    ask(&Simulator::new(settings(pairs)), request).await
}

async fn json_of(pairs: &[(&str, &str)], request: &str) -> Json {
    let heard = ask_with(pairs, request).await;
    assert_eq!(heard.status(), 200, "{}", heard.body());
    serde_json::from_str(&heard.body()).unwrap()
}

fn tokenize(body: &str) -> String {
    post("/tokenize", &[CLOSE], body)
}

const TALK: &str =
    r#"[{"role":"system","content":"be kind"},{"role":"user","content":[{"type":"text","text":"日本語 naïve"}]}]"#;

#[tokio::test(start_paused = true)]
async fn tokenize_counts_what_the_usage_will_say() {
    for kind in [VLLM, SGLANG] {
        let chat = format!(r#"{{"messages":{TALK},"max_tokens":1}}"#);
        let answer = json_of(&[kind], &post("/v1/chat/completions", &[CLOSE], &chat)).await;
        let counted = json_of(&[kind], &tokenize(&format!(r#"{{"messages":{TALK}}}"#))).await;
        assert_eq!(counted["count"], answer["usage"]["prompt_tokens"]);
        assert_eq!(counted["count"], counted["tokens"].as_array().unwrap().len());
        for prompt in [r#""one two three""#, r#""🙂""#, r#""abcd""#] {
            let body = format!(r#"{{"prompt":{prompt},"max_tokens":1}}"#);
            let answer = json_of(&[kind], &post("/v1/completions", &[CLOSE], &body)).await;
            let counted = json_of(&[kind], &tokenize(&format!(r#"{{"model":"sim-model","prompt":{prompt}}}"#))).await;
            assert_eq!(counted["count"], answer["usage"]["prompt_tokens"], "{prompt}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn tokenize_has_each_servers_shape() {
    let vllm = json_of(&[VLLM], &tokenize(r#"{"prompt":"abcde","return_token_strs":true}"#)).await;
    let ids = json!([0x6463_6261, 0x65]);
    assert_eq!(vllm, json!({"count": 2, "max_model_len": 32768, "tokens": ids, "token_strs": ["abcd", "e"]}));
    let plain = json_of(&[VLLM], &tokenize(r#"{"prompt":""}"#)).await;
    assert_eq!((&plain["count"], &plain["token_strs"]), (&0.into(), &Json::Null));
    let sglang = json_of(&[SGLANG], &post("/v1/tokenize", &[CLOSE], r#"{"prompt":["abcde","x"]}"#)).await;
    assert_eq!(sglang, json!({"tokens": [ids, [0x78]], "count": [2, 1], "max_model_len": 32768}));
    for (kind, field) in [(VLLM, "prompt"), (SGLANG, "text")] {
        let text = json_of(&[kind], &post("/detokenize", &[CLOSE], &json!({"tokens": ids}).to_string())).await;
        assert_eq!(text, json!({field: "abcde"}));
    }
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_cannot_be_tokenized_is_refused() {
    for (kind, path, body, status, part) in [
        (VLLM, "/tokenize", "{", 400, "json_invalid"),
        (VLLM, "/tokenize", "{}", 400, "body.messages"),
        (VLLM, "/tokenize", r#"{"prompt":["a"]}"#, 400, "body.prompt"),
        (SGLANG, "/tokenize", r#"{"prompt":[1]}"#, 400, "body.prompt"),
        (VLLM, "/tokenize", r#"{"model":"nope","prompt":"a"}"#, 404, "does not exist"),
        (VLLM, "/detokenize", r#"{"tokens":[-1]}"#, 400, "body.tokens"),
        (SGLANG, "/detokenize", "{}", 400, "body.tokens"),
    ] {
        let heard = ask_with(&[kind], &post(path, &[CLOSE], body)).await;
        assert_eq!(heard.status(), status, "{path} {body}");
        assert!(heard.body().contains(part), "{path} {body}: {}", heard.body());
    }
}

#[tokio::test(start_paused = true)]
async fn each_server_has_its_own_routes_and_not_the_others() {
    for (path, vllm, sglang) in [
        ("/health", 200, 200),
        ("/metrics", 200, 200),
        ("/server_info", 200, 200),
        ("/v1/models", 200, 200),
        ("/version", 200, 404),
        ("/health_generate", 404, 200),
        ("/get_server_info", 404, 200),
        ("/model_info", 404, 200),
        ("/get_model_info", 404, 200),
    ] {
        for (kind, status) in [(VLLM, vllm), (SGLANG, sglang)] {
            let heard = ask_with(&[kind], &get(path)).await;
            assert_eq!(heard.status(), status, "{} {path}", kind.1);
            if status == 404 {
                assert_eq!(heard.body(), r#"{"detail":"Not Found"}"#);
            }
        }
    }
    assert_eq!(ask_with(&[VLLM], &post("/v1/tokenize", &[CLOSE], r#"{"prompt":"a"}"#)).await.status(), 404);
}

#[tokio::test(start_paused = true)]
async fn a_server_tells_what_it_is() {
    assert_eq!(json_of(&[VLLM], &get("/version")).await, json!({"version": "0.33.0-sim"}));
    let small = [SGLANG, ("max_model_len", "2048"), ("model", "m")];
    let info = json_of(&small, &get("/get_server_info")).await;
    assert_eq!(
        (&info["model_path"], &info["context_length"], &info["version"]),
        (&"m".into(), &2048.into(), &"0.5.23-sim".into())
    );
    assert!(info["max_running_requests"].is_null(), "drawn times know no limit");
    assert_eq!(json_of(&small, &get("/server_info")).await, info);
    assert_eq!(json_of(&small, &get("/model_info")).await["model_path"], "m");
    assert_eq!(json_of(&small, &get("/v1/models")).await["data"][0]["owned_by"], "sglang");
    assert_eq!(json_of(&[VLLM], &get("/v1/models")).await["data"][0]["owned_by"], "vllm");
    let config = json_of(&[VLLM], &get("/server_info?config_format=json")).await;
    assert_eq!(config["vllm_config"]["model_config"]["max_model_len"], 32768);
    let text = json_of(&[VLLM], &get("/server_info")).await;
    assert_eq!(text["vllm_config"], "model='sim-model', served_model_name=sim-model, max_seq_len=32768");
}

#[tokio::test(start_paused = true)]
async fn a_key_guards_what_the_server_guards() {
    for (path, vllm, sglang) in [
        ("/v1/models", 401, 401),
        ("/health", 200, 200),
        ("/metrics", 200, 200),
        ("/server_info", 200, 401),
        ("/version", 200, 404),
        ("/health_generate", 404, 200),
        ("/model_info", 404, 401),
    ] {
        for (kind, status) in [(VLLM, vllm), (SGLANG, sglang)] {
            let heard = ask_with(&[kind, ("api_key", "sk-right")], &get(path)).await;
            assert_eq!(heard.status(), status, "{} {path}", kind.1);
        }
    }
    for (kind, status) in [(VLLM, 200), (SGLANG, 401)] {
        let key = [kind, ("api_key", "sk-right")];
        assert_eq!(ask_with(&key, &tokenize(r#"{"prompt":"a"}"#)).await.status(), status);
        assert_eq!(ask_with(&key, &chat(&[CLOSE, "authorization: bearer sk-right"])).await.status(), status);
        assert_eq!(ask_with(&key, &chat(&[CLOSE, "authorization: Bearer sk-right"])).await.status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn cached_tokens_and_reasoning_are_the_same_streamed_and_whole_on_every_route() {
    let pairs = [("cached_tokens", "2"), ("reasoning_tokens", "2"), ("reasoning", "hidden")];
    let usage_of = |json: &Json| {
        let usage = &json["usage"];
        let native = &json["meta_info"];
        let (usage, cached) = match usage.is_null() {
            false => (usage, &usage["prompt_tokens_details"]["cached_tokens"]),
            true => (native, &native["cached_tokens"]),
        };
        let reasoning = &usage["completion_tokens_details"]["reasoning_tokens"];
        [&usage["prompt_tokens"], &usage["completion_tokens"], cached, reasoning].map(Json::as_u64)
    };
    let completion = r#"{"prompt":"hello, you there","max_tokens":5,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}"#;
    let native =
        r#"{"text":"hello, you there","sampling_params":{"max_new_tokens":5,"ignore_eos":true},"stream":true}"#;
    for (path, body, wanted) in [
        ("/v1/chat/completions", chat_body("").as_str(), [Some(10), Some(5), Some(2), Some(2)]),
        ("/v1/completions", completion, [Some(4), Some(5), Some(2), None]),
        ("/generate", native, [Some(4), Some(5), Some(2), None]),
    ] {
        let streamed = ask_with(&pairs, &post(path, &[CLOSE], body)).await;
        assert_eq!(usage_of(streamed.json().last().unwrap()), wanted, "{path} streamed");
        let whole =
            json_of(&pairs, &post(path, &[CLOSE], &body.replace(r#""stream":true"#, r#""stream":false"#))).await;
        assert_eq!(usage_of(&whole), wanted, "{path} whole");
    }
}

#[tokio::test(start_paused = true)]
async fn completions_tell_a_growing_usage_when_asked() {
    let body = r#"{"prompt":"hello","max_tokens":3,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}"#;
    let heard = ask_with(&[], &post("/v1/completions", &[CLOSE], body)).await;
    let counts: Vec<_> = heard.json().iter().map(|event| event["usage"]["completion_tokens"].as_u64()).collect();
    assert_eq!(counts, [Some(1), Some(2), Some(3), Some(3), Some(3)]);
}

#[tokio::test(start_paused = true)]
async fn shown_reasoning_is_the_same_streamed_and_whole() {
    let pairs = [("reasoning_tokens", "2"), ("reasoning", "shown")];
    let streamed = ask_with(&pairs, &chat(&[CLOSE])).await;
    let thoughts: String = streamed
        .json()
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["reasoning_content"].as_str().map(str::to_owned))
        .collect();
    let body = chat_body("").replace(r#""stream":true"#, r#""stream":false"#);
    let whole = json_of(&pairs, &post("/v1/chat/completions", &[CLOSE], &body)).await;
    let message = &whole["choices"][0]["message"];
    assert_eq!((&message["reasoning_content"], &message["content"]), (&thoughts.into(), &streamed.text().into()));
}
