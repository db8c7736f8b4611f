//! What is asked of the model.

/// One prompt and the length of the answer that it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// What is said so far; the last of it is what the model answers to.
    pub messages: Vec<Message>,
    /// Output tokens asked for. Never used in place of the number of tokens that came.
    pub output_tokens: u32,
    /// Tokens that the server should count in the prompt, with what its template adds. `None` when nobody can say.
    pub input_tokens: Option<u32>,
    /// Which turn of its conversation it is, from 0.
    pub turn: u32,
}

/// Who speaks in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// What is said to the model before the conversation, once.
    System,
    /// Whoever asks.
    User,
    /// The model.
    Assistant,
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub text: String,
}

impl Role {
    /// Its name in a request.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

impl Message {
    /// What somebody who asks says.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, text: text.into() }
    }
}

/// The messages as one text, for an API that has no roles: one after the other with an empty line between, which is how
/// people write turns down. One message alone is its text.
#[must_use]
pub fn joined(messages: &[Message]) -> String {
    let texts: Vec<_> = messages.iter().map(|message| message.text.as_str()).collect();
    texts.join("\n\n")
}
