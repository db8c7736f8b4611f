//! What is asked of the model.

/// One prompt and the length of the answer that it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The text the user sends.
    pub text: String,
    /// Output tokens asked for. Never used in place of the number of tokens that came.
    pub output_tokens: u32,
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
