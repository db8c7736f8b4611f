//! Extra fields of the request body.
//!
//! They are for the gateway, so any name and any JSON is right, but for the fields that are ours and for keys.

use config::{Value, ValueKind};
use serde_json::{Map, Number, Value as Json};

use super::reader::{Checker, Entry, Section};
use crate::config::origin::{Literal, Origin};
use crate::config::read::REPORTED;
use crate::config::redact;
use crate::domain::api::Api;

/// The `body` of a target, fields in the order of their names.
pub(super) fn body(checker: &mut Checker<'_>, target: &Section<'_>, api: Option<Api>) -> Option<Map<String, Json>> {
    let Some(entry) = checker.entry(target, "body") else { return Some(Map::new()) };
    if let (ValueKind::String(text), true) = (&entry.value.kind, entry.origin.is_text()) {
        return from_text(checker, &entry, text, api);
    }
    let section = checker.table(&entry, &Literal::table("top_k", Literal::bare("5")))?;
    let mut names: Vec<_> = section.table.keys().collect();
    names.sort();
    let mut fields = Map::new();
    let mut whole = true;
    for name in names {
        let Some(entry) = checker.entry(&section, name) else { continue };
        let value = match &entry.origin {
            Origin::Environment(_) => {
                let help = format!(
                    "write it in a file, or the whole body as JSON: {}={{\"top_k\":5}}",
                    entry.origin.named(&section.path)
                );
                checker.wrong(
                    &entry,
                    "body fields cannot be set by a variable: its name has lost the field's case",
                    help,
                )
            }
            Origin::Flag(_) => from_flag(checker, &entry),
            Origin::File(_) | Origin::Default => json(checker, &entry, entry.value),
        };
        whole &= field(checker, &entry, value, api, &mut fields).is_some();
    }
    whole.then_some(fields)
}

/// A variable or a flag that holds the whole body.
fn from_text(checker: &mut Checker<'_>, entry: &Entry<'_>, text: &str, api: Option<Api>) -> Option<Map<String, Json>> {
    let Ok(Json::Object(found)) = serde_json::from_str(text) else {
        let help = format!("write an object: {}={{\"top_k\":5}}", entry.origin.named(&entry.path));
        return checker.wrong(entry, "is no JSON object", help);
    };
    let mut fields = Map::new();
    let mut whole = true;
    for (name, value) in found {
        let entry = Entry { path: entry.path.child(&name), origin: entry.origin.clone(), value: entry.value };
        whole &= field(checker, &entry, Some(value), api, &mut fields).is_some();
    }
    whole.then_some(fields)
}

/// Takes one field, unless it is ours or holds a key.
fn field(
    checker: &mut Checker<'_>,
    entry: &Entry<'_>,
    value: Option<Json>,
    api: Option<Api>,
    fields: &mut Map<String, Json>,
) -> Option<()> {
    let name = entry.path.last();
    if let Some(help) = ours(name, api) {
        return checker.wrong(entry, "is a field that steadyload sets itself", help);
    }
    let value = value?;
    if holds_key(name, &value) {
        return checker.key_written(entry);
    }
    checker.keep(entry, value.to_string());
    fields.insert(name.to_owned(), value);
    Some(())
}

/// A flag's text as JSON: a body field may have any type, so the text must say which.
fn from_flag(checker: &mut Checker<'_>, entry: &Entry<'_>) -> Option<Json> {
    let ValueKind::String(text) = &entry.value.kind else { return json(checker, entry, entry.value) };
    match serde_json::from_str(text) {
        Ok(value) => Some(value),
        Err(_) if redact::is_key(text) => checker.key_written(entry),
        Err(_) => {
            let named = entry.origin.named(&entry.path);
            let what = format!("is the text {}, wants JSON: a body field may have any type", redact::quoted(text));
            checker.wrong(entry, what, format!("write {named}='\"text\"', {named}=5 or {named}=true"))
        }
    }
}

fn json(checker: &mut Checker<'_>, entry: &Entry<'_>, value: &Value) -> Option<Json> {
    if value.origin() == Some(REPORTED) {
        return None;
    }
    let number = |number: Option<Number>| number.map(Json::Number);
    let converted = match &value.kind {
        ValueKind::Nil => Some(Json::Null),
        ValueKind::Boolean(truth) => Some(Json::Bool(*truth)),
        ValueKind::String(text) => Some(Json::String(text.clone())),
        ValueKind::I64(whole) => number(Some((*whole).into())),
        ValueKind::U64(whole) => number(Some((*whole).into())),
        ValueKind::I128(whole) => number(Number::from_i128(*whole)),
        ValueKind::U128(whole) => number(Number::from_u128(*whole)),
        ValueKind::Float(float) => number(Number::from_f64(*float)),
        ValueKind::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| json(checker, entry, item)).collect();
            return items.into_iter().collect::<Option<Vec<_>>>().map(Json::Array);
        }
        ValueKind::Table(table) => {
            let mut names: Vec<_> = table.keys().collect();
            names.sort();
            let mut fields = Map::new();
            let mut whole = true;
            for name in names {
                let Some(inner) = table.get(name) else { continue };
                match json(checker, entry, inner) {
                    Some(value) => drop(fields.insert(name.clone(), value)),
                    None => whole = false,
                }
            }
            return whole.then_some(Json::Object(fields));
        }
    };
    match converted {
        Some(value) => Some(value),
        None => checker.wrong(entry, "holds a number that JSON does not have", "write a finite number below 2^64"),
    }
}

/// What to set instead of a field that is ours.
fn ours(name: &str, api: Option<Api>) -> Option<&'static str> {
    Some(match name {
        "model" => "set the target's model",
        "messages" | "prompt" | "text" => "the prompt is made from the workload: set its input_tokens and seed",
        "stream" => "remove it: without a stream there are no latencies to measure",
        "stream_options" => "set include_usage and continuous_usage_stats in the target's send",
        "max_tokens" | "max_completion_tokens" => {
            "set the workload's output_tokens; which of the two names is sent is max_tokens_field in the target's send"
        }
        "ignore_eos" | "min_tokens" | "temperature" => "set it in the target's send",
        "sampling_params" if api == Some(Api::SglangGenerate) => {
            "set the workload's output_tokens, and temperature and ignore_eos in the target's send; other sampling \
             parameters are not in this version"
        }
        "sampling_params" => "write its fields into the body itself: only sglang-generate has sampling_params",
        _ => return None,
    })
}

/// Whether a key is written in the field, at any depth.
fn holds_key(name: &str, value: &Json) -> bool {
    match value {
        Json::String(text) => redact::is_key(text) || redact::names_a_secret(name),
        Json::Array(items) => items.iter().any(|item| holds_key(name, item)),
        Json::Object(fields) => fields.iter().any(|(name, value)| redact::is_key(name) || holds_key(name, value)),
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
    }
}
