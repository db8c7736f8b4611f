//! What one event says: JSON in, the few facts that stamps and outcomes need out.
//!
//! Nothing is allocated for an ordinary event. Of a text only its presence matters (and, for SGLang's cumulative form,
//! its length), so the text itself is skipped over. Servers differ in types (`content` as a string, `null`, or a list of
//! parts; `finish_reason` as a word or an object), so every field accepts every JSON type and takes from it what it can.
//! A number that cannot be a token count (negative, fractional, absurdly large, in quotes) is no count.
//!
//! JSON that is well formed but no event of any kind we know is [`Parsed::Unshaped`], which is not the same as bad JSON.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use sonic_rs::LazyValue;

use crate::domain::api::Api;
use crate::domain::timeline::Usage;

/// No answer has more tokens than this; a larger count is a server's mistake, and TPOT would be 0 because of it.
const ABSURD_TOKENS: f64 = 10_000_000.0;

/// What else a `finish_reason` may say when the answer did not come to its end.
const FAILURES: [&str; 9] =
    ["abort", "aborted", "canceled", "cancelled", "failed", "failure", "timeout", "timed_out", "time_out"];

/// Longest word that can be the name of a kind of error.
const MAX_ERROR_NAME: usize = 64;

/// Deepest nesting that is handed to the parser, which recurses. Real events have fewer than ten levels.
const MAX_DEPTH: u32 = 64;

/// The facts of one event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts<'a> {
    /// It has the field that makes it an answer: `choices`, or one of SGLang's.
    pub shaped: bool,
    /// It has at least one choice.
    pub has_choice: bool,
    /// Some choice carries answer text.
    pub answer: bool,
    /// Some choice carries reasoning text.
    pub reasoning: bool,
    /// Some choice carries tool calls or a refusal.
    pub other: bool,
    /// Length of SGLang's cumulative output: bytes of `text` and number of `output_ids`.
    pub cumulative: Option<(usize, usize)>,
    /// The usage in it, if any.
    pub usage: Option<Usage>,
    /// The reason it gives for the end of the answer.
    pub finish_reason: Option<Cow<'a, str>>,
    /// It is, or carries, an error object.
    pub error: bool,
}

/// What became of an event's data.
#[derive(Debug, Clone, PartialEq)]
pub enum Parsed<'a> {
    /// An event of the expected kind, or an error object.
    Facts(Facts<'a>),
    /// Well-formed JSON, but not an object or with a field of a shape that no server sends.
    Unshaped,
    /// Not JSON, not UTF-8, or nested deeper than [`MAX_DEPTH`].
    Bad(String),
}

/// Reads one event's data.
#[must_use]
pub fn parse(api: Api, data: &[u8]) -> Parsed<'_> {
    // Checked here and not by the parser, which would hand unchecked text to its visitors before it looks.
    let Ok(text) = std::str::from_utf8(data) else { return Parsed::Bad("not UTF-8".to_owned()) };
    if deeper_than(MAX_DEPTH, data) {
        return Parsed::Bad(format!("JSON nested deeper than {MAX_DEPTH} levels"));
    }
    match api {
        Api::OpenAiChat | Api::OpenAiCompletions => read::<OpenAiEvent<'_>>(text, OpenAiEvent::facts),
        Api::SglangGenerate => read::<SglangEvent<'_>>(text, SglangEvent::facts),
    }
}

fn read<'a, T: Deserialize<'a>>(text: &'a str, facts: impl FnOnce(T) -> Facts<'a>) -> Parsed<'a> {
    // A derived struct would take a list for its fields in their order.
    if text.starts_with('{')
        && let Ok(event) = sonic_rs::from_str::<T>(text)
    {
        let mut facts = facts(event);
        // A second look, only at what is no answer.
        if !facts.shaped && !facts.error && facts.usage.is_none() {
            facts.error = sonic_rs::from_str::<ErrorEvent<'_>>(text).is_ok_and(|event| event.is_error());
        }
        return Parsed::Facts(facts);
    }
    // Some gateways put the error object into a list of one.
    if text.starts_with('[') && sonic_rs::from_str::<Vec<Object<ErrorOnly>>>(text).is_ok_and(|list| any_error(&list)) {
        return Parsed::Facts(Facts { error: true, ..Facts::default() });
    }
    // The slow second look happens only for events that are not what they should be.
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Parsed::Unshaped,
        Err(error) => Parsed::Bad(error.to_string()),
    }
}

