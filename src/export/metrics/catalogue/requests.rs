//! Requests, the load that is asked for, tokens and connections.

use crate::config::sections::Pace;
use crate::domain::outcome::Outcome;
use crate::domain::shed::ShedReason;
use crate::export::metrics::catalogue::{Kind, Metric, Presence, Source, Subject, Unit};
use crate::export::view::PauseReason;
use crate::measure::totals::{Quantity, Totals};

/// A counter of a load without labels of its own.
macro_rules! counter {
    ($name:literal, $unit:ident, $subject:ident, $count:expr, $help:literal, $answers:expr) => {
        Metric {
            name: $name,
            kind: Kind::Counter,
            unit: Unit::$unit,
            subject: Subject::$subject,
            labels: &[],
            presence: Presence::Always,
            help: $help,
            answers: $answers,
            source: Source::Load(|load, series| series.put(load.labels, &[], $count(&load.counts.totals))),
        }
    };
}

pub(super) static METRICS: &[Metric] = &[
    counter!(
        "requests_planned_total",
        Requests,
        Requests,
        Totals::planned,
        "Requests planned by the schedule, warm-ups included",
        &[
            ("planned requests per second", "sum by (load) (rate(steadyload_requests_planned_total[5m]))"),
            (
                "requests that are nowhere (always 0)",
                "sum by (load) (steadyload_requests_planned_total) - sum by (load) (steadyload_requests_shed_total) \
                 - sum by (load) (steadyload_requests_in_flight) - sum by (load) (steadyload_requests_total)",
            ),
        ]
    ),
    Metric {
        name: "requests_total",
        kind: Kind::Counter,
        unit: Unit::Requests,
        subject: Subject::Requests,
        labels: &["outcome"],
        presence: Presence::Always,
        help: "Requests that ended, by outcome, warm-ups included",
        answers: &[
            (
                "share of ended requests that failed",
                "1 - sum by (load) (rate(steadyload_requests_total{outcome=~\"ok|short_output\"}[5m])) \
                 / sum by (load) (rate(steadyload_requests_total[5m]))",
            ),
            (
                "what they failed of, per second",
                "sum by (load, outcome) (rate(steadyload_requests_total{outcome!=\"ok\"}[5m])) > 0",
            ),
        ],
        source: Source::Load(|load, series| {
            Outcome::ALL
                .into_iter()
                .try_for_each(|outcome| series.put(load.labels, &[outcome.name()], load.counts.totals.outcome(outcome)))
        }),
    },
    Metric {
        name: "requests_shed_total",
        kind: Kind::Counter,
        unit: Unit::Requests,
        subject: Subject::Requests,
        labels: &["reason"],
        presence: Presence::Always,
        help: "Planned requests that were never sent; late and no_prompt are our doing, inflight_cap and backoff the \
               gateway's",
        answers: &[(
            "share of planned requests that were not sent",
            "sum by (load, reason) (rate(steadyload_requests_shed_total[5m])) / on (load) group_left () \
             sum by (load) (rate(steadyload_requests_planned_total[5m]))",
        )],
        source: Source::Load(|load, series| {
            ShedReason::ALL
                .into_iter()
                .try_for_each(|reason| series.put(load.labels, &[reason.name()], load.counts.totals.shed(reason)))
        }),
    },
    Metric {
        name: "requests_in_flight",
        kind: Kind::Gauge,
        unit: Unit::Requests,
        subject: Subject::Requests,
        labels: &[],
        presence: Presence::Always,
        help: "Requests planned and neither shed nor ended, connecting included",
        answers: &[("under way now", "sum by (load) (steadyload_requests_in_flight)")],
        source: Source::Load(|load, series| series.put(load.labels, &[], load.counts.in_flight())),
    },
    Metric {
        name: "responses_total",
        kind: Kind::Counter,
        unit: Unit::Requests,
        subject: Subject::Requests,
        labels: &["code"],
        presence: Presence::When("of each status once it came; beyond 32 of them, together as code other"),
        help: "Responses by HTTP status, of every request that got a response head and has ended",
        answers: &[("answers of a kind per second", "sum by (load, code) (rate(steadyload_responses_total[5m]))")],
        source: Source::Load(|load, series| {
            let responses = &load.counts.totals.responses;
            for (code, n) in responses.codes() {
                series.put(load.labels, &[&code.to_string()], n)?;
            }
            if responses.other() == 0 {
                return Ok(());
            }
            series.put(load.labels, &["other"], responses.other())
        }),
    },
    counter!(
        "compressed_responses_total",
        Requests,
        Requests,
        |totals: &Totals| totals.compressed_responses,
        "Answers compressed although identity was asked for: compression holds tokens back, so their stamps are doubtful",
        &[("should stay 0", "sum by (load) (increase(steadyload_compressed_responses_total[1h]))")]
    ),
    counter!(
        "usage_missing_total",
        Requests,
        Requests,
        |totals: &Totals| totals.usage_missing,
        "Answered requests whose number of output tokens the server did not say, or said as what cannot be; they have no TPOT",
        &[("should stay 0", "sum by (load) (increase(steadyload_usage_missing_total[1h]))")]
    ),
    counter!(
        "warmup_requests_total",
        Requests,
        Requests,
        |totals: &Totals| totals.warmup_requests,
        "Warm-ups that ended; they are in requests_total too, and in no histogram and no token counter",
        &[]
    ),
    counter!(
        "goodput_requests_total",
        Requests,
        Requests,
        |totals: &Totals| totals.goodput_requests,
        "Requests that met every objective of their load (slo); a failed one meets none",
        &[(
            "share of requests that met the objectives",
            "sum by (load) (rate(steadyload_goodput_requests_total[5m])) \
             / sum by (load) (rate(steadyload_requests_total[5m]))",
        )]
    ),
    counter!(
        "prompt_queue_empty_total",
        Requests,
        Requests,
        |totals: &Totals| totals.shed(ShedReason::NoPrompt),
        "Times that no prompt was ready: the same as requests_shed_total with reason no_prompt",
        &[("should stay 0", "sum by (load) (increase(steadyload_prompt_queue_empty_total[1h]))")]
    ),
    Metric {
        name: "last_success_timestamp_seconds",
        kind: Kind::Gauge,
        unit: Unit::Seconds,
        subject: Subject::Requests,
        labels: &[],
        presence: Presence::When("once a request has ended ok"),
        help: "When a request last ended ok, warm-ups included",
        answers: &[("seconds since then", "time() - max by (load) (steadyload_last_success_timestamp_seconds)")],
        source: Source::Load(|load, series| match load.view.last_success_unix {
            Some(at) => series.put(load.labels, &[], at),
            None => Ok(()),
        }),
    },
    Metric {
        name: "target_requests_per_second",
        kind: Kind::Gauge,
        unit: Unit::RequestsPerSecond,
        subject: Subject::Load,
        labels: &[],
        presence: Presence::When("for loads with a rate"),
        help: "The rate that this shard is to keep",
        answers: &[(
            "share of the rate that is sent",
            "sum by (load) (rate(steadyload_requests_total[5m])) \
             / sum by (load) (steadyload_target_requests_per_second)",
        )],
        source: Source::Load(|load, series| match load.view.pace {
            Some(Pace::Rate(rate)) => series.put(load.labels, &[], rate.per_second),
            Some(Pace::Concurrency(_)) | None => Ok(()),
        }),
    },
    Metric {
        name: "target_concurrency",
        kind: Kind::Gauge,
        unit: Unit::Requests,
        subject: Subject::Load,
        labels: &[],
        presence: Presence::When("for loads with a concurrency"),
        help: "How many requests this shard is to keep under way; 0 when its share is none",
        answers: &[(
            "share of the concurrency that is kept",
            "sum by (load) (steadyload_requests_in_flight) / sum by (load) (steadyload_target_concurrency)",
        )],
        source: Source::Load(|load, series| match load.view.pace {
            Some(Pace::Concurrency(workers)) => series.put(load.labels, &[], u64::from(workers.get())),
            None => series.put(load.labels, &[], 0),
            Some(Pace::Rate(_)) => Ok(()),
        }),
    },
    Metric {
        name: "load_paused",
        kind: Kind::Gauge,
        unit: Unit::Truth,
        subject: Subject::Load,
        labels: &["reason"],
        presence: Presence::Always,
        help: "Whether the load is paused for this reason",
        answers: &[("paused loads", "max by (load, reason) (steadyload_load_paused) == 1")],
        source: Source::Load(|load, series| {
            PauseReason::ALL
                .into_iter()
                .try_for_each(|reason| series.put(load.labels, &[reason.name()], load.view.paused == Some(reason)))
        }),
    },
    Metric {
        name: "load_not_kept",
        kind: Kind::Gauge,
        unit: Unit::Truth,
        subject: Subject::Load,
        labels: &[],
        presence: Presence::Always,
        help: "Whether the load was not kept within the last minute, by the gateway's doing (cap reached, backing off)",
        answers: &[("loads that the gateway cannot take", "max by (load) (steadyload_load_not_kept) == 1")],
        source: Source::Load(|load, series| series.put(load.labels, &[], load.view.not_kept)),
    },
    counter!(
        "prompt_tokens_total",
        Tokens,
        Tokens,
        |totals: &Totals| totals.prompt_tokens,
        "Input tokens of answered requests",
        &[("input tokens per second", "sum by (load) (rate(steadyload_prompt_tokens_total[5m]))")]
    ),
    counter!(
        "generation_tokens_total",
        Tokens,
        Tokens,
        |totals: &Totals| totals.generation_tokens,
        "Output tokens of answered requests",
        &[("output tokens per second", "sum by (load) (rate(steadyload_generation_tokens_total[5m]))")]
    ),
    counter!(
        "cached_prompt_tokens_total",
        Tokens,
        Tokens,
        |totals: &Totals| totals.cached_prompt_tokens,
        "Input tokens of answered requests that came from the prefix cache",
        &[(
            "share of input tokens from the cache; 1 % or more means that prompts are not as unique as they should be",
            "sum by (load) (rate(steadyload_cached_prompt_tokens_total[1h])) \
             / sum by (load) (rate(steadyload_prompt_tokens_total[1h]))",
        )]
    ),
    histogram!("request_prompt_tokens", Tokens, Tokens, PromptTokens, "Input tokens of an answered request"),
    histogram!("request_generation_tokens", Tokens, Tokens, GenerationTokens, "Output tokens of an answered request"),
    histogram!(
        "tokens_per_chunk",
        Tokens,
        Tokens,
        TokensPerChunk,
        "Output tokens per token-bearing event of a request: shows coalescing and speculative decoding"
    ),
    counter!(
        "connections_opened_total",
        Number,
        Connections,
        |totals: &Totals| totals.connections_opened,
        "Connections opened for a request, warm-ups included",
        &[("new connections per second", "sum by (load) (rate(steadyload_connections_opened_total[5m]))")]
    ),
    counter!(
        "stale_connection_resends_total",
        Requests,
        Connections,
        |totals: &Totals| totals.stale_connection_resends,
        "Requests sent once more because a kept connection turned out to be closed",
        &[("per hour", "sum by (load) (increase(steadyload_stale_connection_resends_total[1h]))")]
    ),
];
