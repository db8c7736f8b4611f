//! A good answer as a sequence of events, each with its moment: decided by request, settings and seed alone.
//!
//! Event k is due at `first + k * gap` (or at the sum of the drawn gaps), counted from the end of the request, so that
//! an event that leaves late does not delay the next. Nothing here waits or writes, and an answer is made one event at a
//! time: thousands of streams cost no more memory than their sockets.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, LogNormal};
use std::time::Duration;
use tokio::time::Instant;

use crate::domain::api::Api;
use crate::sim::ask::Ask;
use crate::sim::engine::{LiveEngine, Ticket};
use crate::sim::event::{Content, Due, Event, Kind};
use crate::sim::fault::{ContentForm, EndReason, RoleWhen, ShapeFault, UsageKind};
use crate::sim::render::{Count, Piece, Renderer};
use crate::sim::settings::{Pace, Reasoning, Settings, TextKind, UsageMode};
use crate::sim::stats::{FinishReason, Order};

/// What a drawn or multiplied time is cut at, so that no factor can overflow an instant.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

const ASCII: &[&str] = &[
    " the", " river", " runs", " slowly", " past", " an", " old", " mill", ",", " where", " light", " falls", " on",
    " water", ".", "\n",
];

const MIXED: &[&str] = &[
    " the",
    " river",
    "日本",
    "語",
    " Köln",
    " и",
    " лес",
    "🙂",
    " naïve",
    ",",
    "流れ",
    " light",
    "🚀",
    " \"quoted\"",
    ".",
    "\n",
];

/// The events of one answer.
#[derive(Debug)]
pub(crate) struct Answer {
    ask: Ask,
    settings: Arc<Settings>,
    renderer: Renderer,
    shape: Shape,
    /// Reasoning tokens that no event shows.
    hidden: u32,
    /// Reasoning tokens that events show.
    shown: u32,
    received_at: Instant,
    times: Times,
    pace_rng: StdRng,
    text_rng: StdRng,
    stage: Stage,
    /// Tokens so far, hidden ones included.
    made: u32,
    /// Text that its own token did not carry.
    held: String,
    /// All text so far; only SGLang's events repeat it.
    so_far: String,
}

/// Where the moments of the tokens come from.
#[derive(Debug)]
enum Times {
    /// They are drawn: the next event is due then.
    Drawn { due: Instant, factor: f64 },
    /// The modelled engine makes them.
    Made(Arc<Ticket>),
}

/// How the events differ from a good stream's.
#[derive(Debug, Clone, Copy, Default)]
struct Shape {
    role: Option<RoleWhen>,
    reason: Option<EndReason>,
    usage_kind: Option<UsageKind>,
    content_form: Option<ContentForm>,
    lacks_done: bool,
    lacks_finish: bool,
    finishes_with_text: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The engine has to admit it before anything can say how much of the prompt was cached.
    Admission,
    Role,
    Tokens,
    LateRole,
    Finish,
    Usage,
    Done,
    Over,
}

/// When a request came, which one it was, and how much slower than usual it is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Occasion {
    pub(crate) seq: u64,
    pub(crate) received_at: Instant,
    /// Seconds since 1970, for the field `created`.
    pub(crate) created: u64,
    pub(crate) factor: f64,
}