/// Whether brackets outside strings nest deeper than `limit`. One pass, no recursion.
fn deeper_than(limit: u32, data: &[u8]) -> bool {
    // A real event has fewer brackets than that altogether, and counting them is several times cheaper.
    if openers(data) <= limit {
        return false;
    }
    let (mut depth, mut in_string, mut escaped) = (0_u32, false, false);
    for byte in data {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// How many `[` and `{` there are. In blocks whose count fits a byte, so that the compiler can take 16 or 32 bytes at once:
/// counted one by one they cost a fifth of the whole event.
fn openers(data: &[u8]) -> u32 {
    let block = |bytes: &[u8]| bytes.iter().fold(0_u8, |count, byte| count.wrapping_add(u8::from(byte | 0x20 == b'{')));
    data.chunks(usize::from(u8::MAX)).map(|bytes| u32::from(block(bytes))).sum()
}

#[derive(Deserialize)]
struct OpenAiEvent<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Object<Choice<'a>>>>,
    #[serde(default)]
    usage: Object<UsageField>,
    #[serde(default)]
    error: Present,
}

/// An element of a list of errors.
#[derive(Deserialize)]
struct ErrorOnly {
    #[serde(default)]
    error: Present,
}

fn any_error(list: &[Object<ErrorOnly>]) -> bool {
    list.iter().any(|element| element.0.as_ref().is_some_and(|element| element.error.0))
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    delta: Object<Delta>,
    #[serde(default)]
    text: Present,
    #[serde(borrow, default)]
    finish_reason: Word<'a>,
    #[serde(default)]
    error: Present,
}

#[derive(Deserialize, Default)]
struct Delta {
    #[serde(default)]
    content: Present,
    #[serde(default)]
    reasoning_content: Present,
    #[serde(default)]
    reasoning: Present,
    #[serde(default)]
    tool_calls: Present,
    #[serde(default)]
    refusal: Present,
}

#[derive(Deserialize, Default)]
struct UsageField {
    #[serde(default)]
    completion_tokens: Count,
    #[serde(default)]
    prompt_tokens: Count,
    #[serde(default)]
    prompt_tokens_details: Object<PromptDetails>,
    #[serde(default)]
    completion_tokens_details: Object<CompletionDetails>,
    /// Some servers report it here, not in the details.
    #[serde(default)]
    reasoning_tokens: Count,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Count,
}

#[derive(Deserialize)]
struct CompletionDetails {
    #[serde(default)]
    reasoning_tokens: Count,
}

#[derive(Deserialize)]
struct SglangEvent<'a> {
    #[serde(default)]
    text: Option<Length>,
    #[serde(default)]
    output_ids: Option<Length>,
    #[serde(borrow, default)]
    meta_info: Object<MetaInfo<'a>>,
    #[serde(default)]
    error: Present,
}

/// The ways to say that something went wrong without a field called `error`.
#[derive(Deserialize)]
struct ErrorEvent<'a> {
    #[serde(default)]
    errors: Present,
    #[serde(default)]
    detail: Present,
    #[serde(borrow, default)]
    object: Word<'a>,
    #[serde(borrow, default, rename = "type")]
    kind: Word<'a>,
    #[serde(borrow, default)]
    status: Word<'a>,
    #[serde(borrow, default)]
    message: Word<'a>,
    #[serde(default)]
    code: Present,
}

