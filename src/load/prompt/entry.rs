//! One entry of a data set: what is said, and how long the answer was.
//!
//! Fields that are not ours are left alone: these files have many.

use serde::Deserialize;

use crate::domain::prompt::{Message, Role};

/// Longest answer that a line may ask for.
const MAX_TOKENS: u32 = 1_000_000;

/// How a file's entries are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `{"conversations": [{"from": …, "value": …}, …]}`.
    ShareGpt,
    /// `{"prompt": …}` or `{"messages": […]}`.
    Jsonl,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// What is said; at least one message.
    pub(super) messages: Vec<Message>,
    /// What is said about the answer.
    pub(super) answer: Answer,
}

/// How long an answer is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// The entry does not say.
    Unsaid,
    /// So many tokens.
    Tokens(u32),
    /// As long as this one.
    Like(String),
}

/// What there is in place of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unfit {
    /// A conversation without two turns, which the benchmark tools leave out too.
    Short,
    /// It is no entry; why.
    Broken(String),
}

#[derive(Deserialize)]
struct Conversation {
    conversations: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    value: String,
}

#[derive(Deserialize)]
struct Line {
    prompt: Option<String>,
    messages: Option<Vec<Said>>,
    max_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Said {
    role: String,
    content: Content,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<TextPart>),
}

#[derive(Deserialize)]
struct TextPart {
    text: String,
}

/// Reads an entry.
pub(super) fn read(form: Form, bytes: &[u8]) -> Result<Entry, Unfit> {
    let text = std::str::from_utf8(bytes).map_err(|_| Unfit::Broken("is not UTF-8".to_owned()))?;
    match form {
        Form::ShareGpt => conversation(parsed(text)?),
        Form::Jsonl => line(parsed(text)?),
    }
}

fn parsed<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Unfit> {
    serde_json::from_str(text).map_err(|error| {
        let whole = error.to_string();
        // The place is within the entry; the line in the file is said by whoever knows it.
        let what = whole.rsplit_once(" at line ").map_or(whole.as_str(), |(what, _)| what);
        Unfit::Broken(what.chars().take(200).collect())
    })
}

/// The first two turns, whoever says them, as the benchmark tools take them.
fn conversation(Conversation { conversations }: Conversation) -> Result<Entry, Unfit> {
    let mut turns = conversations.into_iter().map(|turn| turn.value);
    let (Some(prompt), Some(answer)) = (turns.next(), turns.next()) else { return Err(Unfit::Short) };
    if prompt.trim().is_empty() || answer.trim().is_empty() {
        return Err(Unfit::Short);
    }
    Ok(Entry { messages: vec![Message::user(prompt)], answer: Answer::Like(answer) })
}

fn line(Line { prompt, messages, max_tokens }: Line) -> Result<Entry, Unfit> {
    let broken = |what: &str| Err(Unfit::Broken(what.to_owned()));
    let messages = match (prompt, messages) {
        (Some(prompt), None) => vec![Message::user(prompt)],
        (None, Some(said)) => said.into_iter().map(message).collect::<Result<_, _>>()?,
        (Some(_), Some(_)) => return broken("has both prompt and messages"),
        (None, None) => return broken("has neither prompt nor messages"),
    };
    if messages.iter().all(|message| message.text.trim().is_empty()) {
        return broken("says nothing");
    }
    let answer = match max_tokens {
        None => Answer::Unsaid,
        Some(tokens) => match u32::try_from(tokens).ok().filter(|tokens| (1..=MAX_TOKENS).contains(tokens)) {
            Some(tokens) => Answer::Tokens(tokens),
            None => return broken("max_tokens is not from 1 to 1_000_000"),
        },
    };
    Ok(Entry { messages, answer })
}

fn message(Said { role, content }: Said) -> Result<Message, Unfit> {
    let roles = [Role::System, Role::User, Role::Assistant];
    let Some(role) = roles.into_iter().find(|known| known.name() == role) else {
        return Err(Unfit::Broken("has a role that is none of system, user, assistant".to_owned()));
    };
    let text = match content {
        Content::Text(text) => text,
        Content::Parts(parts) => parts.into_iter().map(|part| part.text).collect(),
    };
    Ok(Message { role, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str, answer: Answer) -> Result<Entry, Unfit> {
        Ok(Entry { messages: vec![Message::user(text)], answer })
    }

    #[test]
    fn the_first_two_turns_of_a_conversation_are_taken() {
        let read = |text: &str| read(Form::ShareGpt, text.as_bytes());
        let three =
            r#"{"id":"a","conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a b"},{"value":"x"}]}"#;
        assert_eq!(read(three), user("q", Answer::Like("a b".into())));
        for short in [r#"{"conversations":[]}"#, r#"{"conversations":[{"value":"q"}]}"#] {
            assert_eq!(read(short), Err(Unfit::Short));
        }
        assert_eq!(read(r#"{"conversations":[{"value":"q"},{"value":" "}]}"#), Err(Unfit::Short));
        for broken in ["7", "{}", r#"{"conversations":[{"from":"human"},{"value":"a"}]}"#, "{", "null"] {
            assert!(matches!(read(broken), Err(Unfit::Broken(_))), "{broken}");
        }
    }

    #[test]
    fn a_line_is_a_prompt_or_messages() {
        let read = |text: &str| read(Form::Jsonl, text.as_bytes());
        assert_eq!(read(r#"{"prompt":"q","id":7,"max_tokens":3}"#), user("q", Answer::Tokens(3)));
        assert_eq!(read(r#"{"prompt":"q","id":"x","else":{}}"#), user("q", Answer::Unsaid));
        let chat =
            r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"q"}]}]}"#;
        let chat = read(chat).unwrap().messages;
        assert_eq!(chat, [Message { role: Role::System, text: "s".into() }, Message::user("q")]);
        for (line, why) in [
            (r#"{"prompt":"q","messages":[]}"#, "both"),
            (r#"{"text":"q"}"#, "neither"),
            (r#"{"prompt":""}"#, "nothing"),
            (r#"{"messages":[]}"#, "nothing"),
            (r#"{"messages":[{"role":"robot","content":"q"}]}"#, "role"),
            (r#"{"prompt":"q","max_tokens":0}"#, "max_tokens"),
            (r#"{"prompt":"q","max_tokens":9999999}"#, "max_tokens"),
            (r#"{"prompt":"q","max_tokens":-1}"#, "invalid value"),
            (r#"{"prompt":"q"} {"prompt":"r"}"#, "trailing"),
        ] {
            let Err(Unfit::Broken(what)) = read(line) else { panic!("{line}") };
            assert!(what.contains(why), "{line}: {what}");
        }
    }

    #[test]
    fn what_is_deep_or_not_text_is_broken() {
        assert!(matches!(read(Form::Jsonl, "[".repeat(100_000).as_bytes()), Err(Unfit::Broken(_))));
        let deep = format!(r#"{{"prompt":"q","x":{}}}"#, "[".repeat(100_000));
        assert!(matches!(read(Form::Jsonl, deep.as_bytes()), Err(Unfit::Broken(_))));
        assert_eq!(read(Form::Jsonl, b"{\"prompt\":\"\xff\"}"), Err(Unfit::Broken("is not UTF-8".into())));
    }
}
