//! What a request asks for, read from its body and checked as vLLM checks it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::domain::api::Api;
use crate::sim::fault::FieldForm;
use crate::sim::model::BLOCK_TOKENS;
use crate::sim::refusal::Refusal;
use crate::sim::settings::{Settings, StrictFields, UsageMode};
use crate::sim::tokens;

/// A request that can be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) api: Api,
    pub(crate) stream: bool,
    pub(crate) prompt_tokens: u32,
    /// Output tokens, the model's own end already considered.
    pub(crate) tokens: u32,
    /// Whether that end was the limit (`length`) or the model's own (`stop`).
    pub(crate) at_limit: bool,
    /// When usage is sent, never `AsAsked`.
    pub(crate) usage: UsageMode,
    /// A hash of each full block of the prompt and all before it, if an engine with a prefix cache is modelled.
    pub(crate) blocks: Arc<[u64]>,
}

const OPENAI_FIELDS: &[&str] = &[
    "model",
    "messages",
    "prompt",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "n",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "user",
    "response_format",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "metadata",
    "store",
    "service_tier",
    "reasoning_effort",
    "best_of",
    "echo",
    "suffix",
    "text",
    "input_ids",
    "sampling_params",
];

pub(crate) type Object = Map<String, Json>;

impl Ask {
    /// The request in `body`, or what a server says about it.
    pub(crate) fn read(api: Api, body: &[u8], settings: &Settings) -> Result<Self, Refusal> {
        let body = object_of(body)?;
        refuse_unknown_fields(&body, settings.strict_fields)?;
        let sampling = match api {
            Api::OpenAiChat | Api::OpenAiCompletions => {
                check_model(&body, settings)?;
                &body
            }
            Api::SglangGenerate => object(&body, "sampling_params")?.unwrap_or(&body),
        };
        if whole(sampling, "n")?.unwrap_or(1) != 1 {
            return Err(Refusal::bad_request("only n=1 is simulated", "n"));
        }
        let (limit_names, min_name): (&[&str], &str) = match api {
            Api::OpenAiChat => (&["max_completion_tokens", "max_tokens"], "min_tokens"),
            Api::OpenAiCompletions => (&["max_tokens"], "min_tokens"),
            Api::SglangGenerate => (&["max_new_tokens"], "min_new_tokens"),
        };
        let prompt_tokens = prompt_tokens(api, &body)?;
        let limit = limit(sampling, limit_names, prompt_tokens, settings)?;
        let floor = whole(sampling, min_name)?.filter(|_| settings.honour_min_tokens).unwrap_or(0);
        let ignore_eos = flag(sampling, "ignore_eos")? && settings.honour_ignore_eos;
        let natural = if ignore_eos { limit } else { settings.natural_tokens.max(floor) };
        Ok(Self {
            api,
            stream: flag(&body, "stream")?,
            prompt_tokens,
            tokens: natural.min(limit),
            at_limit: natural >= limit,
            usage: usage(&body, settings.usage)?,
            blocks: if settings.engine.is_some_and(|engine| engine.prefix_cache) {
                blocks(api, &body)
            } else {
                Arc::new([])
            },
        })
    }
}

/// The JSON object that a body has to be.
pub(crate) fn object_of(body: &[u8]) -> Result<Object, Refusal> {
    let body: Json = serde_json::from_slice(body)
        .map_err(|error| Refusal::invalid("json_invalid", &format!("body.{}", error.column()), "JSON decode error"))?;
    let Json::Object(body) = body else {
        return Err(Refusal::invalid("model_attributes_type", "body", "Input should be a valid dictionary"));
    };
    Ok(body)
}

pub(crate) fn check_model(body: &Object, settings: &Settings) -> Result<(), Refusal> {
    match body.get("model") {
        None | Some(Json::Null) => Ok(()),
        Some(Json::String(model)) if *model == settings.model => Ok(()),
        Some(Json::String(model)) => Err(Refusal::unknown_model(model, &settings.model)),
        Some(_) => Err(Refusal::invalid("string_type", "body.model", "Input should be a valid string")),
    }
}

