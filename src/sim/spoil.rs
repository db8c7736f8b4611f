//! Breaks a good sequence of events: what [`EventFault`] names.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use crate::clock;
use crate::sim::answer::Answer;
use crate::sim::event::{Beat, Content, Due, Event, Kind};
use crate::sim::fault::{EndlessKind, ErrorForm, ErrorThen, EventFault, JsonErrorForm, LineForm};
use crate::sim::refusal::json_error;

/// The events of an answer with one thing wrong in their order.
pub(crate) struct Spoiled {
    events: Peekable<Answer>,
    fault: Option<EventFault>,
    /// Token events that have passed.
    passed: u32,
    queue: VecDeque<Beat>,
    state: State,
}

enum State {
    /// The fault has not struck yet.
    Before,
    /// It has, and the good events go on.
    After,
    /// It has, and this comes for ever.
    Repeating(Event),
    /// As `Repeating`, once in a while.
    Ticking {
        every: Duration,
        next: Due,
    },
    /// A long line is being written.
    Flooding {
        left: u64,
    },
    Over,
}

/// Small enough that a thousand floods fit into memory, large enough to keep a socket full.
const FLOOD_PIECE: u64 = 65_536;

const KEEP_ALIVE: &str = " keep-alive";

/// What is done once the fault strikes.
fn is_done_per_event(fault: &EventFault) -> bool {
    matches!(fault, EventFault::Comments {})
}

impl Spoiled {
    pub(crate) fn new(answer: Answer, fault: Option<EventFault>) -> Self {
        Self { events: answer.peekable(), fault, passed: 0, queue: VecDeque::new(), state: State::Before }
    }

    /// After how many token events the fault strikes.
    fn strikes_at(&self) -> Option<u32> {
        match self.fault.as_ref()? {
            EventFault::Comments {} => None,
            EventFault::Error { at, .. }
            | EventFault::Truncate { at }
            | EventFault::Stall { at }
            | EventFault::StallComments { at, .. }
            | EventFault::Endless { at, .. }
            | EventFault::GiantLine { at, .. }
            | EventFault::DeepJson { at, .. }
            | EventFault::NulBytes { at }
            | EventFault::BadUtf8 { at }
            | EventFault::BadJson { at }
            | EventFault::NonObject { at } => Some(*at),
        }
    }

