//! Reading what a tokenizer's folder holds, each file up to a limit.
//!
//! What servers do is followed: `chat_template.jinja` wins over `chat_template.json`, and that over `tokenizer_config.json`.
//! Of several templates in one file the one named `default` is taken, as a request without tools gets.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use serde_json::Value;

use super::tokenizer::OpenError;

/// Largest `tokenizer.json`. The largest vocabularies in use, of a quarter of a million entries, have files of 35 MB.
pub(super) const MAX_TOKENIZER: u64 = 128 << 20;

/// Largest of the other files. Those in use have up to a few hundred kilobytes, most of them added tokens.
pub(super) const MAX_CONFIG: u64 = 8 << 20;

/// What the configuration of a tokenizer says of chats.
#[derive(Debug, Default)]
pub(super) struct Chat {
    /// The template's text.
    pub(super) template: Option<String>,
    /// `bos_token`, `eos_token` and others by their names, as templates know them.
    pub(super) special: BTreeMap<String, String>,
}

/// The bytes of a file; none if there is no such file.
pub(super) fn read(dir: &Path, name: &str, limit: u64) -> Result<Option<Vec<u8>>, OpenError> {
    let path = dir.join(name);
    let unreadable = |source| OpenError::Read { path: path.clone(), source };
    // Asked before it is opened: opening a pipe would wait for its writer.
    match path.metadata() {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => return Err(unreadable(io::Error::new(ErrorKind::InvalidInput, "not a regular file"))),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    }
    let mut bytes = Vec::new();
    File::open(&path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > limit) {
        return Err(OpenError::TooLarge { path, limit });
    }
    Ok(Some(bytes))
}

/// The chat template and the special tokens of a folder.
pub(super) fn chat(dir: &Path) -> Result<Chat, OpenError> {
    let config = json(dir, "tokenizer_config.json")?;
    let special = config.as_ref().map(special).unwrap_or_default();
    let template = match read(dir, "chat_template.jinja", MAX_CONFIG)? {
        Some(bytes) => {
            let path = dir.join("chat_template.jinja");
            Some(String::from_utf8(bytes).map_err(|source| OpenError::NotUtf8 { path, source: source.utf8_error() })?)
        }
        None => {
            json(dir, "chat_template.json")?.as_ref().and_then(template).or_else(|| config.as_ref().and_then(template))
        }
    };
    Ok(Chat { template, special })
}

fn json(dir: &Path, name: &str) -> Result<Option<Value>, OpenError> {
    let Some(bytes) = read(dir, name, MAX_CONFIG)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|source| OpenError::NotJson { path: dir.join(name), source })
}

/// The text under `chat_template`, or that of the entry `default` in a list of them.
fn template(config: &Value) -> Option<String> {
    let value = config.get("chat_template")?;
    let text = match value.as_array() {
        None => value.as_str(),
        Some(entries) => entries
            .iter()
            .find(|entry| entry.get("name").and_then(Value::as_str) == Some("default"))
            .and_then(|entry| entry.get("template")?.as_str()),
    };
    text.map(str::to_owned)
}

/// Every `…_token` that is a text or has one under `content`.
fn special(config: &Value) -> BTreeMap<String, String> {
    let entries = config.as_object().into_iter().flatten();
    entries
        .filter(|(name, _)| name.ends_with("_token"))
        .filter_map(|(name, value)| {
            let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
            Some((name.clone(), text.to_owned()))
        })
        .collect()
}
