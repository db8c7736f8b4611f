//! Targets.

use std::path::PathBuf;

use config::ValueKind;
use url::Url;

use super::reader::{Checker, Entry, Section};
use super::value::WAIT;
use super::{body, headers, secret, url as urls, vocabulary};
use crate::config::fault::Finding;
use crate::config::origin::Literal;
use crate::config::read::resolved;
use crate::config::sections::{MaxTokensField, SendFields, Target, Timeouts};
use crate::domain::api::Api;

/// Longest file of certificate authorities; a system's whole bundle has 0.3 MB.
const MAX_CA_BYTES: u64 = 4 * 1024 * 1024;

/// One target.
pub(super) fn target(checker: &mut Checker<'_>, name: &str, section: &Section<'_>) -> Option<Target> {
    let base_url = checker.entry(section, "base_url").map(|entry| urls::base_url(checker, &entry));
    let model = checker.entry(section, "model").map(|entry| model(checker, &entry));
    let api = api(checker, section);
    let endpoint = endpoint(checker, section, api);
    let key = secret::secret(checker, section, &secret::API_KEY);
    let has_key = section.table.contains_key("api_key_env") || section.table.contains_key("api_key_file");
    let timeouts = timeouts(checker, section);
    let send = send(checker, section);
    let headers = headers::headers(checker, section, has_key);
    let body = body::body(checker, section, api);
    let ca_file = ca_file(checker, section);
    checker.close(section, &vocabulary::TARGET);
    belong_together(checker, section, base_url.is_some(), model.is_some());
    let (base_url, model) = (base_url??, model??);
    let (endpoint, api_key, headers) = (endpoint?, key?, headers?);
    let authorized = headers.keys().any(|name| crate::config::redact::header_names_a_secret(name));
    if api_key.is_none() && !authorized {
        keyless(checker, section, &base_url);
    }

    Some(Target {
        name: name.to_owned(),
        base_url,
        endpoint,
        api_key,
        model,
        api: api?,
        timeouts: timeouts?,
        headers,
        body: body?,
        send: send?,
        ca_file: ca_file?,
    })
}

fn model(checker: &mut Checker<'_>, entry: &Entry<'_>) -> Option<String> {
    let model = checker.filled_text(entry, "MODEL")?;
    checker.keep(entry, format!("\"{}\"", model.escape_debug()));
    Some(model.to_owned())
}

fn api(checker: &mut Checker<'_>, section: &Section<'_>) -> Option<Api> {
    checker.choice_or(section, "api", &Api::ALL.map(|api| (api.name(), api)), Api::OpenAiChat)
}

fn endpoint(checker: &mut Checker<'_>, section: &Section<'_>, api: Option<Api>) -> Option<Option<String>> {
    match checker.entry(section, "endpoint") {
        Some(entry) => urls::endpoint(checker, &entry).map(Some),
        None => {
            if let Some(api) = api {
                checker.keep_default(section, "endpoint", format!("\"{}\"", api.default_endpoint()));
            }
            Some(None)
        }
    }
}

fn timeouts(checker: &mut Checker<'_>, target: &Section<'_>) -> Option<Timeouts> {
    let default = Timeouts::default();
    let section = checker.inner(target, "timeouts", &Literal::table("total", Literal::text("2m")))?;
    let connect = checker.duration_or(&section, "connect", default.connect, &WAIT);
    let first_token = checker.duration_or(&section, "first_token", default.first_token, &WAIT);
    let idle = checker.duration_or(&section, "idle", default.idle, &WAIT);
    let total = checker.duration_or(&section, "total", default.total, &WAIT);
    checker.close(&section, &vocabulary::TIMEOUTS);
    let timeouts = Timeouts { connect: connect?, first_token: first_token?, idle: idle?, total: total? };
    if timeouts.total >= timeouts.first_token {
        return Some(timeouts);
    }
    let shown = humantime::format_duration;
    let entry = checker.entry(&section, "total").or_else(|| checker.entry(&section, "first_token"))?;
    let of = |key| match checker.entry(&section, key) {
        Some(entry) => entry.origin.to_string(),
        None => "default".to_owned(),
    };
    let what = format!(
        "total {} ({}) is shorter than first_token {} ({}): no request could ever wait so long",
        shown(timeouts.total),
        of("total"),
        shown(timeouts.first_token),
        of("first_token")
    );
    checker.wrong(&entry, what, "make total at least as long as first_token")
}