impl Answer {
    /// With an engine, it is asked for the tokens at once.
    pub(crate) fn new(
        mut ask: Ask,
        settings: Arc<Settings>,
        engine: Option<&LiveEngine>,
        occasion: Occasion,
        fault: Option<&ShapeFault>,
    ) -> Self {
        let mut seeds =
            StdRng::seed_from_u64(settings.seed ^ occasion.seq.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let id: u64 = seeds.random();
        let (text_rng, mut pace_rng) = (seeds.fork(), seeds.fork());
        let (shape, at) = Shape::of(fault);
        if let Some(at) = at {
            ask.tokens = ask.tokens.min(at.saturating_mul(settings.tokens_per_chunk));
        }
        match shape.usage_kind {
            Some(UsageKind::Missing) => ask.usage = UsageMode::None,
            Some(_) if ask.usage == UsageMode::None => ask.usage = UsageMode::Final,
            Some(_) | None => {}
        }
        let reasoning = if ask.api == Api::OpenAiChat { settings.reasoning_tokens.min(ask.tokens) } else { 0 };
        let (hidden, shown) = match settings.reasoning {
            Reasoning::Hidden => (reasoning, 0),
            Reasoning::Shown => (0, reasoning),
        };
        let factor = occasion.factor;
        let times = match engine {
            Some(engine) => Times::Made(Arc::new(engine.submit(&ask, occasion.received_at, factor))),
            None => {
                let mut due = occasion.received_at + draw(settings.ttft, factor, &mut pace_rng);
                for _ in 0..hidden.div_ceil(settings.tokens_per_chunk) {
                    due += draw(settings.gap, factor, &mut pace_rng);
                }
                Times::Drawn { due, factor }
            }
        };
        let renderer = renderer(&ask, &settings, id, occasion.created, shape);
        Self {
            ask,
            settings,
            renderer,
            shape,
            hidden,
            shown,
            received_at: occasion.received_at,
            stage: if engine.is_some() { Stage::Admission } else { Stage::Role },
            times,
            pace_rng,
            text_rng,
            made: hidden,
            held: String::new(),
            so_far: String::new(),
        }
    }

    /// Whether it is a stream at all.
    pub(crate) const fn is_stream(&self) -> bool {
        self.ask.stream
    }

    /// The engine's part of it, if there is an engine.
    pub(crate) fn ticket(&self) -> Option<Arc<Ticket>> {
        match &self.times {
            Times::Drawn { .. } => None,
            Times::Made(ticket) => Some(Arc::clone(ticket)),
        }
    }

    /// When the next event is due; once all tokens are out, when the last one was.
    fn due(&self) -> Due {
        match &self.times {
            Times::Drawn { due, .. } => Due::At(*due),
            Times::Made(_) => {
                Due::Made { tokens: self.made.max(self.hidden + 1).min(self.ask.tokens), plus: Duration::ZERO }
            }
        }
    }

    /// Takes over what the engine knows once it has admitted the request.
    fn learn(&mut self) {
        if let Times::Made(ticket) = &self.times {
            self.renderer.cached_tokens = ticket.cached_tokens();
        }
    }

    /// What is to be written, for those who count.
    pub(crate) fn order(&self) -> Order {
        Order {
            prompt_tokens: self.ask.prompt_tokens,
            cached_tokens: self.renderer.cached_tokens,
            hidden_tokens: self.hidden,
            tokens: self.ask.tokens - self.hidden,
            reason: self.reason(),
            is_stream: self.ask.stream,
        }
    }

    /// The same answer as one JSON body, due when its last token would have been.
    pub(crate) fn into_whole(mut self) -> Event {
        self.learn();
        let (mut reasoning, mut text) = (String::new(), String::new());
        let mut due = self.due();
        while self.made < self.ask.tokens {
            let chunk;
            (chunk, due) = self.next_chunk();
            if chunk.is_reasoning { &mut reasoning } else { &mut text }.push_str(&chunk.text);
        }
        let body = self.renderer.whole(&reasoning, &text, self.reason().word(), self.counted());
        Event {
            due: Some(due),
            content: Content::Raw(body.into()),
            tokens: self.ask.tokens - self.hidden,
            kind: Kind::Token,
        }
    }

    const fn reason(&self) -> FinishReason {
        match self.shape.reason {
            Some(EndReason::Error) => FinishReason::Error,
            Some(EndReason::Abort) => FinishReason::Abort,
            None if self.ask.at_limit => FinishReason::Length,
            None => FinishReason::Stop,
        }
    }

    fn counted(&self) -> Count {
        Count { completion: self.made, reasoning: self.made.min(self.hidden + self.shown) }
    }

    fn continuous(&self) -> Option<Count> {
        (self.ask.usage == UsageMode::Continuous).then(|| self.counted())
    }

    fn role(&self, due: Due) -> Event {
        let data = self.renderer.role(self.continuous());
        Event { due: Some(due), content: Content::Data(data), tokens: 0, kind: Kind::Role }
    }

    /// Whether `finish_reason` stands in the event with the last text. SGLang knows no other way.
    fn finishes_with_text(&self) -> bool {
        self.shape.finishes_with_text || self.ask.api == Api::SglangGenerate
    }

    /// The text of the next few tokens and when it is due; moves on to the moment of the next event.
    fn next_chunk(&mut self) -> (Chunk, Due) {
        let thinking_left = (self.hidden + self.shown).saturating_sub(self.made);
        let left = if thinking_left > 0 { thinking_left } else { self.ask.tokens - self.made };
        let tokens = self.settings.tokens_per_chunk.min(left);
        let mut text = std::mem::take(&mut self.held);
        for index in 1..=tokens {
            let word = self.word();
            let visible = self.made - self.hidden + index;
            let splits = self.settings.split_chars.is_some_and(|every| visible.is_multiple_of(every));
            // Only the chunk's last token can withhold its text, and only if another token of its kind follows.
            if splits && index == tokens && tokens < left { self.held.push_str(word) } else { text.push_str(word) }
        }
        self.made += tokens;
        let due = self.due();
        if let Times::Drawn { due, factor } = &mut self.times
            && self.made < self.ask.tokens
        {
            *due += draw(self.settings.gap, *factor, &mut self.pace_rng);
        }
        (Chunk { text, tokens, is_reasoning: thinking_left > 0 }, due)
    }

    fn word(&mut self) -> &'static str {
        let words = match self.settings.text {
            TextKind::Mixed => MIXED,
            TextKind::Ascii => ASCII,
        };
        words.get(self.text_rng.random_range(0..words.len())).copied().unwrap_or(" word")
    }

