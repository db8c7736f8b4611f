//! Every metric there is: the one list that the collector walks and `steadyload metrics` prints.
//!
//! Names are written as they are read, without the prefix. What the crate wants to add by itself (`_total`, `_info`, the
//! unit) is taken off in [`Metric::registered`], so that a name cannot come out with it twice: a counter registered as
//! `foo_total` would be exported as `foo_total_total`. Only seconds and bytes are given to the crate as units; it would
//! write ratios as `_ratios`. Help texts have no final dot, as the crate leaves them alone.
//!
//! Names stay: dashboards and alerts hold on to them. A renamed metric is a breaking change.

use std::borrow::Cow;
use std::fmt;

use prometheus_client::registry::Unit as RegisteredUnit;

use crate::export::metrics::series::{LoadLabels, Series};
use crate::export::view::{LoadView, View};
use crate::measure::snapshot::LoadSnapshot;

/// A histogram of a load without labels of its own.
macro_rules! histogram {
    ($name:literal, $unit:ident, $subject:ident, $quantity:ident, $help:literal) => {
        Metric {
            name: $name,
            kind: Kind::Histogram,
            unit: Unit::$unit,
            subject: Subject::$subject,
            labels: &[],
            presence: Presence::Always,
            help: $help,
            answers: &[],
            source: Source::Load(|load, series| {
                series.histogram(load.labels, &[], &load.counts.totals, Quantity::$quantity)
            }),
        }
    };
}

mod daemon;
mod latency;
mod requests;
mod windows;

/// What our own names begin with.
pub const PREFIX: &str = "steadyload_";

/// The labels of every series of a load.
pub const LOAD_LABELS: [&str; 3] = ["load", "target", "model_name"];

/// One family of metrics.
#[derive(Debug)]
pub struct Metric {
    /// As it is read, without [`PREFIX`].
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// What its numbers count.
    pub unit: Unit,
    /// Which part of the documentation it belongs to.
    pub subject: Subject,
    /// Its own labels, besides those of its load.
    pub labels: &'static [&'static str],
    /// When its series are there.
    pub presence: Presence,
    /// What it means, in a sentence without its dot.
    pub help: &'static str,
    /// Questions, and the PromQL that answers them. Histograms have one more: see [`Metric::queries`].
    pub answers: &'static [(&'static str, &'static str)],
    /// What makes its series.
    pub(super) source: Source,
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Classic and native at once.
    Histogram,
    /// A gauge of 1 whose labels say something.
    Info,
}

impl Kind {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// What the numbers of a metric count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds; of a timestamp, since the Unix epoch.
    Seconds,
    /// Bytes.
    Bytes,
    /// Tokens, by the server's count.
    Tokens,
    /// Requests.
    Requests,
    /// Requests per second.
    RequestsPerSecond,
    /// Things that the name says.
    Number,
    /// 0 or 1.
    Truth,
}

impl Unit {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::Tokens => "tokens",
            Self::Requests => "requests",
            Self::RequestsPerSecond => "requests/s",
            Self::Number => "number",
            Self::Truth => "0 or 1",
        }
    }
}

/// When the series of a metric are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// From the start, with every label set, at 0: `increase()` sees the first event.
    Always,
    /// Only sometimes; says when.
    When(&'static str),
}

/// Part of the documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Latencies of answered requests.
    Latency,
    /// Requests and how they ended.
    Requests,
    /// The load that is asked for.
    Load,
    /// Tokens.
    Tokens,
    /// Connections.
    Connections,
    /// Quantiles of windows.
    Windows,
    /// How well the client is.
    Client,
    /// The daemon.
    Daemon,
    /// The process.
    Process,
}

impl Subject {
    /// Every subject, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::Latency,
        Self::Requests,
        Self::Load,
        Self::Tokens,
        Self::Connections,
        Self::Windows,
        Self::Client,
        Self::Daemon,
        Self::Process,
    ];

    /// Its heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Latency => "Latency",
            Self::Requests => "Requests",
            Self::Load => "Load",
            Self::Tokens => "Tokens",
            Self::Connections => "Connections",
            Self::Windows => "Windows",
            Self::Client => "Client health",
            Self::Daemon => "Daemon",
            Self::Process => "Process",
        }
    }

    /// What there is to know of all its metrics.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Latency => {
                "Of answered requests only: outcome `ok`, and `short_output` but for the end-to-end ones. A failed request \
                 has no latency, so keep the error share beside every latency panel. Warm-ups are left out."
            }
            Self::Requests => {
                "Every planned request is shed, in flight, or has ended in exactly one outcome, and on every scrape \
                 `requests_planned_total = sum(requests_shed_total) + requests_in_flight + sum(requests_total)`."
            }
            Self::Load => "What each load is asked to do, and what keeps it from doing it.",
            Self::Tokens => {
                "By the server's own count (`usage`), never by the number of chunks or the length asked for."
            }
            Self::Connections => "Opening a connection is never inside a latency: it is counted here.",
            Self::Windows => {
                "Exact quantiles of the last closed minutes, from HDR histograms (error at most 0.1 %). They move once a \
                 minute. Never average them, over loads or over time: to aggregate, use the histograms. Always show \
                 `window_samples` beside a P99."
            }
            Self::Client => {
                "Whether this client may be blamed. What is measured in tainted seconds says nothing about the gateway; \
                 it stays in histograms and windows and is flagged."
            }
            Self::Daemon => "What the program itself is doing.",
            Self::Process => {
                "The standard metrics of a process, without our prefix. What the system does not say is absent."
            }
        }
    }
}

