//! What one checked target looks like on the screen.

use std::fmt;
use std::time::Duration;

use crate::clock::Instant;
use crate::config::secrets::Secrets;
use crate::config::sections::Target;
use crate::domain::sample::ItlBasis;
use crate::domain::timeline::Timeline;
use crate::load::client::reader::readable;
use crate::measure::sample;
use crate::watch::fetch::{Document, FetchError};
use crate::watch::models::{self, Model};

/// Most characters of a model's id that are shown.
const ID_SHOWN: usize = 100;
/// Most models that are named when the configured one is not among them.
const MODELS_SHOWN: usize = 5;

/// Everything that one request showed about a target.
#[derive(Debug)]
pub struct Report {
    pub(super) target: Target,
    pub(super) secrets: Secrets,
    pub(super) asked: u32,
    pub(super) models: Result<Document, FetchError>,
    pub(super) timeline: Timeline,
    pub(super) hint: Option<String>,
}

impl Report {
    /// Whether the target answers as the load needs it to.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.hint.is_none()
    }

    fn connection(&self) -> String {
        let Some(phases) = self.timeline.opened else { return "none came up".to_owned() };
        let phase = |name, took: Option<Duration>| took.map(|took| format!("{name} {}", short(took)));
        let phases = [phase("DNS", phases.dns), phase("TCP", phases.tcp), phase("TLS", phases.tls)];
        phases.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    fn models(&self) -> String {
        let url = self.target.models_url();
        let document = match &self.models {
            Ok(document) if document.status == 200 => document,
            Ok(document) => return format!("{url} answers {}: no list", document.status),
            Err(error) => return error.to_string(),
        };
        let Some(list) = models::parse(&document.text) else { return format!("{url} is no list of models") };
        let wanted = &self.target.model;
        if let Some(model) = list.iter().find(|model| model.id == *wanted) {
            let context = model.max_model_len.map(|tokens| format!(", context of {tokens} tokens")).unwrap_or_default();
            return format!("{wanted:?} is listed{context}");
        }
        // Servers echo keys; what the client kept of their words is clean already.
        let shown =
            |model: &Model| format!("{:?}", readable(&self.secrets.redact(&model.id), ID_SHOWN).unwrap_or_default());
        let more = if list.len() > MODELS_SHOWN { ", …" } else { "" };
        let near = models::nearest(&list, wanted);
        let near = near.map(|near| format!("; did you mean {}?", shown(near))).unwrap_or_default();
        let shown: Vec<_> = list.iter().take(MODELS_SHOWN).map(shown).collect();
        format!("{wanted:?} is not listed, only {}{more}{near}", shown.join(", "))
    }

    /// What an answer shows, line by line.
    fn answer(&self) -> Vec<(&'static str, String)> {
        let (answer, sample) = (&self.timeline.answer, sample::sample(&self.timeline));
        let quantity = |name, took: Option<Duration>| took.map(|took| format!("{name} {}", short(took)));
        let latencies = [
            quantity("TTFT", sample.ttft),
            quantity("TPOT", sample.tpot),
            quantity("E2EL", sample.e2el),
            quantity("first answer text after", sample.ttfo.filter(|_| answer.reasoning_shown)),
        ];
        let latencies = latencies.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let mut lines = vec![
            ("stamps", self.stamps()),
            ("latency", if latencies.is_empty() { "none".to_owned() } else { latencies }),
        ];
        lines.extend(self.gaps().map(|gaps| ("ITL", gaps)));
        lines.push(("tokens", self.tokens()));
        lines.push(("usage", self.usage()));
        lines.push(("length", self.length()));
        lines.push(("stream", self.stream()));
        lines
    }

    /// When the parts of the answer came, counted from the instant at which the request was sent.
    fn stamps(&self) -> String {
        let answer = &self.timeline.answer;
        let after = |name: &str, at: Option<Instant>| {
            let after = at?.saturating_duration_since(self.timeline.sent_at?);
            Some(format!("{name} {}", short(after)))
        };
        let stamps = [
            after("head", self.timeline.headers_at),
            after("first token", answer.first_at()),
            after("last token", answer.last_at()),
            after("end", answer.closed_at),
        ];
        format!("{} after it was sent", stamps.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }

    fn gaps(&self) -> Option<String> {
        let mut gaps = sample::inter_token_latencies(&self.timeline.answer);
        gaps.sort_unstable();
        let median = gaps.get(gaps.len() / 2)?.0;
        let largest = gaps.last()?.0;
        let basis = match sample::itl_basis(&self.timeline.answer) {
            ItlBasis::Token => "token",
            ItlBasis::Chunk => "chunk",
        };
        Some(format!("median {}, largest {} of {} gaps, basis {basis}", short(median), short(largest), gaps.len()))
    }

    fn tokens(&self) -> String {
        let answer = &self.timeline.answer;
        let events = answer.tokens.len();
        let Some(n) = answer.output_tokens() else {
            return format!("unknown of {} asked for, {events} events", self.asked);
        };
        let more = if n > self.asked { ": more than asked for" } else { "" };
        let per_chunk = f64::from(n) / f64::from(u32::try_from(events).unwrap_or(u32::MAX).max(1));
        let several = if per_chunk > 1.05 { ": chunks hold several tokens" } else { "" };
        format!("{n} of {} asked for, {events} events, {per_chunk:.2} tokens per chunk{several}{more}", self.asked)
    }

    fn usage(&self) -> String {
        let answer = &self.timeline.answer;
        let Some(usage) = answer.usage else {
            return "none came, so no TPOT can be computed: the gateway ignores stream_options.include_usage"
                .to_owned();
        };
        if answer.output_tokens().is_none() {
            return "came without a count of output tokens that can be one, so no TPOT can be computed".to_owned();
        }
        let count = |count: Option<u32>| count.map_or("unknown".to_owned(), |count| count.to_string());
        let form = match sample::itl_basis(answer) {
            ItlBasis::Token => "counted with every event",
            ItlBasis::Chunk => "counted once",
        };
        let reasoning = usage.reasoning_tokens.map(|tokens| format!(", reasoning {tokens}")).unwrap_or_default();
        format!("{form}; prompt {}, cached {}{reasoning}", count(usage.prompt_tokens), count(usage.cached_tokens))
    }

    /// Whether the demand for a fixed output length was honoured.
    fn length(&self) -> String {
        let send = self.target.send;
        let fields: Vec<_> = [("ignore_eos", send.ignore_eos), ("min_tokens", send.min_tokens)]
            .into_iter()
            .filter_map(|(field, sent)| sent.then_some(field))
            .collect();
        let reason = self.timeline.answer.finish_reason.as_deref().unwrap_or("none");
        if fields.is_empty() {
            return format!("not fixed: ignore_eos and min_tokens are switched off; finish_reason {reason}");
        }
        let fields = fields.join(" and ");
        match self.timeline.answer.output_tokens() {
            None => format!("unknown whether {fields} was honoured: no usage; finish_reason {reason}"),
            Some(n) if n < self.asked => format!("{fields} not honoured: it stopped after {n}, finish_reason {reason}"),
            Some(_) => format!("{fields} honoured, finish_reason {reason}"),
        }
    }

    /// Whether the events came as they were made.
    fn stream(&self) -> String {
        let answer = &self.timeline.answer;
        let (events, reads) = (answer.tokens.len(), answer.token_reads);
        let mut text = format!("{events} events in {reads} reads");
        if reads == 1 && events > 2 {
            text.push_str(
                ": something on the way collects the whole answer (a buffering proxy), so TTFT is the whole answer",
            );
        } else if (reads as usize).saturating_mul(2) < events {
            text.push_str(": something on the way collects events before it passes them on");
        }
        if self.timeline.compressed {
            text.push_str("; compressed although identity was asked for, so stamps show the compressor's blocks");
        }
        text
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, timeline, .. } = self;
        let verdict = match timeline.outcome.fault() {
            None => timeline.outcome.to_string(),
            Some(fault) => format!("{} (fault: {fault})", timeline.outcome),
        };
        let mut text = format!("target {}: {verdict}\n", target.name);
        let mut lines = vec![
            (
                "request",
                format!("POST {} as {}, x-request-id {}", target.request_url(), target.api, timeline.request_id),
            ),
            ("models", self.models()),
            ("connection", self.connection()),
        ];
        if let Some(status) = timeline.status {
            lines.push(("status", status.to_string()));
        }
        if timeline.outcome.is_answered() {
            lines.extend(self.answer());
        }
        lines.extend(timeline.detail.clone().map(|detail| ("said", detail)));
        lines.extend(self.hint.clone().map(|hint| ("hint", hint)));
        for (name, line) in lines {
            text.push_str(&format!("  {name:<11}{line}\n"));
        }
        f.write_str(&text)
    }
}

/// A duration with as many digits as anyone reads.
fn short(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else if seconds >= 0.001 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{:.0} µs", seconds * 1e6)
    }
}