    fn token(&mut self) -> Event {
        let (chunk, due) = self.next_chunk();
        if self.ask.api == Api::SglangGenerate {
            self.so_far.push_str(&chunk.text);
        }
        let is_last = self.made >= self.ask.tokens;
        let reason = (is_last && self.finishes_with_text() && !self.shape.lacks_finish).then(|| self.reason().word());
        let usage = match self.ask.usage {
            UsageMode::FinalWithChoices if reason.is_some() => Some(self.counted()),
            UsageMode::Continuous => Some(self.counted()),
            UsageMode::AsAsked | UsageMode::None | UsageMode::Final | UsageMode::FinalWithChoices => None,
        };
        let piece = Piece {
            text: &chunk.text,
            is_reasoning: chunk.is_reasoning,
            so_far: &self.so_far,
            tokens: chunk.tokens,
            count: self.counted(),
        };
        let data = self.renderer.token(&piece, reason, usage);
        Event { due: Some(due), content: Content::Data(data), tokens: chunk.tokens, kind: Kind::Token }
    }

    fn finish(&self) -> Option<Event> {
        let is_said = self.finishes_with_text() && self.made > self.hidden;
        if is_said || self.shape.lacks_finish {
            return None;
        }
        let mut usage = match self.ask.usage {
            UsageMode::FinalWithChoices | UsageMode::Continuous => Some(self.counted()),
            UsageMode::AsAsked | UsageMode::None | UsageMode::Final => None,
        };
        if self.shape.usage_kind == Some(UsageKind::Disagree) {
            usage = Some(Count { completion: self.made + 1, ..self.counted() });
        }
        let data = self.renderer.finish(self.reason().word(), usage);
        Some(Event { due: Some(self.due()), content: Content::Data(data), tokens: 0, kind: Kind::Finish })
    }

    fn usage(&self) -> Option<Event> {
        let is_sent = matches!(self.ask.usage, UsageMode::Final | UsageMode::Continuous);
        (is_sent && self.ask.api != Api::SglangGenerate).then(|| {
            let data = self.renderer.usage_event(self.counted());
            Event { due: Some(self.due()), content: Content::Data(data), tokens: 0, kind: Kind::Usage }
        })
    }
}