#[derive(Deserialize)]
struct MetaInfo<'a> {
    #[serde(default)]
    completion_tokens: Count,
    #[serde(default)]
    prompt_tokens: Count,
    #[serde(default)]
    cached_tokens: Count,
    #[serde(default)]
    reasoning_tokens: Count,
    #[serde(borrow, default)]
    finish_reason: Word<'a>,
}

impl<'a> OpenAiEvent<'a> {
    fn facts(self) -> Facts<'a> {
        let mut facts = Facts {
            shaped: self.choices.is_some(),
            usage: self.usage.0.map(UsageField::usage),
            error: self.error.0,
            ..Facts::default()
        };
        for choice in self.choices.into_iter().flatten().filter_map(|choice| choice.0) {
            let delta = choice.delta.0.unwrap_or_default();
            facts.has_choice = true;
            facts.answer |= choice.text.0 || delta.content.0;
            facts.reasoning |= delta.reasoning_content.0 || delta.reasoning.0;
            facts.other |= delta.tool_calls.0 || delta.refusal.0;
            facts.error |= choice.error.0 || choice.finish_reason.is_failure();
            facts.finish_reason = choice.finish_reason.0.or(facts.finish_reason);
        }
        facts
    }
}

impl UsageField {
    fn usage(self) -> Usage {
        let details = self.completion_tokens_details.0.and_then(|details| details.reasoning_tokens.0);
        Usage {
            completion_tokens: self.completion_tokens.0,
            prompt_tokens: self.prompt_tokens.0,
            cached_tokens: self.prompt_tokens_details.0.and_then(|details| details.cached_tokens.0),
            reasoning_tokens: details.or(self.reasoning_tokens.0),
        }
    }
}

impl<'a> SglangEvent<'a> {
    fn facts(self) -> Facts<'a> {
        let length = |field: &Option<Length>| field.as_ref().map_or(0, |length| length.0);
        let shaped = self.text.is_some() || self.output_ids.is_some() || self.meta_info.0.is_some();
        let mut facts = Facts {
            shaped,
            has_choice: shaped,
            cumulative: shaped.then(|| (length(&self.text), length(&self.output_ids))),
            error: self.error.0,
            ..Facts::default()
        };
        if let Some(meta) = self.meta_info.0 {
            facts.usage = Some(Usage {
                completion_tokens: meta.completion_tokens.0,
                prompt_tokens: meta.prompt_tokens.0,
                cached_tokens: meta.cached_tokens.0,
                reasoning_tokens: meta.reasoning_tokens.0,
            });
            facts.error |= meta.finish_reason.is_failure();
            facts.finish_reason = meta.finish_reason.0;
        }
        facts
    }
}

/// Whether a field holds something: a non-empty string, list or object, `true`, or a number other than 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Present(bool);

/// A token count, where the field holds a number that can be one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count(Option<u32>);

/// The length of a string in bytes, or of a list in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Length(usize);

/// A word, or the `type` of an object that stands in its place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Word<'a>(Option<Cow<'a, str>>);

/// The fields of an object. Anything else in its place is nothing: a derived struct would take a list for its fields in
/// their order.
#[derive(Debug, Clone)]
struct Object<T>(Option<T>);

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl Word<'_> {
    fn is(&self, word: &str) -> bool {
        self.0.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(word))
    }

    /// `error`, `server_error`, `InternalServerError`, …
    fn names_error(&self) -> bool {
        self.0.as_deref().is_some_and(|own| own.len() <= MAX_ERROR_NAME && own.to_ascii_lowercase().ends_with("error"))
    }

    /// Whether a `finish_reason` says that the answer did not come to its end.
    fn is_failure(&self) -> bool {
        self.names_error() || FAILURES.iter().any(|word| self.is(word))
    }
}

impl ErrorEvent<'_> {
    fn is_error(&self) -> bool {
        let named = self.object.names_error() || self.kind.names_error() || self.status.names_error();
        self.errors.0 || self.detail.0 || named || (self.message.0.is_some() && self.code.0)
    }
}

