//! Incremental decoder of a server-sent event stream.
//!
//! It decides what an event is and when it is complete, and nothing about what the event means. Bytes may be cut
//! anywhere: in a field name, between CR and LF, inside a UTF-8 character (the decoder never looks at characters, so a
//! split one cannot break).
//!
//! An event that lies in one read on one `data:` line, which is nearly every event, is handed out as a slice of that
//! read; only what is cut by a read or has several data lines is copied.
//!
//! Differences from the WHATWG text, each because real servers do it:
//! * A line that is no SSE field is handed out as [`Item::Stray`] instead of being ignored: gateways put error
//!   objects, whole JSON bodies and HTML pages where a stream was promised, and the reader has to see them.
//! * A last event without its blank line is handed out by [`Decoder::finish`], marked as unterminated. The reader
//!   takes it if it is whole and drops it if it is a torn piece.
//!
//! Memory is bounded: a data line by [`MAX_LINE`], the data of an event by [`MAX_EVENT`], any other line by
//! [`MAX_OTHER_LINE`] (the rest of it is dropped: such a line carries no token).

use std::mem;
use std::ops::ControlFlow;

use memchr::{memchr, memchr2};

/// Longest `data:` line. The largest real ones (log-probabilities of 20 alternatives) are some 10 kB.
pub const MAX_LINE: usize = 1 << 20;
/// Most data in one event over all its lines.
pub const MAX_EVENT: usize = 4 << 20;
/// What is kept of a line that is no `data:`. Enough for an error object with a stack trace.
pub const MAX_OTHER_LINE: usize = 64 << 10;

const BOM: &[u8] = b"\xef\xbb\xbf";
/// The fields of an event stream, with the colon that ends their names.
const FIELDS: [&[u8]; 4] = [b"data:", b"event:", b"id:", b"retry:"];

/// What the decoder found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// A block that ended with a blank line and had at least one `data` or `event` field.
    Event(Event<'a>),
    /// A line that is neither a comment nor one of the four SSE fields.
    Stray(&'a [u8]),
    /// A blank line: what was stray before it is complete.
    Blank,
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The `event` field; empty when there was none.
    pub kind: &'a [u8],
    /// The `data` lines, joined by LF; empty when there was none.
    pub data: &'a [u8],
    /// False for a last event that the body's end cut off before its blank line.
    pub terminated: bool,
}

/// More than the decoder will hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// One `data:` line is longer than [`MAX_LINE`].
    #[error("a data line is longer than {MAX_LINE} bytes")]
    Line,
    /// The data lines of one event are longer than [`MAX_EVENT`].
    #[error("the data of one event is longer than {MAX_EVENT} bytes")]
    Event,
}

/// The decoder's state between two reads. Cloning it forks the stream, which the tests do at every byte.
#[derive(Debug, Clone)]
pub struct Decoder {
    /// The line that the last read cut off.
    line: Vec<u8>,
    /// The rest of the cut-off line is dropped, up to its end.
    dropping: bool,
    /// Data lines of the open event that could not be borrowed; meaningful only with `has_data`.
    data: Vec<u8>,
    has_data: bool,
    kind: Vec<u8>,
    has_kind: bool,
    /// The last read ended in CR: an LF at the start of the next one belongs to it.
    after_cr: bool,
    /// Nothing but a byte order mark may stand before the first line.
    first_line: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            line: Vec::new(),
            dropping: false,
            data: Vec::new(),
            has_data: false,
            kind: Vec::new(),
            has_kind: false,
            after_cr: false,
            first_line: true,
        }
    }
}

/// Where the data of the open event is, while a read is being decoded.
type Borrowed<'a> = Option<&'a [u8]>;

