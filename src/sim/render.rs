//! The JSON of events and answers, field by field in the order in which vLLM 0.32 and SGLang write it.
//!
//! Written with `format!` rather than through a serialiser: the bytes are the point, and one event costs half a
//! microsecond.

use serde_json::json;

use crate::domain::api::Api;
use crate::sim::fault::{ContentForm, UsageKind};
use crate::sim::settings::ReasoningField;

const FINGERPRINT: &str = "vllm-0.32.0-sim";

/// Everything that is the same in all events of one answer.
#[derive(Debug, Clone)]
pub(crate) struct Renderer {
    pub(crate) api: Api,
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) prompt_tokens: u32,
    pub(crate) cached_tokens: u32,
    pub(crate) reasoning_field: ReasoningField,
    /// Whether events without usage say `"usage": null`.
    pub(crate) usage_null: bool,
    /// Whether SGLang's events carry only what is new.
    pub(crate) incremental: bool,
    pub(crate) usage_kind: Option<UsageKind>,
    pub(crate) content_form: Option<ContentForm>,
}

/// Tokens so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) completion: u32,
    /// Of these, reasoning.
    pub(crate) reasoning: u32,
}

/// The text of one event, or of a whole answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) text: &'a str,
    pub(crate) is_reasoning: bool,
    /// Everything up to and including `text`, for SGLang's events.
    pub(crate) so_far: &'a str,
    /// Tokens in this piece.
    pub(crate) tokens: u32,
    /// Tokens up to and including this piece.
    pub(crate) count: Count,
}

impl Renderer {
    /// The role-only event of a chat stream.
    pub(crate) fn role(&self, usage: Option<Count>) -> String {
        let choice = r#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}"#;
        format!(
            r#"{}{}{},"prompt_token_ids":null,"prompt_text":null}}"#,
            self.open(),
            choices(choice),
            self.tail(usage)
        )
    }

