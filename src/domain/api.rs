//! The request shapes a gateway may speak.

use std::fmt;

/// Which request body is sent and which events are expected back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Api {
    /// `POST /v1/chat/completions`: `messages` in, `choices[].delta` out.
    OpenAiChat,
    /// `POST /v1/completions`: `prompt` in, `choices[].text` out.
    OpenAiCompletions,
    /// `POST /generate`: SGLang's native form, whose events carry the text so far and `meta_info`.
    SglangGenerate,
}

impl Api {
    /// Every API, in the order in which the documentation lists them.
    pub const ALL: [Self; 3] = [Self::OpenAiChat, Self::OpenAiCompletions, Self::SglangGenerate];

    /// The name used in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai-chat",
            Self::OpenAiCompletions => "openai-completions",
            Self::SglangGenerate => "sglang-generate",
        }
    }

    /// The path that is joined to `base_url` when the target names no `endpoint` of its own.
    #[must_use]
    pub const fn default_endpoint(self) -> &'static str {
        match self {
            Self::OpenAiChat => "/v1/chat/completions",
            Self::OpenAiCompletions => "/v1/completions",
            Self::SglangGenerate => "/generate",
        }
    }

    /// The API with this configuration name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.name() == name)
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
