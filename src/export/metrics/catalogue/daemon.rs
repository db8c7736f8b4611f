//! The client's health, the daemon and its process.

use crate::export::metrics::catalogue::{Kind, Metric, Presence, Source, Subject, Unit};
use crate::export::view::{Phase, View};
use crate::watch::client_health::TaintReason;

/// A metric without labels that exists when there is something to say.
macro_rules! single {
    ($name:literal, $kind:ident, $unit:ident, $subject:ident, $presence:expr, $value:expr, $help:literal, $answers:expr) => {
        Metric {
            name: $name,
            kind: Kind::$kind,
            unit: Unit::$unit,
            subject: Subject::$subject,
            labels: &[],
            presence: $presence,
            help: $help,
            answers: $answers,
            source: Source::Program(|view, series| {
                let value: fn(&View) -> Option<_> = $value;
                match value(view) {
                    Some(value) => series.put(&[], &[], value),
                    None => Ok(()),
                }
            }),
        }
    };
}

const TOLD: Presence = Presence::When("where the system says it");
const STATE: Presence = Presence::When("with a state.dir");

pub(super) static METRICS: &[Metric] = &[
    single!(
        "client_tainted",
        Gauge,
        Truth,
        Client,
        Presence::Always,
        |view| Some(view.client.health.is_tainted()),
        "Whether the last second was tainted: this client was unwell, for any of the reasons of client_taint_seconds_total",
        &[("clients that are unwell now", "steadyload_client_tainted == 1")]
    ),
    Metric {
        name: "client_taint_seconds_total",
        kind: Kind::Counter,
        unit: Unit::Seconds,
        subject: Subject::Client,
        labels: &["reason"],
        presence: Presence::Always,
        help: "Seconds in which this client was unwell for this reason",
        answers: &[(
            "share of time, by reason",
            "sum by (reason) (rate(steadyload_client_taint_seconds_total[15m])) > 0",
        )],
        source: Source::Program(|view, series| {
            TaintReason::ALL
                .into_iter()
                .try_for_each(|reason| series.put(&[], &[reason.name()], view.client.health.seconds(reason)))
        }),
    },
    single!(
        "event_loop_delay_seconds",
        Gauge,
        Seconds,
        Client,
        Presence::Always,
        |view| Some(view.client.event_loop_delay.as_secs_f64()),
        "The longest time in the last second that a load thread came late to an event",
        &[("the worst of the last five minutes", "max_over_time(steadyload_event_loop_delay_seconds[5m])")]
    ),
    Metric {
        name: "build_info",
        kind: Kind::Info,
        unit: Unit::Number,
        subject: Subject::Daemon,
        labels: &["version", "os", "arch"],
        presence: Presence::Always,
        help: "Which steadyload this is",
        answers: &[("versions at work", "count by (version) (steadyload_build_info)")],
        source: Source::Program(|_, series| {
            series.info(&[env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH])
        }),
    },
    Metric {
        name: "phase",
        kind: Kind::Gauge,
        unit: Unit::Truth,
        subject: Subject::Daemon,
        labels: &["phase"],
        presence: Presence::Always,
        help: "Where the daemon stands: 1 for starting, running, draining or stopping, 0 for the others",
        answers: &[("daemons at work", "steadyload_phase{phase=\"running\"} == 1")],
        source: Source::Program(|view, series| {
            Phase::ALL.into_iter().try_for_each(|phase| series.put(&[], &[phase.name()], view.phase == phase))
        }),
    },
    single!(
        "config_last_reload_successful",
        Gauge,
        Truth,
        Daemon,
        Presence::Always,
        |view| Some(view.reload.successful),
        "Whether the configuration in force is the one that was last asked for",
        &[("a bad configuration is waiting", "steadyload_config_last_reload_successful == 0")]
    ),
    single!(
        "config_last_reload_success_timestamp_seconds",
        Gauge,
        Seconds,
        Daemon,
        Presence::Always,
        |view| Some(view.reload.succeeded_unix.as_secs_f64()),
        "When the configuration was last loaded well; the start counts",
        &[("age of the configuration in seconds", "time() - steadyload_config_last_reload_success_timestamp_seconds")]
    ),
    single!(
        "state_saved",
        Gauge,
        Truth,
        Daemon,
        STATE,
        |view| view.state.map(|state| state.saved),
        "Whether the last write to the state directory went well",
        &[("windows will not survive a restart", "steadyload_state_saved == 0")]
    ),
    single!(
        "state_last_save_timestamp_seconds",
        Gauge,
        Seconds,
        Daemon,
        Presence::When("with a state.dir, once something was saved"),
        |view| view.state.and_then(|state| state.saved_unix).map(|at| at.as_secs_f64()),
        "When something was last written well to the state directory",
        &[("seconds since then", "time() - steadyload_state_last_save_timestamp_seconds")]
    ),
    Metric {
        name: "dropped_total",
        kind: Kind::Counter,
        unit: Unit::Number,
        subject: Subject::Daemon,
        labels: &["queue"],
        presence: Presence::When("of each queue that can drop"),
        help: "What bounded queues have dropped",
        answers: &[("should stay 0", "sum by (queue) (increase(steadyload_dropped_total[1h]))")],
        source: Source::Program(|view, series| {
            view.dropped.iter().try_for_each(|(queue, n)| series.put(&[], &[queue], *n))
        }),
    },
    single!(
        "process_cpu_seconds_total",
        Counter,
        Seconds,
        Process,
        TOLD,
        |view| view.client.process.cpu_seconds,
        "CPU time of the process, user and system",
        &[("cores in use", "rate(process_cpu_seconds_total{job=\"steadyload\"}[5m])")]
    ),
    single!(
        "process_open_fds",
        Gauge,
        Number,
        Process,
        TOLD,
        |view| view.client.process.open_fds,
        "Open file descriptors",
        &[("share in use", "process_open_fds{job=\"steadyload\"} / process_max_fds{job=\"steadyload\"}")]
    ),
    single!(
        "process_max_fds",
        Gauge,
        Number,
        Process,
        TOLD,
        |view| view.client.process.max_fds,
        "How many file descriptors may be open",
        &[]
    ),
    single!(
        "process_resident_memory_bytes",
        Gauge,
        Bytes,
        Process,
        TOLD,
        |view| view.client.process.resident_bytes,
        "Resident memory",
        &[]
    ),
    single!(
        "process_virtual_memory_bytes",
        Gauge,
        Bytes,
        Process,
        TOLD,
        |view| view.client.process.virtual_bytes,
        "Virtual memory",
        &[]
    ),
    single!(
        "process_start_time_seconds",
        Gauge,
        Seconds,
        Process,
        TOLD,
        |view| view.client.process.start_time_unix,
        "When the process started",
        &[("seconds it has been running", "time() - process_start_time_seconds{job=\"steadyload\"}")]
    ),
    single!("process_threads", Gauge, Number, Process, TOLD, |view| view.client.process.threads, "Threads", &[]),
];
