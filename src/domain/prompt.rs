//! What is asked of the model.

/// One prompt and the length of the answer that it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The text the user sends.
    pub text: String,
    /// Output tokens asked for. Never used in place of the number of tokens that came.
    pub output_tokens: u32,
}
