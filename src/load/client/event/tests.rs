//! Facts from events as real servers and hostile ones write them.

use super::*;

fn facts(api: Api, data: &str) -> Facts<'_> {
    match parse(api, data.as_bytes()) {
        Parsed::Facts(facts) => facts,
        other @ (Parsed::Unshaped | Parsed::Bad(_)) => panic!("{data}: {other:?}"),
    }
}

fn chat(data: &str) -> Facts<'_> {
    facts(Api::OpenAiChat, data)
}

#[test]
fn text_of_every_kind_counts_and_emptiness_of_every_kind_does_not() {
    for delta in [
        r#""content":"a""#,
        r#""content":[{"type":"text","text":"a"}]"#,
        r#""reasoning_content":"a""#,
        r#""reasoning":"a""#,
        r#""tool_calls":[{"index":0}]"#,
        r#""refusal":"no""#,
        r#""role":"assistant","content":"\u65e5""#,
    ] {
        let text = format!(r#"{{"choices":[{{"delta":{{{delta}}}}}]}}"#);
        let facts = chat(&text);
        assert!(facts.answer || facts.reasoning || facts.other, "{delta}");
    }
    for delta in [
        "",
        r#""role":"assistant""#,
        r#""content":"""#,
        r#""content":null"#,
        r#""content":[]"#,
        r#""tool_calls":[]"#,
        r#""reasoning":null,"refusal":null"#,
    ] {
        let text = format!(r#"{{"choices":[{{"delta":{{{delta}}}}}]}}"#);
        let facts = chat(&text);
        assert!(!facts.answer && !facts.reasoning && !facts.other && facts.shaped, "{delta}");
    }
}

#[test]
fn a_completions_text_counts() {
    let facts = facts(Api::OpenAiCompletions, r#"{"choices":[{"text":"a","finish_reason":"length"}]}"#);
    assert!(facts.answer && facts.shaped);
    assert_eq!(facts.finish_reason.as_deref(), Some("length"));
}

#[test]
fn only_a_number_that_can_be_a_count_is_one() {
    for (count, expected) in [
        ("12", Some(12)),
        ("12.0", Some(12)),
        ("0", Some(0)),
        ("-1", None),
        ("1.5", None),
        ("4000000000", None),
        ("99999999999999999999999999", None),
        ("1e300", None),
        ("1e999", None),
        ("-1e999", None),
        ("\"12\"", None),
        ("null", None),
        ("[1]", None),
        ("{\"a\":1}", None),
        ("true", None),
        ("123456789012345678901234567890".repeat(20).leak(), None),
    ] {
        let text = format!(r#"{{"choices":[],"usage":{{"completion_tokens":{count}}}}}"#);
        assert_eq!(chat(&text).usage.and_then(|usage| usage.completion_tokens), expected, "{count}");
    }
}

#[test]
fn details_of_usage_are_found_where_servers_put_them() {
    let usage = chat(
        r#"{"choices":[],"usage":{"completion_tokens":9,"prompt_tokens":8,
        "prompt_tokens_details":{"cached_tokens":7},"completion_tokens_details":{"reasoning_tokens":6}}}"#,
    )
    .usage
    .unwrap();
    assert_eq!((usage.prompt_tokens, usage.cached_tokens, usage.reasoning_tokens), (Some(8), Some(7), Some(6)));
    let usage = chat(r#"{"usage":{"reasoning_tokens":5,"prompt_tokens_details":null}}"#).usage.unwrap();
    assert_eq!((usage.cached_tokens, usage.reasoning_tokens), (None, Some(5)));
    assert_eq!(chat(r#"{"choices":[],"usage":null}"#).usage, None);
}

#[test]
fn errors_are_seen_in_every_form_and_not_where_there_is_none() {
    for data in [
        r#"{"error":{"message":"x"}}"#,
        r#"{"error":"x"}"#,
        r#"{"object":"error","message":"x"}"#,
        r#"{"type":"error","message":"x"}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"error"}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"abort"}]}"#,
        r#"{"choices":[{"error":{"code":502}}]}"#,
        r#"{"error":{"code":{"a":[1,2]}}}"#,
        r#"{"message":"boom","code":500,"type":"server_error"}"#,
        r#"{"message":"boom","code":500}"#,
        r#"{"detail":"boom"}"#,
        r#"{"detail":[{"msg":"boom"}]}"#,
        r#"{"errors":[{"message":"boom"}]}"#,
        r#"{"status":"error","message":"boom"}"#,
        r#"{"type":"InternalServerError"}"#,
        r#"[{"error":{"code":400}}]"#,
        r#"{"choices":[{"delta":{},"finish_reason":"ERROR"}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"server_error"}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"timeout"}]}"#,
    ] {
        assert!(chat(data).error, "{data}");
    }
    // An empty error object is a peculiar way to say that there is none.
    for data in [
        r#"{"error":null,"choices":[]}"#,
        r#"{"error":false}"#,
        r#"{"error":""}"#,
        r#"{"error":{}}"#,
        "{}",
        // Ollama's own form is another shape and no error; progress is no error; an answer may have any other fields.
        r#"{"model":"m","message":{"role":"assistant","content":"a"},"done":false}"#,
        r#"{"message":"queued","type":"progress"}"#,
        r#"{"message":"success","code":0}"#,
        r#"{"error":0}"#,
        r#"{"choices":[{"delta":{"content":"error"}}],"message":"x","code":1,"detail":"x"}"#,
        r#"{"usage":{"completion_tokens":1},"message":"x","code":1}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"length"}]}"#,
    ] {
        assert!(!chat(data).error, "{data}");
    }
    assert!(facts(Api::SglangGenerate, r#"{"error":{"message":"x"}}"#).error);
    let abort = r#"{"text":"","meta_info":{"finish_reason":{"type":"abort","message":"oom"}}}"#;
    assert!(facts(Api::SglangGenerate, abort).error);
}

#[test]
fn sglang_events_give_lengths_counts_and_the_reason_in_its_object() {
    let facts = facts(
        Api::SglangGenerate,
        r#"{"text":"日本","output_ids":[1,2,3],"meta_info":{"prompt_tokens":4,"completion_tokens":3,
        "cached_tokens":2,"finish_reason":{"type":"length","length":3}}}"#,
    );
    assert_eq!(facts.cumulative, Some((6, 3)));
    assert_eq!(facts.finish_reason.as_deref(), Some("length"));
    let usage = facts.usage.unwrap();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens), (Some(4), Some(3), Some(2)));
}

#[test]
fn json_that_is_no_event_is_unshaped_and_not_bad() {
    for data in ["5", "null", "[]", "\"text\"", r#"{"choices":"abc"}"#, r#"[{"choices":[]}]"#] {
        assert_eq!(parse(Api::OpenAiChat, data.as_bytes()), Parsed::Unshaped, "{data}");
    }
    assert!(!chat("{}").shaped);
}

#[test]
fn a_list_in_place_of_an_object_is_nothing() {
    for data in [
        r#"{"choices":[["x"]]}"#,
        r#"{"choices":[[{"content":"x"}]]}"#,
        r#"{"choices":[{"delta":["x"]}]}"#,
        r#"{"choices":[{"delta":"x"}]}"#,
        r#"{"choices":[5,null,"x"]}"#,
        r#"{"choices":[],"usage":[1,2]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens_details":[1],"completion_tokens_details":[2]}}"#,
    ] {
        let facts = chat(data);
        let usage = facts.usage.unwrap_or_default();
        assert!(!facts.answer && !facts.reasoning && !facts.other && !facts.error, "{data}: {facts:?}");
        assert_eq!(usage, Usage::default(), "{data}");
    }
}

#[test]
fn what_is_not_json_is_bad() {
    let unclosed: &[u8] = br#"{"choices":[{"delta":{"content":"a"#;
    let invalid_utf8: &[u8] = b"{\"choices\":[{\"delta\":{\"content\":\"\xff\xfe\"}}]}";
    let nul: &[u8] = b"{\"choices\":[{\"delta\":{\"content\":\"a\0b\"}}]}";
    for data in [unclosed, invalid_utf8, nul, b"hello", b"{}{}", b"{\"a\":1e}", b"\xef\xbb\xbf{}"] {
        assert!(matches!(parse(Api::OpenAiChat, data), Parsed::Bad(_)), "{data:?}");
    }
}

#[test]
fn deep_nesting_ends_in_an_error_and_not_in_a_stack_overflow() {
    let opens =
        [b"[".repeat(1 << 20), b"{\"a\":".repeat(200_000), br#"{"choices":[{"delta":{"content":"#.to_vec()].into_iter();
    for open in opens {
        for api in Api::ALL {
            let deep = [open.clone(), b"[".repeat(500_000)].concat();
            assert!(matches!(parse(api, &deep), Parsed::Bad(_)));
        }
    }
    // Brackets inside a string are text.
    let text = format!(r#"{{"choices":[{{"delta":{{"content":"{}"}}}}]}}"#, "[\\\"{".repeat(1000));
    assert!(chat(&text).answer);
}
