//! What is sent: prompts as a pure function of workload, stream and index.
//!
//! # What is decided here
//! The same configuration sends the same bytes, on any machine and in any version: every question that chance answers has a
//! generator of its own, seeded with the SHA-256 of all that it may depend on ([`draw`]), and neither `rand`'s distributions nor
//! the system's `exp` take part. A test holds the bytes; a change of them is a change of every baseline.
//!
//! # What two prompts share
//! Under `cache = "unique"` nothing from their first words on: 13 words stand in front that encode 78 bits of the hash of seed,
//! load, shard, part and index. Shards, warm-ups and the levels of a sweep are streams of their own, so none answers for
//! another from a prefix cache. The words are inside of the length that was asked for. A prompt that is too short for them
//! first loses its closing, then words from the end of the salt.
//!
//! # Lengths
//! A length is that of the whole request as the server counts it ([`Count`]): template, system prompt and salt included. Later
//! turns of a conversation ask a question of the asked length each, upon everything before it.
//!
//! # Conversations
//! With turns, [`INTERLEAVED`] conversations a shard take turns: an index and the next one are never of the same, and a turn
//! repeats the messages of the one before, with a stand-in for the answer, since the real one differs from run to run.
//!
//! Absent: whoever makes prompts ahead (`worker::prepare`), the index that is never used twice, and anything that learns from
//! answers while it runs.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use ring::digest::{Context, SHA256};

use self::draw::{Draw, Place, Purpose, Scope};
use self::entry::{Answer, Entry, Form};
use self::exact::Exact;
use self::file::Entries;
use crate::config::sections::{Cache, Dataset, Length, Workload};
use crate::domain::api::Api;
use crate::domain::hex::hex;
use crate::domain::prompt::{Message, Prompt, Role, joined};
use crate::load::schedule::plan::Shard;
use crate::tokens::{Fitted, fit};

mod draw;
mod entry;
mod error;
mod exact;
mod file;
mod lines;
mod scan;
pub(crate) mod words;

pub use self::error::{ReadError, SourceError};
pub use self::file::Skipped;
pub use self::words::Words;

/// Asks for a short answer, so that a server which does not honour `ignore_eos` shows it by stopping early.
const CLOSING: &str = "\n\nReply with the single word: yes.";

/// So many conversations of a shard are under way at a time, with turns. A turn is then as many requests after the one before.
pub const INTERLEAVED: u64 = 16;

/// What an entry of a file is taken to have when nothing says how long it is, to reckon memory by.
const USUAL_TOKENS: u32 = 2048;

/// How long a text is for the server.
pub trait Count: fmt::Debug + Send + Sync {
    /// Tokens of a chat, with what the server's template adds around it.
    fn chat(&self, messages: &[Message]) -> u32;
    /// Tokens of a completion's prompt, with the special ones that a server adds.
    fn completion(&self, text: &str) -> u32;
    /// Tokens of a text in the middle of another: nothing is added.
    fn plain(&self, text: &str) -> u32;
    /// Ordinary pieces of text to make others of, in an order that never changes; a text is their plain concatenation.
    fn pieces(&self) -> &[String];
    /// What tells it from others that count differently; a part of the workload's hash.
    fn identity(&self) -> String;
    /// Whether it counts as the server does, whatever the text.
    fn is_exact(&self) -> bool;
}

/// Prompts that have nothing in common with those of another stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// The load.
    pub load: String,
    /// Whose indices they are.
    pub shard: Shard,
    /// What they are for.
    pub part: Part,
}

/// What prompts of a load are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// To be measured.
    Measured,
    /// To warm up.
    WarmUp,
    /// One level of a sweep.
    Level(u32),
}

/// The prompts of a workload.
#[derive(Debug)]
pub struct Source {
    workload: Workload,
    api: Api,
    counter: Arc<dyn Count>,
    text: Text,
    hash: String,
}

/// What texts are made of.
#[derive(Debug)]
enum Text {
    /// The counter's pieces.
    Pieces,
    /// Lines.
    Lines(Vec<String>),
    /// Entries, which are sent as they are.
    Entries(Entries),
}