/// Implements the visitor methods that take a scalar for which the field has no use.
macro_rules! ignore_scalars {
    ($value:expr; $($method:ident($kind:ty)),*) => {
        $(fn $method<E: de::Error>(self, _: $kind) -> Result<Self::Value, E> {
            Ok($value)
        })*
        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any JSON value")
        }
    };
}

/// Reads a list or object to its end and says how many entries it had.
fn drain_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<usize, A::Error> {
    let mut entries = 0;
    while seq.next_element::<IgnoredAny>()?.is_some() {
        entries += 1;
    }
    Ok(entries)
}

fn drain_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<usize, A::Error> {
    let mut entries = 0;
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
        entries += 1;
    }
    Ok(entries)
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;
            ignore_scalars!(Object(None); visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64), visit_str(&str));
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Object<T>, A::Error> {
                drain_seq(seq).map(|_| Object(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|fields| Object(Some(fields)))
            }
        }
        deserializer.deserialize_any(ObjectVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PresentVisitor;
        impl<'de> Visitor<'de> for PresentVisitor {
            type Value = Present;
            ignore_scalars!(Present(false););
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Present, E> {
                Ok(Present(value))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Present, E> {
                Ok(Present(value != 0))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Present, E> {
                Ok(Present(value != 0))
            }
            fn visit_f64<E: de::Error>(self, _: f64) -> Result<Present, E> {
                Ok(Present(true))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Present, E> {
                Ok(Present(!value.is_empty()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Present, A::Error> {
                Ok(Present(drain_seq(seq)? > 0))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Present, A::Error> {
                Ok(Present(drain_map(map)? > 0))
            }
        }
        deserializer.deserialize_any(PresentVisitor)
    }
}

impl<'de> Deserialize<'de> for Count {
    /// Taken as text and read afterwards: a number that no machine can hold would otherwise cost the whole event.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "only whole numbers within the range of a count get there"
    )]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = LazyValue::deserialize(deserializer)?;
        let number = value.as_raw_str().parse::<f64>().ok();
        Ok(Self(number.filter(|n| n.fract() == 0.0 && (0.0..=ABSURD_TOKENS).contains(n)).map(|n| n as u32)))
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LengthVisitor;
        impl<'de> Visitor<'de> for LengthVisitor {
            type Value = Length;
            ignore_scalars!(Length(0); visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64));
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Length, E> {
                Ok(Length(value.len()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Length, A::Error> {
                drain_seq(seq).map(Length)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Length, A::Error> {
                drain_map(map).map(|_| Length(0))
            }
        }
        deserializer.deserialize_any(LengthVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Word<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordVisitor;
        impl<'de> Visitor<'de> for WordVisitor {
            type Value = Word<'de>;
            ignore_scalars!(Word(None); visit_bool(bool), visit_u64(u64), visit_i64(i64), visit_f64(f64));
            fn visit_borrowed_str<E: de::Error>(self, value: &'de str) -> Result<Word<'de>, E> {
                Ok(Word(Some(Cow::Borrowed(value)).filter(|value| !value.is_empty())))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Word<'de>, E> {
                Ok(Word(Some(Cow::Owned(value.to_owned())).filter(|value: &Cow<'_, str>| !value.is_empty())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Word<'de>, A::Error> {
                drain_seq(seq).map(|_| Word(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Word<'de>, A::Error> {
                let mut word = Word(None);
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    if key == "type" {
                        // One level is enough: a type that is itself an object says nothing.
                        word = map.next_value::<Kind<'de>>()?.0;
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(word)
            }
        }
        deserializer.deserialize_any(WordVisitor)
    }
}

/// The `type` inside a [`Word`]'s object.
struct Kind<'a>(Word<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Kind<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Kind(Word(Option::<Cow<'de, str>>::deserialize(deserializer)?)))
    }
}

#[cfg(test)]
mod tests;