/// What makes the series of a metric.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// For each load.
    Load(fn(&Load<'_>, &mut Series<'_, '_>) -> fmt::Result),
    /// Once.
    Program(fn(&View, &mut Series<'_, '_>) -> fmt::Result),
}

/// One load with its labels.
#[derive(Debug)]
pub(super) struct Load<'a> {
    pub(super) view: &'a LoadView,
    pub(super) counts: &'a LoadSnapshot,
    pub(super) labels: &'a LoadLabels<'a>,
}

static SECONDS: RegisteredUnit = RegisteredUnit::Seconds;
static BYTES: RegisteredUnit = RegisteredUnit::Bytes;

/// Every metric, by subject.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    [latency::METRICS, requests::METRICS, windows::METRICS, daemon::METRICS].into_iter().flatten()
}

impl Metric {
    /// Its whole name, as it is read.
    #[must_use]
    pub fn full_name(&self) -> Cow<'static, str> {
        if self.subject == Subject::Process {
            return Cow::Borrowed(self.name);
        }
        Cow::Owned(format!("{PREFIX}{}", self.name))
    }

    /// All its labels.
    pub fn all_labels(&self) -> impl Iterator<Item = &'static str> {
        let load: &'static [&'static str] = match self.source {
            Source::Load(_) => &LOAD_LABELS,
            Source::Program(_) => &[],
        };
        load.iter().chain(self.labels).copied()
    }

    /// Name and unit as the crate wants them: without what it adds by itself.
    pub(super) fn registered(&self) -> (String, Option<&'static RegisteredUnit>) {
        let name = self.full_name();
        let bare = match self.kind {
            Kind::Counter => name.strip_suffix("_total"),
            Kind::Info => name.strip_suffix("_info"),
            Kind::Gauge | Kind::Histogram => None,
        };
        let bare = bare.unwrap_or(&name);
        let (bare, unit) = match self.unit {
            Unit::Seconds => (bare.strip_suffix("_seconds"), Some(&SECONDS)),
            Unit::Bytes => (bare.strip_suffix("_bytes"), Some(&BYTES)),
            Unit::Tokens | Unit::Requests | Unit::RequestsPerSecond | Unit::Number | Unit::Truth => (Some(bare), None),
        };
        (bare.unwrap_or(&name).to_owned(), unit)
    }

    /// Writes all its series.
    pub(super) fn collect(&self, view: &View, series: &mut Series<'_, '_>) -> fmt::Result {
        match self.source {
            Source::Program(collect) => collect(view, series),
            Source::Load(collect) => {
                for (load, counts) in view.loads() {
                    let values = [load.name.as_str(), &load.target, &load.model];
                    let [a, b, c] = LOAD_LABELS;
                    let [x, y, z] = values;
                    collect(&Load { view: load, counts, labels: &[(a, x), (b, y), (c, z)] }, series)?;
                }
                Ok(())
            }
        }
    }

    /// Questions, and the PromQL that answers them.
    ///
    /// A quantile is asked for in both forms: a Prometheus that takes native histograms has no `_bucket`, another has
    /// nothing else.
    #[must_use]
    pub fn queries(&self) -> Vec<(Cow<'static, str>, Cow<'static, str>)> {
        let mut queries = Vec::new();
        if self.kind == Kind::Histogram {
            let by: Vec<_> = ["load"].iter().chain(self.labels).copied().collect();
            let (name, by) = (self.full_name(), by.join(", "));
            queries.push((
                Cow::Borrowed("P99 over the last five minutes"),
                Cow::Owned(format!(
                    "histogram_quantile(0.99, sum by (le, {by}) (rate({name}_bucket[5m]))) or \
                     histogram_quantile(0.99, sum by ({by}) (rate({name}[5m])))"
                )),
            ));
        }
        queries.extend(self.answers.iter().map(|(question, query)| (Cow::Borrowed(*question), Cow::Borrowed(*query))));
        queries
    }
}

#[cfg(test)]
mod tests;