    /// Changes the state as the fault wants it and queues what it sends.
    fn strike(&mut self) {
        let due = self.events.peek().and_then(|event| event.due);
        self.state = State::After;
        let Some(fault) = self.fault.clone() else { return };
        match fault {
            EventFault::Comments {} => {}
            EventFault::Error { form, then, .. } => {
                self.push(due, error(form));
                self.state = State::Over;
                match then {
                    ErrorThen::Done => self.queue.push_back(Beat::Event(Event::done(due))),
                    ErrorThen::Close => {}
                    ErrorThen::Open => self.queue.push_back(Beat::Hang),
                }
            }
            EventFault::Truncate { .. } => self.state = State::Over,
            EventFault::Stall { .. } => {
                self.queue.push_back(Beat::Hang);
                self.state = State::Over;
            }
            EventFault::StallComments { every, .. } => {
                let from = due.unwrap_or_else(|| Due::At(clock::now()));
                self.state = State::Ticking { every: every.max(Duration::from_millis(1)), next: from };
            }
            EventFault::Endless { of, .. } => self.state = State::Repeating(self.endless(of)),
            EventFault::GiantLine { size, form, .. } => {
                if form == LineForm::Data {
                    self.push(due, Content::Raw(Bytes::from_static(b"data: ")));
                }
                self.state = State::Flooding { left: size.0 };
            }
            EventFault::DeepJson { depth, .. } => {
                let depth = usize::try_from(depth.min(MOST_BRACKETS)).unwrap_or_default();
                self.push(due, Content::Data(format!(r#"{{"choices":{}{}}}"#, "[".repeat(depth), "]".repeat(depth))));
            }
            EventFault::NulBytes { .. } => self.push(due, Content::Binary(with_text(b"\0\0"))),
            EventFault::BadUtf8 { .. } => self.push(due, Content::Binary(with_text(b"\xc3\x28\xff"))),
            EventFault::BadJson { .. } => {
                self.push(due, Content::Data(r#"{"choices":[{"delta":{"content":"cut"#.to_owned()))
            }
            EventFault::NonObject { .. } => {
                for data in ["5", "null", "[]"] {
                    self.push(due, Content::Data(data.to_owned()));
                }
            }
        }
    }

    fn push(&mut self, due: Option<Due>, content: Content) {
        self.queue.push_back(Beat::Event(Event::foreign(due, content)));
    }

    /// What is repeated for ever: the next token's event, or a comment.
    fn endless(&mut self, of: EndlessKind) -> Event {
        let token = self.events.by_ref().find(|event| event.kind == Kind::Token);
        match (of, token) {
            (EndlessKind::Tokens, Some(event)) => Event { due: None, ..event },
            (EndlessKind::Tokens | EndlessKind::Comments, _) => Event::foreign(None, Content::Comment(KEEP_ALIVE)),
        }
    }

    /// The next event of the good answer.
    fn pass(&mut self) -> Option<Beat> {
        let event = self.events.next()?;
        self.passed += u32::from(event.kind == Kind::Token);
        if self.fault.as_ref().is_some_and(is_done_per_event) {
            self.push(event.due, Content::Comment(KEEP_ALIVE));
        }
        Some(Beat::Event(event))
    }

    fn must_strike(&mut self) -> bool {
        let Some(at) = self.strikes_at() else { return false };
        // A shorter answer is struck at its end, so that no fault stays without effect.
        let ends = self.events.peek().is_none_or(|next| !matches!(next.kind, Kind::Role | Kind::Token));
        self.passed >= at || ends
    }
}

/// More would only be a larger event, and that is what `giant_line` is for.
const MOST_BRACKETS: u32 = 10_000_000;

impl Iterator for Spoiled {
    type Item = Beat;

    fn next(&mut self) -> Option<Beat> {
        if matches!(self.state, State::Before) && self.must_strike() {
            self.strike();
        }
        if let Some(beat) = self.queue.pop_front() {
            return Some(beat);
        }
        match &mut self.state {
            State::Before | State::After => self.pass(),
            State::Repeating(event) => Some(Beat::Event(event.clone())),
            State::Ticking { every, next } => {
                let event = Event::foreign(Some(*next), Content::Comment(KEEP_ALIVE));
                *next = *next + *every;
                Some(Beat::Event(event))
            }
            State::Flooding { left: 0 } => {
                self.state = State::After;
                Some(Beat::Event(Event::foreign(None, Content::Raw(Bytes::from_static(b"\n\n")))))
            }
            State::Flooding { left } => {
                let size = FLOOD_PIECE.min(*left);
                *left -= size;
                let piece = vec![b'a'; usize::try_from(size).unwrap_or_default()];
                Some(Beat::Event(Event::foreign(None, Content::Raw(piece.into()))))
            }
            State::Over => None,
        }
    }
}

fn error(form: ErrorForm) -> Content {
    let data = json_error(JsonErrorForm::Openai).to_string();
    match form {
        ErrorForm::Data => Content::Data(data),
        ErrorForm::Event => Content::Named("error", data),
        ErrorForm::Raw => Content::Line(data),
        ErrorForm::Llama => {
            let error = json!({"code": 500, "message": "the slot was lost", "type": "server_error"});
            Content::Line(format!("error: {error}"))
        }
        ErrorForm::Object => Content::Data(json_error(JsonErrorForm::Object).to_string()),
    }
}

/// A chat event whose text is `bytes`, unescaped.
fn with_text(bytes: &[u8]) -> Vec<u8> {
    let (before, after) = (br#"{"choices":[{"index":0,"delta":{"content":""#.as_slice(), br#""}}]}"#.as_slice());
    [before, bytes, after].concat()
}