fn refuse_unknown_fields(body: &Object, strict: StrictFields) -> Result<(), Refusal> {
    let form = match strict {
        StrictFields::Off => return Ok(()),
        StrictFields::Transformers => FieldForm::Transformers,
        StrictFields::Openai => FieldForm::Openai,
    };
    let unknown = body.keys().find(|key| !OPENAI_FIELDS.contains(&key.as_str()));
    let nested = body.get("stream_options").and_then(Json::as_object).filter(|_| strict == StrictFields::Openai);
    let nested = nested.and_then(|options| {
        options.keys().find(|key| !["include_usage", "include_obfuscation"].contains(&key.as_str()))
    });
    match unknown.cloned().or(nested.map(|key| format!("stream_options.{key}"))) {
        Some(field) => Err(Refusal::unknown_field(&field, form)),
        None => Ok(()),
    }
}

fn usage(body: &Object, mode: UsageMode) -> Result<UsageMode, Refusal> {
    if mode != UsageMode::AsAsked {
        return Ok(mode);
    }
    let Some(options) = object(body, "stream_options")? else { return Ok(UsageMode::None) };
    Ok(match (flag(options, "include_usage")?, flag(options, "continuous_usage_stats")?) {
        (false, _) => UsageMode::None,
        (true, false) => UsageMode::Final,
        (true, true) => UsageMode::Continuous,
    })
}

/// The most tokens the answer may have.
fn limit(sampling: &Object, names: &[&str], prompt_tokens: u32, settings: &Settings) -> Result<u32, Refusal> {
    let room = settings.max_model_len.saturating_sub(prompt_tokens);
    if room == 0 {
        let message = format!(
            "This model's maximum context length is {} tokens. However, your prompt contains at least {prompt_tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value={prompt_tokens})",
            settings.max_model_len
        );
        return Err(Refusal::bad_request(&message, "input_tokens"));
    }
    for name in names {
        let Some(asked) = whole(sampling, name)? else { continue };
        if asked == 0 {
            let message = format!("{name} must be at least 1, got 0. (parameter={name}, value=0)");
            return Err(Refusal::bad_request(&message, name));
        }
        if asked > settings.max_model_len {
            let message = format!(
                "{name}={asked} cannot be greater than max_model_len={}. Please request fewer output tokens. (parameter={name}, value={asked})",
                settings.max_model_len
            );
            return Err(Refusal::bad_request(&message, name));
        }
        return Ok(asked.min(room));
    }
    Ok(room)
}

/// The prompt's tokens, of which there must be some.
fn prompt_tokens(api: Api, body: &Object) -> Result<u32, Refusal> {
    let count = match api {
        Api::OpenAiChat => {
            messages(body)?.iter().filter_map(|message| message.get("content")).map(tokens::count).sum::<usize>()
                + tokens::TEMPLATE_TOKENS
        }
        Api::OpenAiCompletions => body.get("prompt").map_or(0, tokens::count),
        Api::SglangGenerate => body.get("text").or_else(|| body.get("input_ids")).map_or(0, tokens::count),
    };
    if count == 0 {
        let param = if api == Api::SglangGenerate { "text" } else { "prompt" };
        let message = format!("Either {param} or {param}_embeds must be provided and non-empty. (parameter={param})");
        return Err(Refusal::bad_request(&message, param));
    }
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The hashes of the prompt's full blocks, each with all that stands before it: equal beginnings have equal hashes.
fn blocks(api: Api, body: &Object) -> Arc<[u64]> {
    let ids = match api {
        Api::OpenAiChat => {
            let messages = body.get("messages").and_then(Json::as_array).into_iter().flatten();
            messages.filter_map(|message| message.get("content")).flat_map(tokens::ids).collect()
        }
        Api::OpenAiCompletions => body.get("prompt").map_or_else(Vec::new, tokens::ids),
        Api::SglangGenerate => body.get("text").or_else(|| body.get("input_ids")).map_or_else(Vec::new, tokens::ids),
    };
    let mut hasher = DefaultHasher::new();
    let hashes = ids.chunks_exact(BLOCK_TOKENS as usize).map(|block| {
        block.hash(&mut hasher);
        hasher.finish()
    });
    hashes.collect()
}

/// The messages of a chat.
pub(crate) fn messages(body: &Object) -> Result<&[Json], Refusal> {
    let Some(messages) = body.get("messages") else {
        return Err(Refusal::invalid("missing", "body.messages", "Field required"));
    };
    let Json::Array(messages) = messages else {
        return Err(Refusal::invalid("list_type", "body.messages", "Input should be a valid list"));
    };
    if messages.is_empty() || !messages.iter().all(Json::is_object) {
        return Err(Refusal::bad_request("messages must be a non-empty list of objects", "messages"));
    }
    Ok(messages)
}

fn whole(body: &Object, name: &str) -> Result<Option<u32>, Refusal> {
    match body.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|value| u32::try_from(value).ok()) {
            Some(value) => Ok(Some(value)),
            None => Err(Refusal::invalid("int_parsing", &format!("body.{name}"), "Input should be a valid integer")),
        },
    }
}

