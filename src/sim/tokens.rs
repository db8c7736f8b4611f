//! Tokens without a tokenizer: four bytes of text are one, a number in a list of ids is one.
//!
//! Never a model's own count, but always the same one: what is checked against the context, what the usage says and
//! what `/tokenize` lists all come from [`leaves`]. An id is the four bytes as a number, smallest byte first, so that
//! `/detokenize` needs no table; text whose token ends in NUL bytes loses these.

use serde_json::Value as Json;

/// Tokens that a chat template adds around the messages.
pub(crate) const TEMPLATE_TOKENS: usize = 8;

/// Ids from here on are the template's: no four bytes of text reach them.
const FIRST_TEMPLATE_ID: u64 = 1 << 32;

const BYTES: usize = 4;

/// The parts of a prompt that are counted.
#[derive(Debug, Clone, Copy)]
enum Leaf<'a> {
    Text(&'a str),
    Id(u64),
}

/// Calls `each` with every text and id in a prompt or in a message's content.
fn leaves<'a>(value: &'a Json, each: &mut impl FnMut(Leaf<'a>)) {
    match value {
        Json::String(text) => each(Leaf::Text(text)),
        Json::Number(id) => each(Leaf::Id(id.as_u64().unwrap_or_default())),
        Json::Array(parts) => parts.iter().for_each(|part| leaves(part, each)),
        Json::Object(part) => {
            if let Some(text) = part.get("text") {
                leaves(text, each);
            }
        }
        Json::Null | Json::Bool(_) => {}
    }
}

/// How many tokens a prompt or a message's content has.
pub(crate) fn count(value: &Json) -> usize {
    let mut count = 0;
    leaves(value, &mut |leaf| {
        count += match leaf {
            Leaf::Text(text) => text.len().div_ceil(BYTES),
            Leaf::Id(_) => 1,
        }
    });
    count
}

/// The ids of these tokens, as many as [`count`] says.
pub(crate) fn ids(value: &Json) -> Vec<u64> {
    let mut ids = Vec::new();
    leaves(value, &mut |leaf| match leaf {
        Leaf::Text(text) => ids.extend(text.as_bytes().chunks(BYTES).map(id_of)),
        Leaf::Id(id) => ids.push(id),
    });
    ids
}

/// The ids of what a chat template adds.
pub(crate) fn template_ids() -> impl Iterator<Item = u64> {
    (FIRST_TEMPLATE_ID..).take(TEMPLATE_TOKENS)
}

fn id_of(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |id, byte| id << 8 | u64::from(*byte))
}

/// The bytes of one token.
fn bytes_of(id: u64) -> Vec<u8> {
    match id.checked_sub(FIRST_TEMPLATE_ID) {
        Some(index) => format!("<|template_{index}|>").into_bytes(),
        None => id.to_le_bytes().into_iter().take(BYTES).take_while(|byte| *byte != 0).collect(),
    }
}

/// The text of these tokens. A character that is cut off at either end becomes `\u{fffd}`.
pub(crate) fn text(ids: &[u64]) -> String {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| bytes_of(*id)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn there_are_as_many_ids_as_tokens_are_counted() {
        for value in [
            json!(""),
            json!("abcd"),
            json!("abcde"),
            json!("日本語 🙂"),
            json!([1, 2, 3]),
            json!(["one", "two", [4, 5]]),
            json!([{"type": "text", "text": "hello"}, {"type": "image_url", "image_url": {"url": "x"}}]),
            json!(null),
        ] {
            assert_eq!(ids(&value).len(), count(&value), "{value}");
        }
        assert_eq!((count(&json!("abcde")), count(&json!([1, 2, 3]))), (2, 3));
    }

    #[test]
    fn ids_read_back_as_the_text() {
        for words in ["", "a", "abcd", "abcde", "日本語 🙂 naïve\n"] {
            assert_eq!(text(&ids(&json!(words))), words);
        }
        assert_eq!(text(&template_ids().take(1).collect::<Vec<_>>()), "<|template_0|>");
        assert_eq!(text(&ids(&json!("日本"))[..1]), "日\u{fffd}", "a token may end inside a character");
    }
}
