//! From the bytes of one response body to its answer and its outcome.
//!
//! A pure state machine: it is given each read with the stamp that was taken when the read returned, and at the end it
//! is told how the body ended. It decides which events bear tokens, what n is, and, by the order of rules in [`Reader::judge`],
//! which single outcome the request has. It does no I/O and reads no clock, so every capture and every cut of it can be
//! played through it.

use std::mem;
use std::ops::ControlFlow;

use tokio::time::Instant;

use crate::domain::api::Api;
use crate::domain::outcome::Outcome;
use crate::domain::secret::is_unseen;
use crate::domain::timeline::{Answer, TokenEvent, Usage};
use crate::load::client::event::{self, Facts, Parsed};
use crate::load::client::sse::{self, Decoder, Item};

/// Most bytes of one body, after decompression: an answer of 200,000 tokens at 300 bytes an event.
pub const MAX_BODY: u64 = 64 << 20;
/// Most token-bearing events of one answer, 24 bytes each while the request runs.
pub const MAX_EVENTS: usize = 1 << 18;
/// What is kept of a body that is no event stream, to look for an error object in it.
const MAX_STRAY: usize = sse::MAX_OTHER_LINE;
/// What people are shown of a server's error, in characters.
pub const MAX_DETAIL: usize = 200;
/// What is kept of it until secrets have been taken out.
const RAW_DETAIL: usize = 4 << 10;
/// A reason is a word; a server that sends a megabyte of it is not believed.
const MAX_REASON: usize = 64;

/// How the body, or the wait for it, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The body ended by protocol.
    Complete,
    /// FIN inside a chunked body, short of `Content-Length`, or before the response head.
    Cut,
    /// The reader itself has seen enough: an error, `[DONE]`, or bytes it cannot take.
    Enough,
    /// A limit of `timeouts` ran out.
    TimedOut(Outcome),
    /// RST or TLS alert.
    Reset,
    /// The HTTP framing is broken.
    BadFraming,
    /// Our own descriptors, ports or files.
    Local,
    /// Ended by us.
    Canceled,
}

/// State of one response body.
#[derive(Debug, Clone)]
pub struct Reader {
    api: Api,
    /// Output tokens asked for, if the server was told not to stop before them.
    fixed_length: Option<u32>,
    decoder: Decoder,
    answer: Answer,
    body_bytes: u64,
    /// `[DONE]` was seen.
    done: bool,
    /// An error object, `event: error`, or a `finish_reason` that says so.
    error: bool,
    /// The first reason why the bytes are not what they should be.
    unreadable: Option<String>,
    /// Some event had the expected shape.
    shaped: bool,
    /// Data events that were neither blank nor `[DONE]`.
    events: u64,
    /// Completion tokens of the last event that carried a count.
    counted: Option<u32>,
    /// SGLang: lengths of the cumulative output so far.
    cumulative: (usize, usize),
    /// Lines since the last blank one that were no event stream, up to a limit.
    stray: Vec<u8>,
    /// There were such lines.
    strayed: bool,
    detail: Option<String>,
}

impl Reader {
    /// A reader for one response. `fixed_length` is the number of tokens asked for when `ignore_eos` was on.
    #[must_use]
    pub fn new(api: Api, fixed_length: Option<u32>) -> Self {
        Self {
            api,
            fixed_length,
            decoder: Decoder::default(),
            answer: Answer::default(),
            body_bytes: 0,
            done: false,
            error: false,
            unreadable: None,
            shaped: false,
            events: 0,
            counted: None,
            cumulative: (0, 0),
            stray: Vec::new(),
            strayed: false,
            detail: None,
        }
    }

    /// Takes one read; breaks when the request is over and no further byte can change its outcome.
    pub fn feed(&mut self, bytes: &[u8], at: Instant) -> ControlFlow<()> {
        self.body_bytes = self.body_bytes.saturating_add(bytes.len() as u64);
        if self.body_bytes > MAX_BODY {
            self.unreadable(format!("the body is longer than {MAX_BODY} bytes"));
            return ControlFlow::Break(());
        }
        let mut decoder = mem::take(&mut self.decoder);
        let mut flow = ControlFlow::Continue(());
        let result = decoder.feed(bytes, |item| {
            flow = self.take(item, at);
            flow
        });
        self.decoder = decoder;
        if let Err(error) = result {
            self.unreadable(error.to_string());
            return ControlFlow::Break(());
        }
        flow
    }

