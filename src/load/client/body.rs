//! The request body of each API.
//!
//! Rendering is a pure function of target and prompt, so that bodies can be prepared ahead on another thread. The fields
//! that fix the output length and ask for counts can each be switched off (`send.…`), because some gateways refuse what they
//! do not know. An API without roles gets the messages as one text, an empty line between each and the next.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::config::sections::Target;
use crate::domain::api::Api;
use crate::domain::prompt::{Prompt, joined};

/// The body of one request.
#[must_use]
pub fn render(target: &Target, prompt: &Prompt) -> Bytes {
    let mut body = match target.api {
        Api::OpenAiChat | Api::OpenAiCompletions => openai(target, prompt),
        Api::SglangGenerate => sglang(target, prompt),
    };
    // The configuration refuses names of ours there.
    body.extend(target.body.clone());
    Bytes::from(Value::Object(body).to_string())
}

/// The fields of the body that a gateway may refuse and that a setting switches off, with that setting.
#[must_use]
pub fn optional_fields(target: &Target) -> Vec<(&'static str, &'static str)> {
    let send = target.send;
    let openai = target.api != Api::SglangGenerate;
    [
        (send.ignore_eos, "ignore_eos", "send.ignore_eos = false"),
        (send.min_tokens && openai, "min_tokens", "send.min_tokens = false"),
        (send.min_tokens && !openai, "min_new_tokens", "send.min_tokens = false"),
        (send.continuous_usage_stats && openai, "continuous_usage_stats", "send.continuous_usage_stats = false"),
        (send.include_usage && openai, "include_usage", "send.include_usage = false"),
        (send.include_usage && openai, "stream_options", "send.include_usage = false"),
        (send.temperature.is_some(), "temperature", "send.temperature = false"),
        (
            openai && send.max_tokens_field.name() == "max_tokens",
            "max_tokens",
            "send.max_tokens_field = \"max_completion_tokens\"",
        ),
        (
            openai && send.max_tokens_field.name() == "max_completion_tokens",
            "max_completion_tokens",
            "send.max_tokens_field = \"max_tokens\"",
        ),
    ]
    .into_iter()
    .filter_map(|(sent, field, setting)| sent.then_some((field, setting)))
    .collect()
}

fn openai(target: &Target, prompt: &Prompt) -> Map<String, Value> {
    let send = target.send;
    let mut body = Map::new();
    body.insert("model".into(), json!(target.model));
    if target.api == Api::OpenAiChat {
        let messages = prompt.messages.iter().map(|said| json!({"role": said.role.name(), "content": said.text}));
        body.insert("messages".into(), Value::Array(messages.collect()));
    } else {
        body.insert("prompt".into(), json!(joined(&prompt.messages)));
    }
    body.insert("stream".into(), json!(true));
    body.insert(send.max_tokens_field.name().into(), json!(prompt.output_tokens));
    if send.min_tokens {
        body.insert("min_tokens".into(), json!(prompt.output_tokens));
    }
    if send.ignore_eos {
        body.insert("ignore_eos".into(), json!(true));
    }
    if let Some(temperature) = send.temperature {
        body.insert("temperature".into(), json!(temperature));
    }
    if send.include_usage {
        let mut options = Map::new();
        options.insert("include_usage".into(), json!(true));
        if send.continuous_usage_stats {
            options.insert("continuous_usage_stats".into(), json!(true));
        }
        body.insert("stream_options".into(), Value::Object(options));
    }
    body
}

/// SGLang's native form names no model (the server has one) and always counts with every event.
fn sglang(target: &Target, prompt: &Prompt) -> Map<String, Value> {
    let send = target.send;
    let mut params = Map::new();
    params.insert("max_new_tokens".into(), json!(prompt.output_tokens));
    if send.min_tokens {
        params.insert("min_new_tokens".into(), json!(prompt.output_tokens));
    }
    if send.ignore_eos {
        params.insert("ignore_eos".into(), json!(true));
    }
    if let Some(temperature) = send.temperature {
        params.insert("temperature".into(), json!(temperature));
    }
    let mut body = Map::new();
    body.insert("text".into(), json!(joined(&prompt.messages)));
    body.insert("sampling_params".into(), Value::Object(params));
    body.insert("stream".into(), json!(true));
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sections::MaxTokensField;
    use crate::config::sections::tests::target;
    use crate::domain::prompt::{Message, Role};

    fn body(change: impl FnOnce(&mut Target)) -> Value {
        let mut target = target("http://127.0.0.1:1");
        change(&mut target);
        body_of(&target, vec![Message::user("hello")])
    }

    fn body_of(target: &Target, messages: Vec<Message>) -> Value {
        let prompt = Prompt { messages, output_tokens: 7, input_tokens: None, turn: 0 };
        serde_json::from_slice(&render(target, &prompt)).unwrap()
    }

    #[test]
    fn a_conversation_is_messages_or_one_text() {
        let said = |role, text: &str| Message { role, text: text.to_owned() };
        let messages =
            || vec![said(Role::System, "s"), said(Role::User, "q"), said(Role::Assistant, "a"), said(Role::User, "r")];
        let mut target = target("http://127.0.0.1:1");
        assert_eq!(
            body_of(&target, messages())["messages"],
            json!([{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
                {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}])
        );
        target.api = Api::OpenAiCompletions;
        assert_eq!(body_of(&target, messages())["prompt"], json!("s\n\nq\n\na\n\nr"));
        target.api = Api::SglangGenerate;
        assert_eq!(body_of(&target, messages())["text"], json!("s\n\nq\n\na\n\nr"));
    }

    #[test]
    fn each_api_has_its_own_shape() {
        assert_eq!(
            body(|_| {}),
            json!({"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": true, "max_tokens": 7,
                "min_tokens": 7, "ignore_eos": true, "temperature": 0.0,
                "stream_options": {"include_usage": true, "continuous_usage_stats": true}})
        );
        assert_eq!(body(|t| t.api = Api::OpenAiCompletions)["prompt"], json!("hello"));
        assert_eq!(
            body(|t| t.api = Api::SglangGenerate),
            json!({"text": "hello", "stream": true,
                "sampling_params": {"max_new_tokens": 7, "min_new_tokens": 7, "ignore_eos": true, "temperature": 0.0}})
        );
    }

    #[test]
    fn every_optional_field_is_gone_once_its_setting_says_so() {
        for api in Api::ALL {
            let bare = body(|t| {
                t.api = api;
                t.send.ignore_eos = false;
                t.send.min_tokens = false;
                t.send.temperature = None;
                t.send.include_usage = false;
                t.send.continuous_usage_stats = false;
                t.send.max_tokens_field = MaxTokensField::MaxCompletionTokens;
            })
            .to_string();
            let mut full = target("http://127.0.0.1:1");
            full.api = api;
            for (field, _) in optional_fields(&full) {
                assert!(!bare.contains(&format!("\"{field}\"")), "{api}: {field} in {bare}");
                assert!(body(|t| t.api = api).to_string().contains(&format!("\"{field}\"")), "{api}: {field}");
            }
        }
    }

    #[test]
    fn extra_fields_are_added() {
        let body = body(|t| drop(t.body.insert("lora_path".into(), json!("a"))));
        assert_eq!((&body["lora_path"], &body["max_tokens"]), (&json!("a"), &json!(7)));
    }
}