impl Iterator for Answer {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let has_role = self.ask.api == Api::OpenAiChat && self.settings.role_chunk;
        loop {
            match self.stage {
                Stage::Admission => {
                    self.stage = Stage::Role;
                    if self.shape.role != Some(RoleWhen::Early) {
                        return Some(Event::admission());
                    }
                }
                Stage::Role => {
                    self.learn();
                    self.stage = Stage::Tokens;
                    match self.shape.role {
                        None if has_role => return Some(self.role(self.due())),
                        Some(RoleWhen::Early) if has_role => return Some(self.role(Due::At(self.received_at))),
                        None | Some(RoleWhen::Early | RoleWhen::Late) => {}
                    }
                }
                Stage::Tokens if self.made >= self.ask.tokens => self.stage = Stage::Finish,
                Stage::Tokens => {
                    let is_first = self.made == self.hidden;
                    if is_first && has_role && self.shape.role == Some(RoleWhen::Late) {
                        self.stage = Stage::LateRole;
                    }
                    return Some(self.token());
                }
                Stage::LateRole => {
                    self.stage = Stage::Tokens;
                    return Some(self.role(self.due()));
                }
                Stage::Finish => {
                    self.stage = Stage::Usage;
                    if let Some(event) = self.finish() {
                        return Some(event);
                    }
                }
                Stage::Usage => {
                    self.stage = Stage::Done;
                    if let Some(event) = self.usage() {
                        return Some(event);
                    }
                }
                Stage::Done => {
                    self.stage = Stage::Over;
                    if !self.shape.lacks_done {
                        return Some(Event::done(Some(self.due())));
                    }
                }
                Stage::Over => return None,
            }
        }
    }
}

struct Chunk {
    text: String,
    tokens: u32,
    is_reasoning: bool,
}

impl Shape {
    /// The shape, and the number of token events after which the answer ends, if the fault says so.
    fn of(fault: Option<&ShapeFault>) -> (Self, Option<u32>) {
        let mut shape = Self::default();
        let mut at = None;
        match fault {
            None => {}
            Some(ShapeFault::BadFinish { reason, at: events }) => {
                shape.reason = Some(*reason);
                at = Some(*events);
            }
            Some(ShapeFault::RoleChunk { when }) => shape.role = Some(*when),
            Some(ShapeFault::Usage { kind }) => shape.usage_kind = Some(*kind),
            Some(ShapeFault::NoDone {}) => shape.lacks_done = true,
            Some(ShapeFault::NoFinish {}) => shape.lacks_finish = true,
            Some(ShapeFault::FinishWithText {}) => shape.finishes_with_text = true,
            Some(ShapeFault::ContentType { form }) => shape.content_form = Some(*form),
        }
        (shape, at)
    }
}

fn renderer(ask: &Ask, settings: &Settings, id: u64, created: u64, shape: Shape) -> Renderer {
    let id = match ask.api {
        Api::OpenAiChat => format!("chatcmpl-{id:016x}"),
        Api::OpenAiCompletions => format!("cmpl-{id:016x}"),
        Api::SglangGenerate => format!("{id:016x}"),
    };
    Renderer {
        api: ask.api,
        id,
        created,
        model: settings.model.clone(),
        prompt_tokens: ask.prompt_tokens,
        cached_tokens: settings.cached_tokens.min(ask.prompt_tokens),
        reasoning_field: settings.reasoning_field,
        usage_null: settings.usage_null,
        incremental: settings.stream_output,
        usage_kind: shape.usage_kind,
        content_form: shape.content_form,
    }
}

/// One wait of this pace, slowed down by `factor`.
fn draw(pace: Pace, factor: f64, rng: &mut StdRng) -> Duration {
    let secs = match pace {
        Pace::Constant(time) => time.as_secs_f64(),
        Pace::Lognormal { median, sigma } => match LogNormal::new(0.0, sigma) {
            Ok(spread) => median.as_secs_f64() * spread.sample(rng),
            Err(_) => median.as_secs_f64(),
        },
    };
    Duration::try_from_secs_f64(secs * factor).map_or(LONGEST_WAIT, |time| time.min(LONGEST_WAIT))
}