    /// Ends the body and says what the request's outcome is.
    ///
    /// `at` is the stamp of the read that showed the end; it becomes `closed_at` when the body ended by protocol and no
    /// `[DONE]` came before.
    pub fn finish(&mut self, ending: Ending, at: Instant) -> Outcome {
        if matches!(ending, Ending::Complete | Ending::Cut) {
            let mut decoder = mem::take(&mut self.decoder);
            // What is left can no longer grow beyond a limit, and a break has nothing to stop.
            let rest = decoder.finish(|item| self.take(item, at));
            if let Err(error) = rest {
                self.unreadable(error.to_string());
            }
            self.end_stray();
        }
        if ending == Ending::Complete {
            self.answer.closed_at.get_or_insert(at);
        }
        self.answer.cut = ending == Ending::Cut;
        self.judge(ending)
    }

    /// The first rule that fits decides, in the order: error object, the ok rule, what stopped us from outside
    /// (time-outs, reset, cancel), bad bytes, bad shape, no token, no end.
    fn judge(&self, ending: Ending) -> Outcome {
        let ended_well = self.done || self.answer.finish_reason.is_some();
        if self.error {
            return Outcome::InBandError;
        }
        let framed = ending != Ending::BadFraming;
        if ended_well && !self.answer.tokens.is_empty() && self.unreadable.is_none() && framed {
            let short = self.fixed_length.zip(self.answer.output_tokens()).is_some_and(|(asked, n)| n < asked);
            return if short { Outcome::ShortOutput } else { Outcome::Ok };
        }
        match ending {
            Ending::TimedOut(outcome) => return outcome,
            Ending::Reset => return Outcome::Reset,
            Ending::Local => return Outcome::Local,
            Ending::Canceled => return Outcome::Canceled,
            Ending::Complete | Ending::Cut | Ending::Enough | Ending::BadFraming => {}
        }
        if self.unreadable.is_some() || !framed {
            Outcome::Parse
        } else if !self.shaped && (self.events > 0 || self.strayed) {
            Outcome::BadResponse
        } else if self.answer.tokens.is_empty() {
            Outcome::Empty
        } else {
            Outcome::Truncated
        }
    }

    /// The answer's stamps, and what went wrong in the server's or our own words.
    #[must_use]
    pub fn into_parts(self) -> (Answer, Option<String>) {
        (self.answer, self.detail.or(self.unreadable))
    }

    /// The answer so far.
    #[must_use]
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    fn take(&mut self, item: Item<'_>, at: Instant) -> ControlFlow<()> {
        match item {
            Item::Event(event) => self.take_event(event, at),
            Item::Stray(line) => self.take_stray(line),
            Item::Blank => {
                self.end_stray();
                self.flow()
            }
        }
    }

