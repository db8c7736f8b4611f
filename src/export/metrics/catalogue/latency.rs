//! Histograms of times, the client's own lateness included.

use std::fmt;

use crate::domain::sample::ItlBasis;
use crate::export::metrics::catalogue::{Kind, Load, Metric, Presence, Source, Subject, Unit};
use crate::export::metrics::series::Series;
use crate::measure::totals::Quantity;

pub(super) static METRICS: &[Metric] = &[
    histogram!(
        "time_to_first_token_seconds",
        Seconds,
        Latency,
        Ttft,
        "From sending a request on a ready connection to its first token-bearing event (TTFT)"
    ),
    histogram!(
        "request_time_per_output_token_seconds",
        Seconds,
        Latency,
        Tpot,
        "Mean time per output token after the first event of a request (TPOT); none for a single token or read"
    ),
    Metric {
        name: "inter_token_latency_seconds",
        kind: Kind::Histogram,
        unit: Unit::Seconds,
        subject: Subject::Latency,
        labels: &["basis"],
        presence: Presence::When("of each basis once it has values; before any, of the one that is expected"),
        help: "Time per token between events (ITL), once per token with basis token; where the server counts no tokens \
               per event, once per gap with basis chunk",
        answers: &[],
        source: Source::Load(inter_token_latency),
    },
    histogram!(
        "e2e_request_latency_seconds",
        Seconds,
        Latency,
        E2el,
        "From sending a request to its last token-bearing event (E2EL)"
    ),
    histogram!(
        "inter_chunk_latency_seconds",
        Seconds,
        Latency,
        Icl,
        "Gap between token-bearing events (ICL), which shows the stalls that division by tokens would smooth"
    ),
    histogram!(
        "time_to_first_answer_seconds",
        Seconds,
        Latency,
        Ttfo,
        "From sending a request to its first answer text, reasoning left out: when the user of a thinking model sees it"
    ),
    histogram!(
        "corrected_time_to_first_token_seconds",
        Seconds,
        Latency,
        CorrectedTtft,
        "From the planned instant to the first token-bearing event: a late start counts as latency"
    ),
    histogram!(
        "corrected_e2e_request_latency_seconds",
        Seconds,
        Latency,
        CorrectedE2el,
        "From the planned instant to the last token-bearing event: a late start counts as latency"
    ),
    histogram!(
        "stream_close_seconds",
        Seconds,
        Latency,
        StreamClose,
        "From the last token-bearing event to the end of the stream"
    ),
    Metric {
        name: "connect_seconds",
        kind: Kind::Histogram,
        unit: Unit::Seconds,
        subject: Subject::Connections,
        labels: &["phase"],
        presence: Presence::Always,
        help: "Phases of opening a connection: dns, tcp, tls",
        answers: &[],
        source: Source::Load(|load, series| {
            for (phase, quantity) in
                [("dns", Quantity::ConnectDns), ("tcp", Quantity::ConnectTcp), ("tls", Quantity::ConnectTls)]
            {
                series.histogram(load.labels, &[phase], &load.counts.totals, quantity)?;
            }
            Ok(())
        }),
    },
    histogram!(
        "schedule_lag_seconds",
        Seconds,
        Client,
        ScheduleLag,
        "From the planned instant to sending, connection set-up left out: our own lateness, of every request sent"
    ),
];

/// Never both bases unless the server changed its mind: an empty one beside the other would look like a missing half.
fn inter_token_latency(load: &Load<'_>, series: &mut Series<'_, '_>) -> fmt::Result {
    let bases = [(ItlBasis::Token, "token", Quantity::ItlToken), (ItlBasis::Chunk, "chunk", Quantity::ItlChunk)];
    let totals = &load.counts.totals;
    let none = bases.iter().all(|(_, _, quantity)| totals.histogram(*quantity).count() == 0);
    for (basis, name, quantity) in bases {
        if totals.histogram(quantity).count() > 0 || none && basis == load.view.itl_basis {
            series.histogram(load.labels, &[name], totals, quantity)?;
        }
    }
    Ok(())
}