impl Source {
    /// Opens the data set of the workload with this name, and its tokenizer, if it has one; without, lengths are estimated
    /// by words.
    ///
    /// # Errors
    /// When its file or its tokenizer cannot be used: the error names the setting.
    pub fn of(name: &str, workload: &Workload, api: Api) -> Result<Self, SourceError> {
        let counter: Arc<dyn Count> = match &workload.tokenizer {
            Some(dir) => Arc::new(Exact::open(name, workload, dir, api)?),
            None => Arc::new(Words::default()),
        };
        Self::open(name, workload, api, counter)
    }

    /// Opens the data set of the workload with this name.
    ///
    /// # Errors
    /// When its file cannot be used: the error names `workloads.NAME.path`.
    pub fn open(name: &str, workload: &Workload, api: Api, counter: Arc<dyn Count>) -> Result<Self, SourceError> {
        let (text, bytes) = match &workload.dataset {
            Dataset::Random | Dataset::SharedPrefix { .. } => (Text::Pieces, Vec::new()),
            Dataset::Sonnet { path, .. } => {
                let (lines, bytes) = lines::read(name, path.as_deref())?;
                (Text::Lines(lines), ring::digest::digest(&SHA256, &bytes).as_ref().to_vec())
            }
            Dataset::ShareGpt(file) | Dataset::Jsonl(file) => {
                let sharegpt = matches!(workload.dataset, Dataset::ShareGpt(_));
                let form = if sharegpt { Form::ShareGpt } else { Form::Jsonl };
                let entries = Entries::open(name, form, file)?;
                let digest = entries.digest().to_vec();
                (Text::Entries(entries), digest)
            }
        };
        let hash = hash(workload, api, &*counter, &bytes);
        Ok(Self { workload: workload.clone(), api, counter, text, hash })
    }

    /// The prompt with this index.
    ///
    /// # Errors
    /// When the data set is in a file and that has changed or cannot be read any more.
    pub fn prompt(&self, stream: &Stream, index: u64) -> Result<Prompt, ReadError> {
        let index = if self.workload.cache == Cache::Repeat { 0 } else { index };
        match &self.text {
            Text::Entries(entries) => self.written(entries, stream, index),
            Text::Pieces | Text::Lines(_) => Ok(self.made_up(stream, index)),
        }
    }

    /// What tells this workload's prompts from others: SHA-256 in hexadecimal digits over the data set's bytes, the counter,
    /// the API, the seed, the lengths and the policy. The same hash, the same prompts.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Entries of the file that are never sent.
    #[must_use]
    pub fn skipped(&self) -> Skipped {
        match &self.text {
            Text::Entries(entries) => entries.skipped(),
            Text::Pieces | Text::Lines(_) => Skipped::default(),
        }
    }

    /// The most tokens that a prompt may have, about: what memory has to be kept for.
    #[must_use]
    pub fn most_input_tokens(&self) -> u32 {
        self.workload.most_input_tokens(USUAL_TOKENS)
    }

