//! One event of a stream, before it is written as SSE.

use std::ops::Add;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// When something is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    At(Instant),
    /// `plus` after the engine has made so many tokens of this answer; after it was admitted when that is none.
    Made {
        tokens: u32,
        plus: Duration,
    },
}

impl Add<Duration> for Due {
    type Output = Self;

    fn add(self, more: Duration) -> Self {
        match self {
            Self::At(at) => Self::At(at + more),
            Self::Made { tokens, plus } => Self::Made { tokens, plus: plus.saturating_add(more) },
        }
    }
}

/// Something that is written at its moment.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// When it is due; `None` is at once.
    pub(crate) due: Option<Due>,
    pub(crate) content: Content,
    /// Output tokens that it carries, for the truth log.
    pub(crate) tokens: u32,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// The data of an event.
    Data(String),
    /// The data of an event that cannot be a `String`.
    Binary(Vec<u8>),
    /// An event with a name.
    Named(&'static str, String),
    /// A line without a field name, followed by a blank line.
    Line(String),
    /// A comment.
    Comment(&'static str),
    /// Bytes that are written as they are.
    Raw(Bytes),
}

/// What an event is in the order of a good stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Before the first token: the role, or nothing yet.
    Role,
    Token,
    Finish,
    Usage,
    Done,
    /// Not of this stream: an error, a comment, rubbish.
    Foreign,
}

/// What comes next in a stream.
#[derive(Debug, Clone)]
pub(crate) enum Beat {
    Event(Event),
    /// Nothing more, while the stream stays open.
    Hang,
}

/// The data of the event that ends a stream.
pub(crate) const DONE: &str = "[DONE]";

impl Event {
    pub(crate) fn foreign(due: Option<Due>, content: Content) -> Self {
        Self { due, content, tokens: 0, kind: Kind::Foreign }
    }

    /// No bytes, but the moment at which the engine admits the request.
    pub(crate) const fn admission() -> Self {
        let due = Due::Made { tokens: 0, plus: Duration::ZERO };
        Self { due: Some(due), content: Content::Raw(Bytes::new()), tokens: 0, kind: Kind::Role }
    }

    pub(crate) fn done(due: Option<Due>) -> Self {
        Self { due, content: Content::Data(DONE.to_owned()), tokens: 0, kind: Kind::Done }
    }
}