    fn take_event(&mut self, event: sse::Event<'_>, at: Instant) -> ControlFlow<()> {
        self.end_stray();
        self.flow()?;
        if event.kind.eq_ignore_ascii_case(b"error") {
            return self.fail(event.data);
        }
        let data = event.data.trim_ascii();
        if data.is_empty() {
            return ControlFlow::Continue(());
        }
        if data == b"[DONE]" {
            self.done = true;
            self.answer.closed_at = Some(at);
            return ControlFlow::Break(());
        }
        self.events = self.events.saturating_add(1);
        match event::parse(self.api, data) {
            Parsed::Facts(facts) if facts.error => return self.fail(data),
            Parsed::Facts(facts) => self.apply(&facts, at),
            Parsed::Unshaped => {}
            // The body ended within this event: it is a torn piece, and the missing end is what is wrong with it.
            Parsed::Bad(_) if !event.terminated => self.events = self.events.saturating_sub(1),
            Parsed::Bad(reason) => {
                let data = excerpt(data).unwrap_or_default();
                self.detail = Some(format!("{reason}: {data}"));
                self.unreadable(reason);
                return ControlFlow::Break(());
            }
        }
        if !self.shaped && self.detail.is_none() {
            self.detail = excerpt(data);
        }
        if self.answer.tokens.len() > MAX_EVENTS {
            self.unreadable(format!("more than {MAX_EVENTS} events"));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Adds an event's facts to the answer.
    fn apply(&mut self, facts: &Facts<'_>, at: Instant) {
        if facts.shaped && !mem::replace(&mut self.shaped, true) {
            self.detail = None;
        }
        let count = facts.usage.and_then(|usage| usage.completion_tokens);
        let counted_before = self.counted;
        let growth = count.map(|count| count.saturating_sub(counted_before.unwrap_or(0)));
        let grew_silently = facts.has_choice && counted_before.is_some() && growth.is_some_and(|growth| growth > 0);
        let text = facts.answer || facts.reasoning || facts.other || self.take_cumulative(facts, growth);
        self.counted = count.or(counted_before);
        if let Some(usage) = facts.usage {
            self.answer.usage = Some(merged(self.answer.usage, usage));
        }
        if let Some(reason) = &facts.finish_reason {
            self.answer.finish_reason = readable(reason, MAX_REASON);
        }
        if facts.has_choice {
            self.answer.first_choices_at.get_or_insert(at);
        }
        if facts.answer || (facts.cumulative.is_some() && text) {
            self.answer.first_answer_at.get_or_insert(at);
        }
        self.answer.reasoning_shown |= facts.reasoning;
        if text || grew_silently {
            // Nothing counted so far although a token is here: the server does not count as it goes.
            let tokens = growth.filter(|_| count != Some(0));
            // Chunks of one socket read come one by one, but with one stamp.
            if self.answer.last_at() != Some(at) {
                self.answer.token_reads = self.answer.token_reads.saturating_add(1);
            }
            self.answer.tokens.push(TokenEvent { at, tokens });
        }
    }

    /// SGLang's native events carry the whole text so far, or, streaming incrementally, the new part: either way new output
    /// shows in the server's own count, or, without one, in a length that differs from the last.
    fn take_cumulative(&mut self, facts: &Facts<'_>, growth: Option<u32>) -> bool {
        let Some(lengths) = facts.cumulative else { return false };
        let before = mem::replace(&mut self.cumulative, lengths);
        match growth {
            Some(growth) => growth > 0,
            None => lengths != (0, 0) && lengths != before,
        }
    }

    /// A line that is no event stream: a raw error object, a JSON body, an HTML page.
    fn take_stray(&mut self, line: &[u8]) -> ControlFlow<()> {
        if let Some(data) = line.strip_prefix(b"error:") {
            return self.fail(data.trim_ascii());
        }
        self.strayed = true;
        let room = MAX_STRAY.saturating_sub(self.stray.len());
        self.stray.extend_from_slice(line.get(..room).unwrap_or(line));
        if room > line.len() {
            self.stray.push(b'\n');
        }
        // One whole object on one line ends the request at once, even if the server leaves the stream open.
        let whole =
            [(b"{", b"}"), (b"[", b"]")].iter().any(|(open, end)| line.starts_with(*open) && line.ends_with(*end));
        if whole && is_error(self.api, line) {
            return self.fail(line);
        }
        ControlFlow::Continue(())
    }

    /// A blank line: an error object that was written over several lines is complete now.
    ///
    /// What was looked at is dropped, so that a hostile body of blank lines does not cost its square in time.
    fn end_stray(&mut self) {
        let stray = mem::take(&mut self.stray);
        let text = stray.trim_ascii();
        if (text.starts_with(b"{") || text.starts_with(b"[")) && is_error(self.api, text) {
            self.error = true;
            self.detail = excerpt(text);
        } else if self.detail.is_none() {
            self.detail = excerpt(text);
        }
    }

    /// Whether the stream goes on: an error object ends the request, even if the server leaves the stream open.
    fn flow(&self) -> ControlFlow<()> {
        if self.error { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn fail(&mut self, data: &[u8]) -> ControlFlow<()> {
        self.error = true;
        self.detail = excerpt(data);
        ControlFlow::Break(())
    }

    fn unreadable(&mut self, reason: String) {
        self.unreadable.get_or_insert(reason);
    }
}

fn is_error(api: Api, data: &[u8]) -> bool {
    matches!(event::parse(api, data), Parsed::Facts(facts) if facts.error)
}

/// The last usage seen wins, field by field: a final usage without details does not take back what was said before.
fn merged(before: Option<Usage>, now: Usage) -> Usage {
    let before = before.unwrap_or_default();
    Usage {
        completion_tokens: now.completion_tokens.or(before.completion_tokens),
        prompt_tokens: now.prompt_tokens.or(before.prompt_tokens),
        cached_tokens: now.cached_tokens.or(before.cached_tokens),
        reasoning_tokens: now.reasoning_tokens.or(before.reasoning_tokens),
    }
}

/// The first bytes of a server's text, enough for what people are shown after secrets have been taken out of it. `None` when
/// there are none.
#[must_use]
pub fn excerpt(bytes: &[u8]) -> Option<String> {
    let head = bytes.trim_ascii();
    let head = head.get(..RAW_DETAIL).unwrap_or(head);
    (!head.is_empty()).then(|| String::from_utf8_lossy(head).into_owned())
}

/// A server's text as a terminal may show it: one line, without control characters and without those that hide or reorder
/// others, at most `limit` characters. `None` when nothing is left.
#[must_use]
pub fn readable(text: &str, limit: usize) -> Option<String> {
    let text: String = text.trim().chars().map(|c| if is_unseen(c) { ' ' } else { c }).take(limit).collect();
    (!text.trim().is_empty()).then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests;
