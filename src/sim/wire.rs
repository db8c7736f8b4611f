//! Turns a [`Reply`] into the steps that a connection takes: HTTP/1.1 written by hand.
//!
//! Hyper reads the requests, but does not write the answers. A server library exists to make wrong bytes impossible,
//! and half of the faults are wrong bytes: a FIN inside a chunk, a status line that is none, a head in seven-byte
//! pieces. Heads and chunks are a few lines of text, and writing them here also gives the truth log the exact write in
//! which a token left. So there is one way out for good and bad answers alike, and it is the executor in `connection`.

use std::collections::VecDeque;
use std::io::Write as _;
use std::iter::Peekable;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::clock;
use crate::sim::event::Due;
use crate::sim::fault::{CloseWhen, Codec, CutPlace, HeadState, ResetWhen, WireFault};
use crate::sim::refusal::phrase;
use crate::sim::reply::{Length, Part, Reply};

/// One thing that a connection does.
#[derive(Debug)]
pub(crate) struct Step {
    /// Not before this moment.
    pub(crate) due: Option<Due>,
    pub(crate) act: Act,
}

#[derive(Debug)]
pub(crate) enum Act {
    /// One write. What is in it goes into the truth log.
    Write { bytes: Bytes, is_head: bool, tokens: u32 },
    /// Nothing but the wait for its moment.
    Pause,
    /// Nothing, until the peer leaves.
    Hang,
    /// End the connection in order.
    Fin,
    /// End it by RST.
    Rst,
}

/// What the request said about the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// The client speaks HTTP/1.0, which knows no chunks.
    pub(crate) is_http10: bool,
    pub(crate) keeps_alive: bool,
}

/// The steps of one reply.
pub(crate) struct Steps {
    body: Peekable<Box<dyn Iterator<Item = Part> + Send>>,
    length: Length,
    manner: Manner,
    compressor: Option<Compressor>,
    queue: VecDeque<Step>,
    /// Token events that have passed.
    passed: u32,
    is_over: bool,
}

/// How the bytes leave: what a [`WireFault`] comes down to.
#[derive(Debug, Default)]
struct Manner {
    writes: Writes,
    stop: Option<Stop>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Writes {
    #[default]
    Whole,
    SplitChars(Duration),
    OneByte,
    Coalesced,
}

/// Where the answer ends before its time.
#[derive(Debug, Clone, Copy)]
struct Stop {
    at: u32,
    /// In the middle of the next event.
    is_inside: bool,
    end: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ending {
    Fin,
    Rst,
    Hang,
}

/// More than any answer has, so that it is always cut short.
const PROMISED_LENGTH: u64 = 1_000_000_000;

/// A larger head would only fill the gateway's own memory: no client reads so much.
const MOST_PADDING: u64 = 64 << 20;

impl Steps {
    /// The steps, and whether another request may follow on the connection.
    pub(crate) fn new(reply: Reply, terms: Terms) -> (Self, bool) {
        let mut steps = Self {
            body: reply.body.peekable(),
            length: reply.length,
            manner: Manner::default(),
            compressor: None,
            queue: VecDeque::new(),
            passed: 0,
            is_over: false,
        };
        let mut head = Head {
            first_line: format!("HTTP/1.1 {} {}", reply.status, phrase(reply.status)),
            lines: reply.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect(),
        };
        if !head.lines.iter().any(|line| line.starts_with("server:")) {
            head.lines.insert(0, "server: uvicorn".to_owned());
        }
        if terms.is_http10 && steps.length == Length::Chunked {
            steps.length = Length::UntilClose;
        }
        steps.lay_head(head, reply.wire.as_ref(), terms.keeps_alive && !reply.must_close);
        let keeps_alive = terms.keeps_alive && !reply.must_close && steps.length != Length::UntilClose;
        (steps, keeps_alive)
    }