    /// Whether lengths are counted as the server counts, rather than estimated.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.counter.is_exact()
    }

    /// Tokens of a request, by whoever counts.
    fn count(&self, messages: &[Message]) -> u32 {
        match self.api {
            Api::OpenAiChat => self.counter.chat(messages),
            Api::OpenAiCompletions | Api::SglangGenerate => self.counter.completion(&joined(messages)),
        }
    }

    /// Tokens of the request with other texts as its last message. Fitting asks some dozen times: the request is not made anew.
    fn count_with_last(&self, request: Vec<Message>) -> impl Fn(&str) -> u32 + '_ {
        let request = RefCell::new(request);
        move |text| {
            let mut request = request.borrow_mut();
            if let Some(last) = request.last_mut() {
                text.clone_into(&mut last.text);
            }
            self.count(&request)
        }
    }

    /// Draws for one question of a stream.
    fn draw(&self, stream: &Stream, purpose: Purpose, place: Place) -> Draw {
        Draw::new(self.workload.seed, Scope::Stream(stream), purpose, place)
    }

    fn length(&self, stream: &Stream, length: Option<&Length>, purpose: Purpose, place: Place) -> u32 {
        length.map_or(1, |length| self.draw(stream, purpose, place).length(length))
    }

    /// The words that tell this place from others.
    fn salt(&self, stream: &Stream, place: Place) -> Vec<&'static str> {
        let digest = draw::digest(self.workload.seed, Scope::Stream(stream), Purpose::Salt, place);
        draw::salt(digest).filter_map(|at| words::WORDS.get(at).copied()).collect()
    }

    // ---- made up ----

    /// A prompt of the built-in kinds.
    fn made_up(&self, stream: &Stream, index: u64) -> Prompt {
        let (conversation, turn) = place(stream.shard, self.workload.turns.get(), index);
        let mut messages = self.opening(stream, conversation);
        for at in 0..=turn {
            let place = (conversation, at);
            let asked = self.length(stream, self.workload.input_tokens.as_ref(), Purpose::InputLength, place);
            let question = match at {
                0 => self.first_question(stream, conversation, &messages, asked),
                _ => self.next_question(stream, place, asked),
            };
            messages.push(Message::user(question));
            if at < turn {
                messages.push(self.stand_in(stream, place));
            }
        }
        let outputs = self.workload.output_tokens.as_ref();
        let output_tokens = self.length(stream, outputs, Purpose::OutputLength, (conversation, turn));
        Prompt { input_tokens: Some(self.count(&messages)), messages, output_tokens, turn }
    }

    /// What stands before the conversation: the system prompt of its group.
    fn opening(&self, stream: &Stream, conversation: u64) -> Vec<Message> {
        let Dataset::SharedPrefix { groups, prefix_tokens } = &self.workload.dataset else { return Vec::new() };
        let group = conversation % u64::from(groups.get());
        vec![Message { role: Role::System, text: self.shared(stream, group, prefix_tokens.get()) }]
    }

    /// A text of so many tokens that is the same for the whole load.
    fn shared(&self, stream: &Stream, number: u64, tokens: u32) -> String {
        let scope = Scope::Load(&stream.load);
        let draw = Draw::new(self.workload.seed, scope, Purpose::Prefix, (number, 0));
        let mut pieces: Box<dyn FnMut() -> String> = match &self.text {
            Text::Lines(lines) if matches!(self.workload.dataset, Dataset::Sonnet { prefix_tokens: Some(_), .. }) => {
                Box::new(lines::words(lines::in_order(lines)))
            }
            Text::Pieces | Text::Lines(_) | Text::Entries(_) => self.pieces(draw),
        };
        self.fitted(&mut *pieces, "", tokens)
    }

    /// Pieces of text without end.
    fn pieces(&self, mut draw: Draw) -> Box<dyn FnMut() -> String + '_> {
        match &self.text {
            Text::Lines(lines) => Box::new(lines::words(lines::at_random(lines, draw))),
            Text::Pieces | Text::Entries(_) => {
                Box::new(move || draw.one(self.counter.pieces()).cloned().unwrap_or_default())
            }
        }
    }

    /// The first question of a conversation: what is shared, the salt, text, and the closing, as far as there is room.
    fn first_question(&self, stream: &Stream, conversation: u64, before: &[Message], asked: u32) -> String {
        let shared = match (&self.workload.dataset, &self.workload.cache) {
            (Dataset::Sonnet { prefix_tokens: Some(tokens), .. }, _) | (_, Cache::SharedPrefix(tokens)) => {
                format!("{} ", self.shared(stream, 0, tokens.get()))
            }
            _ => String::new(),
        };
        let mut request = before.to_vec();
        request.push(Message::user(String::new()));
        let count = self.count_with_last(request);
        let mut salt = self.salt(stream, (conversation, 0));
        let front = |salt: &[&str]| format!("{shared}{}", salt.join(" "));
        let whole = format!("{}{CLOSING}", front(&salt));
        let closing = if count(&whole) <= asked { CLOSING } else { "" };
        while salt.len() > 1 && count(&front(&salt)) > asked {
            salt.pop();
        }
        let mut pieces = self.pieces(self.draw(stream, Purpose::Question, (conversation, 0)));
        fit(&count, &front(&salt), &mut *pieces, closing, asked).text
    }

    /// A question upon what was said: of the asked length by itself.
    fn next_question(&self, stream: &Stream, place: Place, asked: u32) -> String {
        let mut pieces = self.pieces(self.draw(stream, Purpose::Question, place));
        let closing = if self.counter.plain(CLOSING) <= asked { CLOSING } else { "" };
        self.fitted(&mut *pieces, closing, asked)
    }

    /// What stands for the answer to this turn.
    fn stand_in(&self, stream: &Stream, place: Place) -> Message {
        let tokens = self.length(stream, self.workload.output_tokens.as_ref(), Purpose::OutputLength, place);
        let mut pieces = self.pieces(self.draw(stream, Purpose::Answer, place));
        Message { role: Role::Assistant, text: self.fitted(&mut *pieces, "", tokens) }
    }

    /// A text of so many tokens by itself. The space before its first piece is none of it.
    fn fitted(&self, pieces: &mut dyn FnMut() -> String, closing: &str, tokens: u32) -> String {
        let count = |text: &str| self.counter.plain(text.trim_start());
        fit(&count, "", pieces, closing, tokens).text.trim_start().to_owned()
    }

    // ---- written by others ----

    /// A prompt that stands in a file.
    fn written(&self, entries: &Entries, stream: &Stream, index: u64) -> Result<Prompt, ReadError> {
        let position = self.position(entries.len(), stream, index);
        let Entry { mut messages, answer } = entries.get(position)?;
        if self.workload.cache == Cache::Unique {
            let salt = self.salt(stream, (index, 0)).join(" ");
            if let Some(first) = messages.first_mut() {
                first.text = format!("{salt}\n\n{}", first.text);
            }
        }
        if let Some(length) = &self.workload.input_tokens {
            let asked = self.length(stream, Some(length), Purpose::InputLength, (index, 0));
            self.cut_or_repeat(&mut messages, asked);
        }
        let output_tokens = match (&self.workload.output_tokens, answer) {
            (_, Answer::Tokens(tokens)) => tokens,
            (None, Answer::Like(text)) => self.counter.plain(&text).max(1),
            (length, _) => self.length(stream, length.as_ref(), Purpose::OutputLength, (index, 0)),
        };
        // An estimate that was learnt from our words says nothing of other text.
        let input_tokens = self.counter.is_exact().then(|| self.count(&messages));
        Ok(Prompt { messages, output_tokens, input_tokens, turn: 0 })
    }

    /// Which entry is sent: each of them once in a pass, in an order of the pass's own.
    fn position(&self, entries: usize, stream: &Stream, index: u64) -> usize {
        let n = u64::try_from(entries.max(1)).unwrap_or(u64::MAX);
        let mut draw = self.draw(stream, Purpose::Order, (index / n, 0));
        let start = draw.below(n);
        // A step that has no factor in common with their number comes by all of them.
        let step = (0..64).map(|_| draw.below(n)).find(|step| common_factor(*step, n) == 1).unwrap_or(1);
        let position = (u128::from(index % n) * u128::from(step) + u128::from(start)) % u128::from(n);
        usize::try_from(position).unwrap_or_default()
    }

    /// Makes a request of a length out of one that has another: its last message loses words, or begins again.
    fn cut_or_repeat(&self, messages: &mut [Message], asked: u32) {
        let count = self.count_with_last(messages.to_vec());
        let Some(last) = messages.last_mut() else { return };
        let said = format!("{} ", last.text);
        let mut words = said.split_inclusive(char::is_whitespace).cycle();
        let Fitted { text, .. } = fit(&count, "", &mut || words.next().unwrap_or(" ").to_owned(), "", asked);
        last.text = text.trim_end().to_owned();
    }
}

/// The conversation and the turn in it that an index is.
fn place(shard: Shard, turns: u32, index: u64) -> Place {
    // Of all shards, since the index is: each shard then has `INTERLEAVED` of its own, and whole ones.
    let wide = INTERLEAVED * u64::from(shard.count());
    let (round, within) = match turns {
        1 => return (index, 0),
        turns => (index / (wide * u64::from(turns)), index % (wide * u64::from(turns))),
    };
    (round * wide + within % wide, u32::try_from(within / wide).unwrap_or(u32::MAX))
}

fn common_factor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_factor(b, a % b) }
}

fn hash(workload: &Workload, api: Api, counter: &dyn Count, data: &[u8]) -> String {
    let mut hash = Context::new(&SHA256);
    let described = workload.described();
    let identity = counter.identity();
    for part in
        [b"steadyload workload 1".as_slice(), described.as_bytes(), api.name().as_bytes(), identity.as_bytes(), data]
    {
        hash.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        hash.update(part);
    }
    hex(hash.finish().as_ref())
}

#[cfg(test)]
mod tests;