pub(crate) fn flag(body: &Object, name: &str) -> Result<bool, Refusal> {
    match body.get(name) {
        None | Some(Json::Null) => Ok(false),
        Some(Json::Bool(value)) => Ok(*value),
        Some(_) => Err(Refusal::invalid("bool_parsing", &format!("body.{name}"), "Input should be a valid boolean")),
    }
}

fn object<'a>(body: &'a Object, name: &str) -> Result<Option<&'a Object>, Refusal> {
    match body.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Object(value)) => Ok(Some(value)),
        Some(_) => Err(Refusal::invalid("dict_type", &format!("body.{name}"), "Input should be a valid dictionary")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Ask, Refusal> {
        Ask::read(Api::OpenAiChat, body.as_bytes(), &Settings::default())
    }

    fn chat(rest: &str) -> String {
        format!(r#"{{"model":"sim-model","messages":[{{"role":"user","content":"say something nice"}}]{rest}}}"#)
    }

    #[test]
    fn the_length_is_the_limit_only_when_the_model_does_not_stop_before() {
        let ask = |rest: &str| read(&chat(rest)).map(|ask| (ask.tokens, ask.at_limit)).unwrap();
        assert_eq!(ask(""), (128, false));
        assert_eq!(ask(r#","max_tokens":10"#), (10, true));
        assert_eq!(ask(r#","max_tokens":200"#), (128, false));
        assert_eq!(ask(r#","max_tokens":200,"ignore_eos":true"#), (200, true));
        assert_eq!(ask(r#","max_tokens":200,"min_tokens":150"#), (150, false));
        assert_eq!(ask(r#","max_tokens":200,"min_tokens":200"#), (200, true));
        assert_eq!(ask(r#","max_completion_tokens":7,"max_tokens":9"#), (7, true));
    }

    #[test]
    fn no_answer_is_longer_than_the_context_has_room_for() {
        let settings = Settings { max_model_len: 20, ..Settings::default() };
        let body = chat(r#","max_tokens":15,"ignore_eos":true"#);
        let ask = Ask::read(Api::OpenAiChat, body.as_bytes(), &settings).unwrap();
        assert_eq!((ask.prompt_tokens, ask.tokens, ask.at_limit), (13, 7, true));
    }

    #[test]
    fn a_gateway_may_ignore_what_is_asked() {
        let settings = Settings { honour_ignore_eos: false, honour_min_tokens: false, ..Settings::default() };
        let body = chat(r#","max_tokens":200,"ignore_eos":true,"min_tokens":150"#);
        assert_eq!(Ask::read(Api::OpenAiChat, body.as_bytes(), &settings).unwrap().tokens, 128);
    }

    #[test]
    fn a_block_is_known_only_behind_the_same_front() {
        let mut settings = Settings::default();
        settings.use_preset("7b-rtx4090").unwrap();
        let front = |first: &str| format!("{first:-<64}");
        let hashes = |text: &str| {
            let body = format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}]}}"#);
            Ask::read(Api::OpenAiChat, body.as_bytes(), &settings).unwrap().blocks
        };
        let rest = front("the same for all") + &front("and this too");
        let (one, other) = (hashes(&(front("one") + &rest)), hashes(&(front("other") + &rest)));
        assert_eq!((one.len(), other.len()), (3, 3), "a block is 64 bytes");
        assert!(one.iter().zip(other.iter()).all(|(one, other)| one != other), "{one:?} {other:?}");
        let longer = hashes(&(front("one") + &rest + "more"));
        assert_eq!(one, longer, "what follows does not change what stands before");
        let swapped = hashes(&(rest.clone() + &front("one")));
        assert!(swapped.iter().all(|block| !one.contains(block)));
        let repeated = hashes(&front("x").repeat(3));
        assert!(repeated[0] != repeated[1] && repeated[1] != repeated[2], "a block is what it holds and where");
    }

    #[test]
    fn usage_is_sent_as_asked() {
        let usage = |rest: &str| read(&chat(rest)).unwrap().usage;
        assert_eq!(usage(""), UsageMode::None);
        assert_eq!(usage(r#","stream_options":{"include_usage":true}"#), UsageMode::Final);
        assert_eq!(usage(r#","stream_options":{"continuous_usage_stats":true}"#), UsageMode::None);
        let both = r#","stream_options":{"include_usage":true,"continuous_usage_stats":true}"#;
        assert_eq!(usage(both), UsageMode::Continuous);
    }

    #[test]
    fn bad_requests_are_refused_in_the_servers_words() {
        for (body, status, part) in [
            ("", 400, "json_invalid"),
            ("{", 400, "json_invalid"),
            ("[]", 400, "valid dictionary"),
            (r#"{"model":"sim-model"}"#, 400, "body.messages"),
            (r#"{"messages":5}"#, 400, "valid list"),
            (r#"{"messages":[]}"#, 400, "non-empty"),
            (&chat(r#","max_tokens":0"#), 400, "at least 1"),
            (&chat(r#","max_tokens":-1"#), 400, "body.max_tokens"),
            (&chat(r#","max_tokens":40000"#), 400, "max_tokens=40000 cannot be greater than max_model_len=32768"),
            (&chat(r#","stream":"yes""#), 400, "body.stream"),
            (&chat(r#","n":2"#), 400, "n=1"),
            (&chat("").replace("sim-model", "nope"), 404, "The model `nope` does not exist. Valid aliases: sim-model."),
            (&chat("").replace("nice", &"x".repeat(140_000)), 400, "maximum context length is 32768 tokens"),
            (&"[".repeat(100_000), 400, "json_invalid"),
        ] {
            let refusal = read(body).unwrap_err();
            assert_eq!(refusal.status, status, "{part}");
            assert!(refusal.body.contains(part), "{part}: {}", refusal.body);
        }
    }

    #[test]
    fn strict_servers_name_the_first_field_they_do_not_know() {
        let body = chat(r#","stream_options":{"include_usage":true,"continuous_usage_stats":true},"ignore_eos":true"#);
        let refuse = |strict_fields| {
            let settings = Settings { strict_fields, ..Settings::default() };
            Ask::read(Api::OpenAiChat, body.as_bytes(), &settings).unwrap_err()
        };
        let refusal = refuse(StrictFields::Transformers);
        assert_eq!(
            (refusal.status, refusal.body.as_str()),
            (422, r#"{"detail":"Unexpected fields in the request: {'ignore_eos'}"}"#)
        );
        let refusal = refuse(StrictFields::Openai);
        assert!(refusal.status == 400 && refusal.body.contains("argument supplied: ignore_eos"), "{}", refusal.body);
        let settings = Settings { strict_fields: StrictFields::Openai, ..Settings::default() };
        let body = body.replace(r#","ignore_eos":true"#, "");
        let refusal = Ask::read(Api::OpenAiChat, body.as_bytes(), &settings).unwrap_err();
        assert!(refusal.body.contains("stream_options.continuous_usage_stats"), "{}", refusal.body);
    }
}