    /// Queues the head, and settles how everything after it leaves.
    fn lay_head(&mut self, mut head: Head, fault: Option<&WireFault>, keeps_alive: bool) {
        let is_stream = matches!(self.length, Length::Chunked | Length::UntilClose);
        // A whole body has no events to count: it is cut at once.
        let stop =
            |at: u32, is_inside: bool, end: Ending| Some(Stop { at: if is_stream { at } else { 0 }, is_inside, end });
        let mut pieces = None;
        let mut instead = None;
        match fault {
            None => {}
            Some(WireFault::SplitUtf8 { pause }) => self.manner.writes = Writes::SplitChars(*pause),
            Some(WireFault::OneByte {}) => self.manner.writes = Writes::OneByte,
            Some(WireFault::Coalesced {}) => self.manner.writes = Writes::Coalesced,
            Some(WireFault::Compressed { with }) => {
                let name = if *with == Codec::Gzip { "gzip" } else { "deflate" };
                head.lines.push(format!("content-encoding: {name}"));
                self.compressor = Some(Compressor::new(*with));
                if self.length != Length::UntilClose {
                    self.length = Length::Chunked;
                }
            }
            Some(WireFault::Cut { at, place }) => self.manner.stop = stop(*at, *place == CutPlace::Event, Ending::Fin),
            Some(WireFault::Reset { when: ResetWhen::BeforeHead, .. }) => instead = Some(Ending::Rst),
            Some(WireFault::Reset { when: ResetWhen::AfterHead, .. }) => self.manner.stop = stop(0, false, Ending::Rst),
            Some(WireFault::Reset { when: ResetWhen::Stream, at }) => {
                self.manner.stop = stop(*at, !is_stream, Ending::Rst)
            }
            Some(WireFault::Close { when: CloseWhen::BeforeHead }) => instead = Some(Ending::Fin),
            Some(WireFault::Close { when: CloseWhen::InHead }) => {
                let whole = head.write(self.length, keeps_alive);
                self.write(None, whole.slice(..whole.len() / 2), false, 0);
                instead = Some(Ending::Fin);
            }
            Some(WireFault::Silence { head: HeadState::Withheld }) => instead = Some(Ending::Hang),
            Some(WireFault::Silence { head: HeadState::Sent }) => self.manner.stop = stop(0, false, Ending::Hang),
            Some(WireFault::HeadPieces { size, pause }) => pieces = Some((usize::from(*size).max(1), *pause)),
            Some(WireFault::HugeHead { size }) => {
                let size = usize::try_from(size.0.min(MOST_PADDING)).unwrap_or_default();
                head.lines.push(format!("x-padding: {}", "a".repeat(size)));
            }
            Some(WireFault::BadStatusLine {}) => "HTTP/one.one OK 200".clone_into(&mut head.first_line),
            Some(WireFault::ShortLength { at }) => {
                self.length = Length::Known(PROMISED_LENGTH);
                self.manner.stop = stop(*at, false, Ending::Fin);
            }
            Some(WireFault::CloseDelimited {}) => {
                head.first_line = head.first_line.replace("HTTP/1.1", "HTTP/1.0");
                self.length = Length::UntilClose;
            }
        }
        if let Some(end) = instead {
            self.end(None, end);
            return;
        }
        let bytes = head.write(self.length, keeps_alive);
        match pieces {
            None => self.write(None, bytes, true, 0),
            Some((size, pause)) => self.write_in_pieces(&bytes, size, pause),
        }
    }

    fn write_in_pieces(&mut self, bytes: &Bytes, size: usize, pause: Duration) {
        let mut due = Due::At(clock::now());
        let count = bytes.len().div_ceil(size);
        for (index, piece) in bytes.chunks(size).enumerate() {
            let act = Act::Write { bytes: bytes.slice_ref(piece), is_head: index + 1 == count, tokens: 0 };
            self.queue.push_back(Step { due: Some(due), act });
            due = due + pause;
        }
    }

    /// Queues the writes of `bytes`, in the manner of this reply.
    fn write(&mut self, due: Option<Due>, bytes: Bytes, is_head: bool, tokens: u32) {
        if bytes.is_empty() {
            return;
        }
        match self.manner.writes {
            Writes::Whole | Writes::Coalesced => {
                self.queue.push_back(Step { due, act: Act::Write { bytes, is_head, tokens } });
            }
            Writes::OneByte => {
                for index in 0..bytes.len() {
                    let is_last = index + 1 == bytes.len();
                    let act = Act::Write {
                        bytes: bytes.slice(index..=index),
                        is_head: is_head && is_last,
                        tokens: if is_last { tokens } else { 0 },
                    };
                    self.queue.push_back(Step { due, act });
                }
            }
            Writes::SplitChars(pause) => {
                // A lead byte of a character of several bytes; the cut is behind it.
                let cut = bytes.iter().position(|byte| *byte >= 0xc0).map_or(0, |at| at + 1);
                let (first, second) = (bytes.slice(..cut), bytes.slice(cut..));
                if first.is_empty() {
                    self.queue.push_back(Step { due, act: Act::Write { bytes: second, is_head, tokens } });
                    return;
                }
                let later = due.unwrap_or_else(|| Due::At(clock::now())) + pause;
                self.queue.push_back(Step { due, act: Act::Write { bytes: first, is_head: false, tokens: 0 } });
                self.queue.push_back(Step { due: Some(later), act: Act::Write { bytes: second, is_head, tokens } });
            }
        }
    }

    fn end(&mut self, due: Option<Due>, end: Ending) {
        self.is_over = true;
        let act = match end {
            Ending::Fin => Act::Fin,
            Ending::Rst => Act::Rst,
            Ending::Hang => Act::Hang,
        };
        self.queue.push_back(Step { due, act });
    }

    /// Queues one piece of the body, or the end that comes in its place.
    fn lay_part(&mut self, due: Option<Due>, bytes: &Bytes, tokens: u32) {
        if bytes.is_empty() && due.is_some() {
            self.queue.push_back(Step { due, act: Act::Pause });
            return;
        }
        match self.manner.stop {
            Some(stop) if self.passed >= stop.at => {
                if stop.is_inside {
                    let framed = self.frame(bytes);
                    self.write(due, framed.slice(..framed.len() / 2), false, 0);
                }
                self.end(due, stop.end);
            }
            _ => {
                self.passed += u32::from(tokens > 0);
                let packed = match &mut self.compressor {
                    Some(compressor) => compressor.pack(bytes),
                    None => bytes.clone(),
                };
                let framed = self.frame(&packed);
                self.write(due, framed, false, tokens);
            }
        }
    }

