//! What a request is answered with, before it becomes bytes on a connection.

use std::sync::Arc;

use bytes::Bytes;

use crate::domain::api::Api;
use crate::sim::answer::Answer;
use crate::sim::engine::Ticket;
use crate::sim::event::{Beat, Content, Due, Event};
use crate::sim::fault::{EventFault, FormatFault, ReplyFault, WireFault};
use crate::sim::refusal::{Refusal, json_error};
use crate::sim::spoil::Spoiled;
use crate::sim::sse::Format;
use crate::sim::truth::Recording;

/// A response: its head, its body piece by piece, and how it leaves.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) length: Length,
    pub(crate) body: Box<dyn Iterator<Item = Part> + Send>,
    pub(crate) wire: Option<WireFault>,
    /// The connection cannot be used again, because some of the request was not read.
    pub(crate) must_close: bool,
    pub(crate) recording: Option<Recording>,
    /// The engine's part of it, if an engine is modelled.
    pub(crate) ticket: Option<Arc<Ticket>>,
}

/// How the end of a body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// There is none, and none is announced: 204 and its like.
    Bodiless,
    Known(u64),
    Chunked,
    UntilClose,
}

/// A piece of a body.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// These bytes at their moment; they complete an event with this many tokens.
    Bytes { due: Option<Due>, bytes: Bytes, tokens: u32 },
    /// Nothing more, while the connection stays open.
    Hang,
}

const PIECE: u64 = 65_536;

const JSON: (&str, &str) = ("content-type", "application/json");

const LOGIN_PAGE: &str = "<!DOCTYPE html>\n<html>\n<head><title>Sign in</title></head>\n<body><form action=\"/login\"><h1>Please sign in</h1></form></body>\n</html>\n";

impl Reply {
    /// A whole body, sent at once. Statuses that have no body by definition drop it.
    pub(crate) fn plain(status: u16, headers: Vec<(&'static str, String)>, body: Bytes) -> Self {
        let is_bodiless = matches!(status, 100..=199 | 204 | 304);
        let length = Length::Known(u64::try_from(body.len()).unwrap_or(u64::MAX));
        let part = Part::Bytes { due: None, bytes: body, tokens: 0 };
        Self {
            status,
            headers,
            length: if is_bodiless { Length::Bodiless } else { length },
            body: Box::new((!is_bodiless).then_some(part).into_iter()),
            wire: None,
            must_close: false,
            recording: None,
            ticket: None,
        }
    }

    pub(crate) fn refusal(refusal: Refusal) -> Self {
        Self::plain(refusal.status, refusal.headers, refusal.body.into())
    }

    /// The answer, as a stream or whole, with what is to go wrong on its way.
    pub(crate) fn answer(
        answer: Answer,
        event: Option<EventFault>,
        format: Option<&FormatFault>,
        wire: Option<WireFault>,
    ) -> Self {
        let ticket = answer.ticket();
        if !answer.is_stream() {
            return Self { wire, ticket, ..Self::whole(answer.into_whole()) };
        }
        let mut format = Format::new(format);
        let body = Spoiled::new(answer, event).map(move |beat| match beat {
            Beat::Event(event) => Part::Bytes { due: event.due, bytes: format.write(&event), tokens: event.tokens },
            Beat::Hang => Part::Hang,
        });
        Self {
            status: 200,
            headers: vec![("content-type", "text/event-stream; charset=utf-8".to_owned())],
            length: Length::Chunked,
            body: Box::new(body),
            wire,
            must_close: false,
            recording: None,
            ticket,
        }
    }

    fn whole(event: Event) -> Self {
        let bytes = match event.content {
            Content::Raw(bytes) => bytes,
            Content::Data(data) | Content::Line(data) | Content::Named(_, data) => data.into(),
            Content::Binary(data) => data.into(),
            Content::Comment(text) => Bytes::from_static(text.as_bytes()),
        };
        let mut reply = Self::plain(200, vec![(JSON.0, JSON.1.to_owned())], bytes.clone());
        reply.body = Box::new(std::iter::once(Part::Bytes { due: event.due, bytes, tokens: event.tokens }));
        reply
    }

    /// What `fault` sends in place of the answer. `answer` is there when the request could have been answered.
    pub(crate) fn instead(fault: &ReplyFault, api: Api, answer: Option<Answer>) -> Self {
        match fault {
            ReplyFault::Status { code, body, retry_after, retry_form } => {
                let retry_after = Refusal::retry_after(*code, *retry_after, *retry_form);
                Self::refusal(Refusal::of_status(*code, *body, retry_after))
            }
            ReplyFault::UnknownField { field, form } => Self::refusal(Refusal::unknown_field(field, *form)),
            ReplyFault::Redirect { code, location } => {
                Self::plain(*code, vec![("location", location.clone())], Bytes::new())
            }
            ReplyFault::JsonError { form } => Self::refusal(Refusal::json(200, &json_error(*form))),
            ReplyFault::HtmlPage {} => {
                Self::plain(200, vec![("content-type", "text/html; charset=utf-8".to_owned())], LOGIN_PAGE.into())
            }
            ReplyFault::JsonAnswer {} => match answer {
                Some(answer) => Self { ticket: answer.ticket(), ..Self::whole(answer.into_whole()) },
                None => Self::refusal(Refusal::bad_request("the request cannot be answered", api.name())),
            },
            ReplyFault::BigJson { size } => Self::big_json(size.0),
            ReplyFault::EmptyBody {} => {
                Self::plain(200, vec![("content-type", "text/event-stream; charset=utf-8".to_owned())], Bytes::new())
            }
            ReplyFault::NoContent {} => Self::plain(204, Vec::new(), Bytes::new()),
        }
    }

    /// `{"choices":[],"padding":"aaaa…"}` of exactly `size` bytes, or of the few that it needs.
    fn big_json(size: u64) -> Self {
        const OPEN: &[u8] = br#"{"object":"chat.completion","choices":[],"padding":""#;
        const CLOSE: &[u8] = br#""}"#;
        let padding = size.saturating_sub(u64::try_from(OPEN.len() + CLOSE.len()).unwrap_or_default());
        let total = u64::try_from(OPEN.len() + CLOSE.len()).unwrap_or_default() + padding;
        let now = |bytes: Bytes| Part::Bytes { due: None, bytes, tokens: 0 };
        let fill = (0..padding.div_ceil(PIECE)).map(move |index| {
            let size = PIECE.min(padding - index * PIECE);
            now(vec![b'a'; usize::try_from(size).unwrap_or_default()].into())
        });
        let body = std::iter::once(now(Bytes::from_static(OPEN))).chain(fill);
        let body = body.chain(std::iter::once(now(Bytes::from_static(CLOSE))));
        Self {
            length: Length::Known(total),
            body: Box::new(body),
            ..Self::plain(200, vec![(JSON.0, JSON.1.to_owned())], Bytes::new())
        }
    }
}