impl Decoder {
    /// Decodes one read, in order; stops early when `sink` breaks.
    ///
    /// # Errors
    /// When a line or an event exceeds its limit. The stream cannot be continued after that.
    pub fn feed(&mut self, bytes: &[u8], mut sink: impl FnMut(Item<'_>) -> ControlFlow<()>) -> Result<(), LimitError> {
        let mut rest = bytes;
        if mem::take(&mut self.after_cr) {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        let mut borrowed: Borrowed<'_> = None;
        while let Some((line, after)) = self.split_line(rest) {
            rest = after;
            let flow = if self.line.is_empty() && !self.dropping {
                self.take_line(line, &mut borrowed, &mut sink)?
            } else {
                self.extend_line(line)?;
                self.take_cut_line(&mut borrowed, &mut sink)?
            };
            if flow.is_break() {
                return Ok(());
            }
        }
        self.keep_data(borrowed)?;
        self.extend_line(rest)
    }

    /// Ends the stream: hands out a line or event that has no end of its own.
    ///
    /// # Errors
    /// When the last event exceeds its limit.
    pub fn finish(&mut self, mut sink: impl FnMut(Item<'_>) -> ControlFlow<()>) -> Result<(), LimitError> {
        let mut borrowed = None;
        // A piece of a field's name is the torn beginning of a field, not a line of something else.
        if FIELDS.iter().any(|field| field.starts_with(&self.line)) {
            self.line.clear();
        }
        if !self.line.is_empty() && self.take_cut_line(&mut borrowed, &mut sink)?.is_break() {
            return Ok(());
        }
        if self.has_data || self.has_kind {
            let item = Item::Event(Event { kind: &self.kind, data: &self.data, terminated: false });
            // Nothing comes after the last item, so there is nothing for a break to stop.
            if sink(item).is_continue() {
                self.clear_event();
            }
        }
        Ok(())
    }

    /// The next line of `rest` without its end, and what follows; `None` when the rest holds no line end.
    fn split_line<'a>(&mut self, rest: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let end = memchr2(b'\n', b'\r', rest)?;
        let (line, tail) = rest.split_at_checked(end)?;
        let (terminator, after) = tail.split_first()?;
        if *terminator == b'\n' {
            return Some((line, after));
        }
        self.after_cr = after.is_empty();
        Some((line, after.strip_prefix(b"\n").unwrap_or(after)))
    }

    /// Appends to the cut-off line, within its limit.
    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), LimitError> {
        if self.dropping || bytes.is_empty() {
            return Ok(());
        }
        let length = self.line.len().saturating_add(bytes.len());
        if length > MAX_OTHER_LINE {
            // Whether the line is data shows in its first bytes, which may themselves have been cut.
            let mut head = self.line.iter().chain(bytes).copied();
            let is_data = if self.first_line && self.line.iter().chain(bytes).copied().take(3).eq(BOM.iter().copied()) {
                head.by_ref().skip(3).take(4).eq(*b"data")
            } else {
                head.take(4).eq(*b"data")
            };
            if !is_data {
                let room = MAX_OTHER_LINE.saturating_sub(self.line.len());
                self.line.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
                self.dropping = true;
                return Ok(());
            }
            if length > MAX_LINE {
                return Err(LimitError::Line);
            }
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Takes the line that earlier reads began and this one completed. Its data cannot be borrowed.
    fn take_cut_line(
        &mut self,
        borrowed: &mut Borrowed<'_>,
        sink: &mut impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LimitError> {
        self.dropping = false;
        self.keep_data(borrowed.take())?;
        let mut line = mem::take(&mut self.line);
        let mut own = None;
        let flow = self.take_line(&line, &mut own, sink)?;
        self.keep_data(own)?;
        line.clear();
        self.line = line;
        Ok(flow)
    }

    /// Takes one whole line.
    fn take_line<'a>(
        &mut self,
        line: &'a [u8],
        borrowed: &mut Borrowed<'a>,
        sink: &mut impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LimitError> {
        let line = if mem::take(&mut self.first_line) { line.strip_prefix(BOM).unwrap_or(line) } else { line };
        if line.is_empty() {
            let flow = self.end_block(borrowed.take(), sink);
            return Ok(flow);
        }
        let (field, value) = match memchr(b':', line).and_then(|colon| line.split_at_checked(colon)) {
            Some((field, value)) => (field, value.strip_prefix(b": ").or(value.strip_prefix(b":")).unwrap_or(value)),
            None => (line, [].as_slice()),
        };
        match field {
            b"data" => {
                if line.len() > MAX_LINE {
                    return Err(LimitError::Line);
                }
                if self.has_data || borrowed.is_some() {
                    self.keep_data(borrowed.take())?;
                    self.push_data(value)?;
                } else {
                    *borrowed = Some(value);
                }
            }
            b"event" => {
                self.kind.clear();
                self.kind.extend_from_slice(value.get(..MAX_OTHER_LINE).unwrap_or(value));
                self.has_kind = true;
            }
            // A comment has an empty field name. `id` and `retry` are for clients that reconnect; this one does not.
            b"" | b"id" | b"retry" => {}
            _ => return Ok(sink(Item::Stray(line.get(..MAX_OTHER_LINE).unwrap_or(line)))),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A blank line: hands out the open event, if there is one.
    fn end_block(
        &mut self,
        borrowed: Borrowed<'_>,
        sink: &mut impl FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if borrowed.is_none() && !self.has_data && !self.has_kind {
            return sink(Item::Blank);
        }
        let data = borrowed.unwrap_or(&self.data);
        let flow = sink(Item::Event(Event { kind: &self.kind, data, terminated: true }));
        self.clear_event();
        flow
    }

    /// Copies borrowed data, because the read that it stands in ends before its event does.
    fn keep_data(&mut self, borrowed: Borrowed<'_>) -> Result<(), LimitError> {
        borrowed.map_or(Ok(()), |data| self.push_data(data))
    }

    fn push_data(&mut self, value: &[u8]) -> Result<(), LimitError> {
        if self.data.len().saturating_add(value.len()) >= MAX_EVENT {
            return Err(LimitError::Event);
        }
        if mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        Ok(())
    }

    fn clear_event(&mut self) {
        self.data.clear();
        self.has_data = false;
        self.kind.clear();
        self.has_kind = false;
    }
}

#[cfg(test)]
mod tests;
