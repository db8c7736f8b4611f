//! What the API answers, as JSON. Times of day are Unix seconds, durations seconds; what does not exist is `null`.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::config::sections::{ArrivalProcess, Pace};
use crate::domain::outcome::Outcome;
use crate::domain::shed::ShedReason;
use crate::export::view::{LoadView, View};
use crate::measure::notable::{Notable, Requests};
use crate::measure::snapshot::LoadSnapshot;
use crate::measure::window::gauge::{MetricGauge, Quantile, WindowGauge};
use crate::measure::window::{Length, Metric};
use crate::watch::client_health::TaintReason;

/// The latencies of the status. All of them are in `/metrics`.
const SHOWN: [Metric; 3] = [Metric::Ttft, Metric::Tpot, Metric::E2el];

/// `GET /api/v1/status`.
pub(super) fn status(view: &View) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "phase": view.phase.name(),
        "taken_unix": view.snapshot.taken_unix.as_secs_f64(),
        "uptime_seconds": uptime(view).map(|uptime| uptime.as_secs_f64()),
        "loads": view.loads().map(|(load, counts)| load_status(load, counts)).collect::<Vec<_>>(),
        "client": client(view),
        "reload": {
            "successful": view.reload.successful,
            "succeeded_unix": view.reload.succeeded_unix.as_secs_f64(),
            "failure": view.reload.failure,
            "wants_restart": view.reload.wants_restart,
        },
        "state": view.state.map(|state| json!({
            "saved": state.saved,
            "saved_unix": state.saved_unix.map(|at| at.as_secs_f64()),
        })),
        "dropped": map(view.dropped.iter().map(|(queue, n)| (*queue, json!(n)))),
    })
}

/// How long the process has run; `None` when the system does not say when it started.
pub(super) fn uptime(view: &View) -> Option<Duration> {
    let started = Duration::try_from_secs_f64(view.client.process.start_time_unix?).ok()?;
    // Of two wall clock readings, between which it may have stepped.
    Some(view.snapshot.taken_unix.saturating_sub(started))
}

fn client(view: &View) -> Value {
    let health = &view.client.health;
    let reasons = TaintReason::ALL.into_iter();
    json!({
        "tainted": health.is_tainted(),
        "tainted_by": reasons.clone().filter(|reason| health.is_tainted_by(*reason)).map(TaintReason::name)
            .collect::<Vec<_>>(),
        "tainted_seconds": map(reasons.map(|reason| (reason.name(), json!(health.seconds(reason))))),
        "event_loop_delay_seconds": view.client.event_loop_delay.as_secs_f64(),
    })
}

fn load_status(load: &LoadView, counts: &LoadSnapshot) -> Value {
    let totals = &counts.totals;
    let outcomes = Outcome::ALL.into_iter().map(|outcome| (outcome.name(), json!(totals.outcome(outcome))));
    let shed = ShedReason::ALL.into_iter().map(|reason| (reason.name(), json!(totals.shed(reason))));
    let windows = Length::ALL.into_iter().map(|length| (length.name(), window(counts.windows.window(length))));
    json!({
        "load": load.name,
        "target": load.target,
        "model": load.model,
        "pace": pace(load.pace.as_ref()),
        "paused": load.paused.map(|reason| reason.name()),
        "not_kept": load.not_kept,
        "failing": load.failing.iter().map(|outcome| outcome.name()).collect::<Vec<_>>(),
        "last_success_unix": load.last_success_unix,
        "planned": totals.planned(),
        "in_flight": counts.in_flight(),
        "outcomes": map(outcomes),
        "shed": map(shed),
        "windows": map(windows),
    })
}

fn pace(pace: Option<&Pace>) -> Value {
    match pace {
        None => json!({ "concurrency": 0 }),
        Some(Pace::Concurrency(workers)) => json!({ "concurrency": workers }),
        Some(Pace::Rate(rate)) => {
            let (arrival, burstiness) = match rate.arrival {
                ArrivalProcess::Constant => ("constant", None),
                ArrivalProcess::Poisson => ("poisson", None),
                ArrivalProcess::Gamma { burstiness } => ("gamma", Some(burstiness)),
            };
            json!({
                "requests_per_second": rate.per_second,
                "arrival": arrival,
                "burstiness": burstiness,
                "max_in_flight": rate.max_in_flight,
            })
        }
    }
}

fn window(window: &WindowGauge) -> Value {
    let metrics = SHOWN.into_iter().map(|metric| (metric.name(), latency(window.metric(metric))));
    let mut value = map(metrics);
    value.insert("covered_seconds".to_owned(), json!(window.covered.as_secs_f64()));
    value.insert("tainted_minutes".to_owned(), json!(window.tainted_minutes));
    value.into()
}

fn latency(gauge: &MetricGauge) -> Value {
    let seconds = |quantile| gauge.quantile(quantile).map(|estimate| estimate.value.as_secs_f64());
    json!({ "n": gauge.samples, "p50_seconds": seconds(Quantile::P50), "p99_seconds": seconds(Quantile::P99) })
}

/// `GET /api/v1/events`: the oldest first.
pub(super) fn events(view: &View) -> Value {
    let events = view.events.iter().map(|event| {
        json!({
            "at_unix": event.at_unix.as_secs_f64(),
            "kind": event.kind,
            "load": event.load,
            "text": event.text,
        })
    });
    json!({ "events": events.collect::<Vec<_>>() })
}

/// `GET /api/v1/requests`, of one load or of all. `None`: there is no such load.
pub(super) fn requests(view: &View, load: Option<&str>) -> Option<Value> {
    let wanted = view.loads().filter(|(shown, _)| load.is_none_or(|name| name == shown.name));
    let loads = map(wanted.map(|(load, counts)| (load.name.as_str(), requests_json(view, &counts.requests))));
    (load.is_none() || !loads.is_empty()).then(|| json!({ "loads": loads }))
}

/// The notable requests of one load, the slowest and the last failed first.
fn requests_json(view: &View, requests: &Requests) -> Value {
    let list = |requests: Vec<&Notable>| requests.into_iter().map(|request| notable_json(view, request)).collect();
    let (slowest, failed): (Vec<Value>, Vec<Value>) = (list(requests.slowest()), list(requests.failed()));
    json!({ "slowest": slowest, "failed": failed })
}

/// One request. Its stamps are in seconds after the planned instant; one that was never taken is null.
fn notable_json(view: &View, request: &Notable) -> Value {
    let after = |at: Instant| at.saturating_duration_since(request.planned_at).as_secs_f64();
    let age = view.taken_at.saturating_duration_since(request.planned_at);
    json!({
        "request_id": request.request_id,
        "index": request.index,
        "planned_unix": view.snapshot.taken_unix.saturating_sub(age).as_secs_f64(),
        "sent_seconds": request.sent_at.map(after),
        "headers_seconds": request.headers_at.map(after),
        "first_token_seconds": request.first_at.map(after),
        "last_token_seconds": request.last_at.map(after),
        "ended_seconds": after(request.ended_at),
        "e2el_seconds": request.e2el.map(|e2el| e2el.as_secs_f64()),
        "output_tokens": request.output_tokens,
        "outcome": request.outcome.name(),
        "status": request.status,
        "detail": request.detail,
        "warmup": request.warmup,
    })
}

fn map<'a>(entries: impl Iterator<Item = (&'a str, Value)>) -> Map<String, Value> {
    entries.map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests;