fn send(checker: &mut Checker<'_>, target: &Section<'_>) -> Option<SendFields> {
    let default = SendFields::default();
    let section = checker.inner(target, "send", &Literal::table("ignore_eos", Literal::bare("true")))?;
    let ignore_eos = checker.truth_or(&section, "ignore_eos", default.ignore_eos);
    let min_tokens = checker.truth_or(&section, "min_tokens", default.min_tokens);
    let temperature = temperature(checker, &section, default.temperature);
    let include_usage = checker.truth_or(&section, "include_usage", default.include_usage);
    // Who switches off the one has switched off the other.
    let continuous = default.continuous_usage_stats && include_usage != Some(false);
    let continuous_usage_stats = checker.truth_or(&section, "continuous_usage_stats", continuous);
    let fields = [MaxTokensField::MaxTokens, MaxTokensField::MaxCompletionTokens].map(|field| (field.name(), field));
    let max_tokens_field = checker.choice_or(&section, "max_tokens_field", &fields, default.max_tokens_field);
    checker.close(&section, &vocabulary::SEND);
    if include_usage == Some(false) && continuous_usage_stats == Some(true) {
        let entry = checker.entry(&section, "continuous_usage_stats")?;
        let off = entry.written(&Literal::bare("false"));
        let what = "is true while include_usage is false: counts with every event need counts at all";
        return checker.wrong(&entry, what, format!("write `{off}`, or set include_usage to true"));
    }
    Some(SendFields {
        ignore_eos: ignore_eos?,
        min_tokens: min_tokens?,
        temperature: temperature?,
        include_usage: include_usage?,
        continuous_usage_stats: continuous_usage_stats?,
        max_tokens_field: max_tokens_field?,
    })
}

/// A temperature, or `false` for none.
fn temperature(checker: &mut Checker<'_>, section: &Section<'_>, default: Option<f64>) -> Option<Option<f64>> {
    let Some(entry) = checker.entry(section, "temperature") else {
        let shown = default.map_or_else(|| "false".to_owned(), |number| format!("{number:?}"));
        checker.keep_default(section, "temperature", shown);
        return Some(default);
    };
    let off = matches!(entry.value.kind, ValueKind::Boolean(false));
    if off || (entry.origin.is_text() && entry.as_text() == Some("false")) {
        checker.keep(&entry, "false".to_owned());
        return Some(None);
    }
    let wants = "a temperature, 0 or more, or false to send none";
    let number = checker.number(&entry, wants, 0.0)?;
    if number < 0.0 {
        let help = format!("write `{}`", entry.written(&Literal::bare("0")));
        return checker.wrong(&entry, format!("is {number}, wants {wants}"), help);
    }
    checker.keep(&entry, format!("{number:?}"));
    Some(Some(number))
}

fn ca_file(checker: &mut Checker<'_>, section: &Section<'_>) -> Option<Option<PathBuf>> {
    let Some(entry) = checker.entry(section, "ca_file") else { return Some(None) };
    let named = checker.filled_text(&entry, "/etc/ssl/gateway-ca.pem")?;
    let path = resolved(named, &entry.origin);
    let help = "name a PEM file of certificates that this user may read";
    let shown = path.display();
    let read = std::fs::metadata(&path).and_then(|found| {
        // A pipe or a device may never end.
        let plain = found.is_file() && found.len() <= MAX_CA_BYTES;
        if plain { std::fs::read(&path) } else { Ok(Vec::new()) }
    });
    match read {
        Err(error) => checker.wrong(&entry, format!("file {shown} cannot be read: {error}"), help),
        Ok(bytes) if !contains(&bytes, b"-----BEGIN CERTIFICATE-----") => {
            checker.wrong(&entry, format!("file {shown} holds no certificate (-----BEGIN CERTIFICATE-----)"), help)
        }
        Ok(_) => {
            checker.keep(&entry, format!("\"{}\"", named.escape_debug()));
            Some(Some(path))
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Base URL, key and model belong to one gateway: says which of them are there when one is missing.
fn belong_together(checker: &mut Checker<'_>, section: &Section<'_>, has_url: bool, has_model: bool) {
    let there = |checker: &Checker<'_>| -> Vec<String> {
        let keys = ["base_url", "api_key_env", "api_key_file", "model"];
        let entries = keys.iter().filter_map(|key| checker.entry(section, key));
        entries.map(|entry| format!("{} ({})", entry.path.last(), entry.origin)).collect()
    };
    for (has, key, example) in [(has_url, "base_url", urls::EXAMPLE), (has_model, "model", "MODEL")] {
        if has || checker.is_misspelt(section, &vocabulary::TARGET, key) {
            continue;
        }
        let there = there(checker);
        let there = if there.is_empty() { "none of them".to_owned() } else { there.join(" and ") };
        let path = section.path.child(key);
        let written = section.origin.written(&path, &Literal::text(example));
        let what = format!("is missing: base URL, key and model belong together, and there is {there}");
        let more = if key == "model" { ", MODEL as the gateway lists it at /v1/models" } else { "" };
        checker.absent(section, &path, what, format!("write `{written}`{more}"));
    }
}

/// A gateway on the other side of TLS wants a key nearly always.
fn keyless(checker: &mut Checker<'_>, section: &Section<'_>, url: &Url) {
    if url.scheme() != "https" || urls::is_loopback(url) {
        return;
    }
    let path = section.path.child("api_key_env");
    let written = section.origin.written(&path, &Literal::text("GATEWAY_API_KEY"));
    let what = "base_url and model are there but no key: the gateway may answer 401";
    checker.warn(Finding::at(&section.origin, &section.path, what, format!("write `{written}` if it wants one")));
}
