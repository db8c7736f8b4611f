//! Quantiles of the last closed minutes.

use std::fmt;
use std::time::Duration;

use crate::export::metrics::catalogue::{Kind, Load, Metric, Presence, Source, Subject, Unit};
use crate::export::metrics::series::Series;
use crate::measure::window::gauge::{Estimate, Quantile};
use crate::measure::window::{Length, MINUTE, Metric as Quantity};

const WITH_VALUES: Presence = Presence::When("while the window holds values");
const ENOUGH_VALUES: Presence = Presence::When("while the window holds enough values; for a P99, 381");

pub(super) static METRICS: &[Metric] = &[
    Metric {
        name: "window_latency_seconds",
        kind: Kind::Gauge,
        unit: Unit::Seconds,
        subject: Subject::Windows,
        labels: &["metric", "q", "window"],
        presence: WITH_VALUES,
        help: "Quantile q of a latency over the last closed minutes",
        answers: &[(
            "TTFT P99 of the last half hour",
            "steadyload_window_latency_seconds{metric=\"ttft\", q=\"0.99\", window=\"30m\"}",
        )],
        source: Source::Load(|load, series| quantiles(load, series, |estimate| Some(estimate.value))),
    },
    Metric {
        name: "window_latency_ci_lower_seconds",
        kind: Kind::Gauge,
        unit: Unit::Seconds,
        subject: Subject::Windows,
        labels: &["metric", "q", "window"],
        presence: ENOUGH_VALUES,
        help: "Lower end of the quantile's 95 % interval, were requests independent; for display, not for alerts",
        answers: &[],
        source: Source::Load(|load, series| quantiles(load, series, |estimate| estimate.lower)),
    },
    Metric {
        name: "window_latency_ci_upper_seconds",
        kind: Kind::Gauge,
        unit: Unit::Seconds,
        subject: Subject::Windows,
        labels: &["metric", "q", "window"],
        presence: ENOUGH_VALUES,
        help: "Upper end of the quantile's 95 % interval, were requests independent; for display, not for alerts",
        answers: &[],
        source: Source::Load(|load, series| quantiles(load, series, |estimate| estimate.upper)),
    },
    Metric {
        name: "window_samples",
        kind: Kind::Gauge,
        unit: Unit::Number,
        subject: Subject::Windows,
        labels: &["metric", "window"],
        presence: Presence::Always,
        help: "How many values stand behind the quantiles of a window",
        answers: &[(
            "TTFT P99 of the last half hour, only where 1000 values stand behind it",
            "steadyload_window_latency_seconds{metric=\"ttft\", q=\"0.99\", window=\"30m\"} \
             and ignoring (q) steadyload_window_samples >= 1000",
        )],
        source: Source::Load(samples),
    },
    Metric {
        name: "window_covered_seconds",
        kind: Kind::Gauge,
        unit: Unit::Seconds,
        subject: Subject::Windows,
        labels: &["window"],
        presence: Presence::Always,
        help: "Time under load within a window: running, neither paused nor resting, and the client well",
        answers: &[("share of the last hour under load", "steadyload_window_covered_seconds{window=\"1h\"} / 3600")],
        source: Source::Load(|load, series| {
            Length::ALL.into_iter().try_for_each(|length| {
                let covered = load.counts.windows.window(length).covered;
                series.put(load.labels, &[length.name()], covered.as_secs_f64())
            })
        }),
    },
    Metric {
        name: "window_tainted_seconds",
        kind: Kind::Gauge,
        unit: Unit::Seconds,
        subject: Subject::Windows,
        labels: &["window"],
        presence: Presence::Always,
        help: "Length of the window's tainted minutes, in which the client was unwell or which were cut short",
        answers: &[("tainted share of the last hour", "steadyload_window_tainted_seconds{window=\"1h\"} / 3600")],
        source: Source::Load(|load, series| {
            Length::ALL.into_iter().try_for_each(|length| {
                let minutes = load.counts.windows.window(length).tainted_minutes;
                series.put(load.labels, &[length.name()], u64::from(minutes) * MINUTE.as_secs())
            })
        }),
    },
];

fn quantiles(load: &Load<'_>, series: &mut Series<'_, '_>, part: impl Fn(Estimate) -> Option<Duration>) -> fmt::Result {
    for length in Length::ALL {
        let window = load.counts.windows.window(length);
        for metric in Quantity::SHOWN {
            for quantile in Quantile::ALL {
                if let Some(latency) = window.metric(metric).quantile(quantile).and_then(&part) {
                    let values = [metric.name(), quantile.name(), length.name()];
                    series.put(load.labels, &values, latency.as_secs_f64())?;
                }
            }
        }
    }
    Ok(())
}

fn samples(load: &Load<'_>, series: &mut Series<'_, '_>) -> fmt::Result {
    for length in Length::ALL {
        let window = load.counts.windows.window(length);
        for metric in Quantity::SHOWN {
            series.put(load.labels, &[metric.name(), length.name()], window.metric(metric).samples)?;
        }
    }
    Ok(())
}