    /// An event with text. `reason` is set when it is the last one and no other event says so.
    pub(crate) fn token(&self, piece: &Piece<'_>, reason: Option<&str>, usage: Option<Count>) -> String {
        match self.api {
            Api::OpenAiChat => {
                let field = if piece.is_reasoning { self.reasoning_name() } else { "content" };
                let choice = chat_choice(&format!(r#"{{"{field}":{}}}"#, self.content(piece.text)), reason);
                format!("{}{}{}}}", self.open(), choices(&choice), self.tail(usage))
            }
            Api::OpenAiCompletions => {
                let choice = completion_choice(&self.content(piece.text), reason);
                format!("{}{}{}}}", self.open(), choices(&choice), self.tail(usage))
            }
            Api::SglangGenerate => self.native(piece, reason),
        }
    }

    /// The event that carries nothing but `finish_reason`; SGLang sends one only when there is no token to carry it.
    pub(crate) fn finish(&self, reason: &str, usage: Option<Count>) -> String {
        let choice = match self.api {
            Api::OpenAiChat => chat_choice(r#"{"content":""}"#, Some(reason)),
            Api::OpenAiCompletions => completion_choice(r#""""#, Some(reason)),
            Api::SglangGenerate => {
                let count = Count { completion: 0, reasoning: 0 };
                let piece = Piece { text: "", is_reasoning: false, so_far: "", tokens: 0, count };
                return self.native(&piece, Some(reason));
            }
        };
        format!("{}{}{}}}", self.open(), choices(&choice), self.tail(usage))
    }

    /// The event with the usage and no choices.
    pub(crate) fn usage_event(&self, count: Count) -> String {
        format!(r#"{}"choices":[],"usage":{},"system_fingerprint":"{FINGERPRINT}"}}"#, self.open(), self.usage(count))
    }

    /// The whole answer to a request that asked for no stream.
    pub(crate) fn whole(&self, reasoning: &str, text: &str, reason: &str, count: Count) -> String {
        let id = json!(self.id);
        let model = json!(self.model);
        let usage = if self.usage_kind == Some(UsageKind::Missing) { "null".to_owned() } else { self.usage(count) };
        let (object, choice) = match self.api {
            Api::OpenAiChat => {
                let name = self.reasoning_name();
                let thought = if reasoning.is_empty() { "null".to_owned() } else { json!(reasoning).to_string() };
                let content = self.content(text);
                let message = format!(
                    r#"{{"role":"assistant","content":{content},"refusal":null,"annotations":null,"audio":null,"function_call":null,"{name}":{thought}}}"#
                );
                (
                    "chat.completion",
                    format!(
                        r#"{{"index":0,"message":{message},"logprobs":null,"finish_reason":"{reason}","stop_reason":null,"token_ids":null}}"#
                    ),
                )
            }
            Api::OpenAiCompletions => ("text_completion", completion_choice(&self.content(text), Some(reason))),
            Api::SglangGenerate => {
                let piece = Piece { text, is_reasoning: false, so_far: text, tokens: count.completion, count };
                return self.native(&piece, Some(reason));
            }
        };
        format!(
            r#"{{"id":{id},"object":"{object}","created":{},"model":{model},"choices":[{choice}],"service_tier":null,"system_fingerprint":"{FINGERPRINT}","usage":{usage},"prompt_logprobs":null,"kv_transfer_params":null}}"#,
            self.created
        )
    }

    fn open(&self) -> String {
        let object = match self.api {
            Api::OpenAiChat => "chat.completion.chunk",
            Api::OpenAiCompletions | Api::SglangGenerate => "text_completion",
        };
        let model = json!(self.model);
        format!(r#"{{"id":"{}","object":"{object}","created":{},"model":{model},"#, self.id, self.created)
    }

    fn tail(&self, usage: Option<Count>) -> String {
        match usage {
            Some(count) => format!(r#","usage":{}"#, self.usage(count)),
            None if self.usage_null => r#","usage":null"#.to_owned(),
            None => String::new(),
        }
    }

    const fn reasoning_name(&self) -> &'static str {
        match self.reasoning_field {
            ReasoningField::ReasoningContent => "reasoning_content",
            ReasoningField::Reasoning => "reasoning",
        }
    }

    fn content(&self, text: &str) -> String {
        match self.content_form {
            None => json!(text).to_string(),
            Some(ContentForm::Number) => "5".to_owned(),
            Some(ContentForm::Parts) => json!([{"type": "text", "text": text}]).to_string(),
            Some(ContentForm::Object) => json!({"text": text}).to_string(),
            Some(ContentForm::Null) => "null".to_owned(),
        }
    }

    fn usage(&self, count: Count) -> String {
        let prompt = self.number(self.prompt_tokens);
        let total = self.number(self.prompt_tokens.saturating_add(count.completion));
        let completion = self.number(count.completion);
        let cached = self.number(self.cached_tokens);
        let details = match count.reasoning {
            0 => "null".to_owned(),
            reasoning => format!(r#"{{"reasoning_tokens":{}}}"#, self.number(reasoning)),
        };
        format!(
            r#"{{"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens":{completion},"prompt_tokens_details":{{"cached_tokens":{cached}}},"completion_tokens_details":{details}}}"#
        )
    }

    fn number(&self, number: u32) -> String {
        match self.usage_kind {
            None | Some(UsageKind::Missing | UsageKind::Disagree) => number.to_string(),
            Some(UsageKind::Huge) => u64::MAX.to_string(),
            Some(UsageKind::Negative) => format!("-{number}"),
            Some(UsageKind::Float) => format!("{number}.5"),
            Some(UsageKind::Absurd) => "1e400".to_owned(),
            Some(UsageKind::Strings) => format!(r#""{number}""#),
        }
    }

    /// SGLang's own form: by default every event repeats all that came before.
    fn native(&self, piece: &Piece<'_>, reason: Option<&str>) -> String {
        let text = if self.incremental { piece.text } else { piece.so_far };
        let count = piece.count.completion;
        let from = if self.incremental { count - piece.tokens } else { 0 };
        let ids: Vec<_> = (from..count).map(|index| (1000 + index % 50_000).to_string()).collect();
        let finish = match reason {
            None => "null".to_owned(),
            Some("length") => format!(r#"{{"type":"length","length":{count}}}"#),
            Some("stop") => r#"{"type":"stop","matched":151645}"#.to_owned(),
            Some(other) => format!(
                r#"{{"type":"{other}","message":"simulated","status_code":500,"err_type":"InternalServerError"}}"#
            ),
        };
        let usage = match self.usage_kind {
            Some(UsageKind::Missing) => String::new(),
            _ => format!(
                r#""prompt_tokens":{},"completion_tokens":{},"cached_tokens":{},"#,
                self.number(self.prompt_tokens),
                self.number(count),
                self.number(self.cached_tokens)
            ),
        };
        format!(
            r#"{{"text":{},"output_ids":[{}],"meta_info":{{"id":"{}","finish_reason":{finish},{usage}"weight_version":"default"}}}}"#,
            self.content(text),
            ids.join(","),
            self.id
        )
    }
}

fn choices(choice: &str) -> String {
    format!(r#""choices":[{choice}]"#)
}

fn chat_choice(delta: &str, reason: Option<&str>) -> String {
    let finish = finish(reason);
    format!(r#"{{"index":0,"delta":{delta},"logprobs":null,{finish},"token_ids":null}}"#)
}

fn completion_choice(text: &str, reason: Option<&str>) -> String {
    let reason = reason.map_or_else(|| "null".to_owned(), |reason| format!(r#""{reason}""#));
    format!(
        r#"{{"index":0,"text":{text},"logprobs":null,"finish_reason":{reason},"stop_reason":null,"prompt_token_ids":null,"token_ids":null}}"#
    )
}

fn finish(reason: Option<&str>) -> String {
    match reason {
        None => r#""finish_reason":null"#.to_owned(),
        Some(reason) => format!(r#""finish_reason":"{reason}","stop_reason":null"#),
    }
}
