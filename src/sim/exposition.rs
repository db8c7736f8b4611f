//! `/metrics` in Prometheus' text format 0.0.4, in the names of the pretended server.
//!
//! Written by hand, as `render` writes events: the names, labels and buckets are the point, and a metrics library would
//! refuse names such as `vllm:prompt_tokens_total`. Beside the server's own series stand the gateway's: `sim:…`, the
//! same for both, so that a test can tell how late the gateway itself is. `_created` series are left out.

mod sglang;
mod vllm;

use std::fmt::Write as _;

use tokio::time::Instant;

use crate::sim::settings::{ServerKind, Settings};
use crate::sim::stats::{EngineStats, Reading, Stats};

/// All series at `now`.
pub(crate) fn text(settings: &Settings, stats: &Stats, engine: &EngineStats, now: Instant) -> String {
    let mut page = Page::new(&[]);
    page.gauge(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        stats.start_unix.as_secs_f64(),
    );
    let mut text = page.text;
    text.push_str(&match settings.server {
        ServerKind::Vllm => vllm::page(&settings.model, stats, engine),
        ServerKind::Sglang => sglang::page(&settings.model, stats, engine, now),
    });
    text.push_str(&own(&settings.model, stats));
    text
}

/// The gateway's own series.
fn own(model: &str, stats: &Stats) -> String {
    let mut page = Page::new(&[("model_name", model)]);
    page.histogram(
        "sim:event_lag_seconds",
        "How late an event that had a moment was written: the first try of its write minus that moment.",
        &stats.event_lag.read(),
    );
    page.gauge("sim:requests_open", "Requests that were read and are not over.", number(stats.open()));
    page.counter(
        "sim:requests_refused_total",
        "Requests that could not be answered: bad bodies, wrong keys, unknown models.",
        stats.refused(),
    );
    page.counter(
        "sim:streams_written_tokens_total",
        "Output tokens in writes; hidden reasoning is not among them.",
        stats.written_tokens(),
    );
    page.text
}

/// Series of one model under construction. Labels are sorted by name, as the Python client sorts them.
struct Page<'a> {
    labels: Vec<(&'a str, &'a str)>,
    text: String,
}

type Extra<'a> = &'a [(&'a str, &'a str)];

impl<'a> Page<'a> {
    /// Nothing yet; every series will have these labels.
    fn new(labels: &[(&'a str, &'a str)]) -> Self {
        Self { labels: labels.to_vec(), text: String::new() }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, extra: Extra<'_>, value: f64) {
        let mut labels: Vec<_> = self.labels.iter().chain(extra).collect();
        labels.sort();
        self.text.push_str(name);
        for (index, (label, text)) in labels.into_iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            self.text.push_str(&format!("{open}{label}=\"{text}\""));
        }
        let close = if self.labels.is_empty() && extra.is_empty() { "" } else { "}" };
        writeln!(self.text, "{close} {value:?}").ok();
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.sample(name, &[], number(value));
    }

    fn histogram(&mut self, name: &str, help: &str, reading: &Reading) {
        self.head(name, "histogram", help);
        self.buckets(name, &[], reading);
    }

    /// One series of a histogram whose head is written.
    fn buckets(&mut self, name: &str, extra: Extra<'_>, reading: &Reading) {
        for (bound, count) in &reading.cumulative {
            let bound = if bound.is_finite() { format!("{bound:?}") } else { "+Inf".to_owned() };
            let extra: Vec<_> = extra.iter().copied().chain([("le", bound.as_str())]).collect();
            self.sample(&format!("{name}_bucket"), &extra, number(*count));
        }
        self.sample(&format!("{name}_sum"), extra, reading.sum);
        self.sample(&format!("{name}_count"), extra, number(reading.count()));
    }
}

fn number(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "the text format has doubles only")]
    let number = count as f64;
    number
}

/// `part` of `whole`; 0 when there is nothing, as both servers say it.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { number(part) / number(whole) }
}

#[cfg(test)]
mod tests;
