//! `/tokenize` and `/detokenize`, in the shapes of both servers.
//!
//! The count is the one that `usage.prompt_tokens` of the same prompt or messages will say. There are no special tokens
//! beside the chat template's, so `add_special_tokens` changes nothing. vLLM and SGLang agree on the request but for
//! lists of prompts, which are SGLang's.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use bytes::Bytes;
use serde_json::{Value as Json, json};

use crate::sim::ask::{Object, check_model, flag, messages, object_of};
use crate::sim::http::House;
use crate::sim::refusal::Refusal;
use crate::sim::reply::Reply;
use crate::sim::settings::{ServerKind, Settings};
use crate::sim::tokens;

/// `POST /tokenize`.
pub(crate) async fn tokenize(State(house): State<Arc<House>>, headers: HeaderMap, body: Bytes) -> Reply {
    reply(house.check_key_outside_v1(&headers).and_then(|()| tokens_of(&object_of(&body)?, &house.settings)))
}

/// `POST /detokenize`.
pub(crate) async fn detokenize(State(house): State<Arc<House>>, headers: HeaderMap, body: Bytes) -> Reply {
    reply(house.check_key_outside_v1(&headers).and_then(|()| text_of(&object_of(&body)?, &house.settings)))
}

fn reply(answer: Result<Json, Refusal>) -> Reply {
    Reply::refusal(answer.map_or_else(|refusal| refusal, |answer| Refusal::json(200, &answer)))
}

fn tokens_of(body: &Object, settings: &Settings) -> Result<Json, Refusal> {
    check_model(body, settings)?;
    let max_model_len = settings.max_model_len;
    let ids = match body.get("prompt") {
        Some(prompt @ Json::String(_)) => tokens::ids(prompt),
        Some(Json::Array(prompts)) if settings.server == ServerKind::Sglang => {
            if !prompts.iter().all(Json::is_string) {
                return Err(not_text());
            }
            let lists: Vec<_> = prompts.iter().map(tokens::ids).collect();
            let counts: Vec<_> = lists.iter().map(Vec::len).collect();
            return Ok(json!({"tokens": lists, "count": counts, "max_model_len": max_model_len}));
        }
        Some(Json::Null) | None => {
            let content = messages(body)?.iter().filter_map(|message| message.get("content"));
            tokens::template_ids().chain(content.flat_map(tokens::ids)).collect()
        }
        Some(_) => return Err(not_text()),
    };
    let count = ids.len();
    Ok(match settings.server {
        ServerKind::Vllm => {
            let texts: Option<Vec<_>> = flag(body, "return_token_strs")?
                .then(|| ids.iter().map(|id| tokens::text(std::slice::from_ref(id))).collect());
            json!({"count": count, "max_model_len": max_model_len, "tokens": ids, "token_strs": texts})
        }
        ServerKind::Sglang => json!({"tokens": ids, "count": count, "max_model_len": max_model_len}),
    })
}

fn not_text() -> Refusal {
    Refusal::invalid("string_type", "body.prompt", "Input should be a valid string")
}

fn text_of(body: &Object, settings: &Settings) -> Result<Json, Refusal> {
    check_model(body, settings)?;
    let ids = body.get("tokens").and_then(Json::as_array);
    let ids = ids.and_then(|ids| ids.iter().map(Json::as_u64).collect::<Option<Vec<_>>>());
    let Some(ids) = ids else {
        return Err(Refusal::invalid("list_type", "body.tokens", "Input should be a valid list"));
    };
    let text = tokens::text(&ids);
    Ok(match settings.server {
        ServerKind::Vllm => json!({"prompt": text}),
        ServerKind::Sglang => json!({"text": text}),
    })
}