    /// Queues what ends the body.
    fn lay_end(&mut self) {
        self.is_over = true;
        if let Some(stop) = self.manner.stop {
            self.end(None, stop.end);
            return;
        }
        let rest = self.compressor.take().map(Compressor::finish).unwrap_or_default();
        let mut last = BytesMut::from(self.frame(&rest).as_ref());
        if self.length == Length::Chunked {
            last.put_slice(b"0\r\n\r\n");
        }
        self.write(None, last.freeze(), false, 0);
    }

    /// `bytes` as one chunk, when the body is chunked. An empty chunk would end the body, so there is none.
    fn frame(&self, bytes: &Bytes) -> Bytes {
        if self.length != Length::Chunked || bytes.is_empty() {
            return bytes.clone();
        }
        let mut out = BytesMut::with_capacity(bytes.len() + 12);
        out.put_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
        out.put_slice(bytes);
        out.put_slice(b"\r\n");
        out.freeze()
    }

    /// Head and body in one write, at the moment of the last part. A body that hangs never leaves.
    fn coalesce(&mut self) {
        let (mut body, mut all_tokens, mut last_due) = (BytesMut::new(), 0_u32, None);
        for part in self.body.by_ref() {
            match part {
                Part::Bytes { due, bytes, tokens } => {
                    body.put_slice(&bytes);
                    all_tokens += tokens;
                    last_due = due.or(last_due);
                }
                Part::Hang => {
                    self.queue.clear();
                    self.end(None, Ending::Hang);
                    return;
                }
            }
        }
        let mut out = BytesMut::new();
        for step in self.queue.drain(..) {
            if let Act::Write { bytes, .. } = step.act {
                out.put_slice(&bytes);
            }
        }
        out.put_slice(&self.frame(&body.freeze()));
        if self.length == Length::Chunked {
            out.put_slice(b"0\r\n\r\n");
        }
        self.is_over = true;
        let act = Act::Write { bytes: out.freeze(), is_head: true, tokens: all_tokens };
        self.queue.push_back(Step { due: last_due, act });
    }
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.manner.writes == Writes::Coalesced && !self.is_over {
            if let Some(Part::Bytes { due: due @ Some(_), bytes, .. }) = self.body.peek()
                && bytes.is_empty()
            {
                let due = *due;
                self.body.next();
                return Some(Step { due, act: Act::Pause });
            }
            self.coalesce();
        }
        loop {
            if let Some(step) = self.queue.pop_front() {
                return Some(step);
            }
            if self.is_over {
                return None;
            }
            match self.body.next() {
                Some(Part::Bytes { due, bytes, tokens }) => self.lay_part(due, &bytes, tokens),
                Some(Part::Hang) => self.end(None, Ending::Hang),
                None => self.lay_end(),
            }
        }
    }
}

struct Head {
    first_line: String,
    lines: Vec<String>,
}

impl Head {
    fn write(&self, length: Length, keeps_alive: bool) -> Bytes {
        let mut out = format!("{}\r\n", self.first_line);
        for line in &self.lines {
            out.push_str(line);
            out.push_str("\r\n");
        }
        match length {
            Length::Bodiless => {}
            Length::Known(length) => out.push_str(&format!("content-length: {length}\r\n")),
            Length::Chunked => out.push_str("transfer-encoding: chunked\r\n"),
            Length::UntilClose => {}
        }
        if !keeps_alive || length == Length::UntilClose {
            out.push_str("connection: close\r\n");
        }
        out.push_str("\r\n");
        out.into()
    }
}

/// A compressed body that is flushed after every event.
enum Compressor {
    Gzip(GzEncoder<Vec<u8>>),
    Zlib(ZlibEncoder<Vec<u8>>),
}

impl Compressor {
    fn new(codec: Codec) -> Self {
        match codec {
            Codec::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), Compression::fast())),
            Codec::Deflate => Self::Zlib(ZlibEncoder::new(Vec::new(), Compression::fast())),
        }
    }

    /// The bytes that let the reader see all of `bytes`. Writing into memory does not fail; if it did, the reader would
    /// see a broken body, which is what this fault is about.
    fn pack(&mut self, bytes: &[u8]) -> Bytes {
        let (done, out) = match self {
            Self::Gzip(encoder) => (encoder.write_all(bytes).and_then(|()| encoder.flush()), encoder.get_mut()),
            Self::Zlib(encoder) => (encoder.write_all(bytes).and_then(|()| encoder.flush()), encoder.get_mut()),
        };
        debug_assert!(done.is_ok());
        std::mem::take(out).into()
    }

    fn finish(self) -> Bytes {
        match self {
            Self::Gzip(encoder) => encoder.finish().unwrap_or_default().into(),
            Self::Zlib(encoder) => encoder.finish().unwrap_or_default().into(),
        }
    }
}
