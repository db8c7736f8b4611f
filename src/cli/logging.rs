//! Logs: to standard error, as text or JSON, at a level that can change while the program runs.
//!
//! A thread of its own writes them. Whoever reads standard error may stand still (a stuck container runtime, a full pipe), and
//! a load that waited for its log would be no steady load: what does not fit is dropped and counted.

use std::io::{self, IsTerminal};

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{Directive, LevelFilter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::config::sections::{Log, LogFormat, LogLevel};

/// How the command line wants it; what it leaves open is for the configuration.
#[derive(Debug, clap::Args)]
pub(super) struct Logging {
    /// What is logged to standard error: error, warn, info, debug, trace, or a filter such as `warn,steadyload=debug`.
    #[arg(long, global = true, value_name = "FILTER", value_parser = directives)]
    log_level: Option<EnvFilter>,
    /// How it is logged.
    #[arg(long, global = true, value_enum)]
    log_format: Option<Format>,
}

/// Lines that may wait for whoever reads them: a few seconds of a daemon that logs single requests.
const WAITING: usize = 10_000;

/// How messages are written.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Logs are written for as long as this lives.
pub(super) struct Started {
    /// Sets another level; does nothing when the command line has set one.
    pub(super) set_level: Box<dyn Fn(LogLevel) + Send>,
    /// Counts the lines that were dropped because nobody read them.
    pub(super) dropped: ErrorCounter,
    /// Writes what is left when it is dropped, for at most a second.
    pub(super) writing: WorkerGuard,
}

impl Logging {
    /// Starts to log.
    pub(super) fn start(self, log: Log) -> Started {
        let is_fixed = self.log_level.is_some();
        let (layer, handle) = reload::Layer::new(self.log_level.unwrap_or_else(|| filter(log.level)));
        let format = self.log_format.unwrap_or(match log.format {
            LogFormat::Text => Format::Text,
            LogFormat::Json => Format::Json,
        });
        let (writer, writing) =
            NonBlockingBuilder::default().buffered_lines_limit(WAITING).thread_name("log").finish(io::stderr());
        let dropped = writer.error_counter();
        let registry = Registry::default().with(layer);
        match format {
            Format::Text => registry
                .with(fmt::layer().with_target(false).with_ansi(io::stderr().is_terminal()).with_writer(writer))
                .init(),
            Format::Json => registry.with(fmt::layer().json().with_writer(writer)).init(),
        }
        let set_level = Box::new(move |level| {
            if !is_fixed && let Err(error) = handle.reload(filter(level)) {
                tracing::warn!(%error, "the log level cannot be changed");
            }
        });
        Started { set_level, dropped, writing }
    }
}

/// A filter, every part of which means something: to the library a mistyped level is the name of a module.
fn directives(text: &str) -> Result<EnvFilter, String> {
    let parts: Vec<_> = text.split(',').map(str::trim).collect();
    for part in &parts {
        let names_a_place = part.contains(['=', '[', ':']);
        if !names_a_place && part.parse::<LevelFilter>().is_err() {
            return Err(format!("{part:?} is no level, wants error, warn, info, debug, trace or off"));
        }
        part.parse::<Directive>().map_err(|error| format!("{part:?}: {error}"))?;
    }
    EnvFilter::try_new(parts.join(",")).map_err(|error| error.to_string())
}

/// Other crates' messages are for those who look for their faults.
fn filter(level: LogLevel) -> EnvFilter {
    let level = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    EnvFilter::new(format!("warn,steadyload={level}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_would_log_nothing_by_mistake_is_refused() {
        for text in ["info", "WARN", "off", "warn,steadyload=debug", "steadyload::load=trace", "info, steadyload=off"] {
            assert!(directives(text).is_ok(), "{text}");
        }
        for text in ["inof", "loud", "", "info,debgu", "steadyload=loud", "foo=bar=baz"] {
            assert!(directives(text).is_err(), "{text}");
        }
    }
}
