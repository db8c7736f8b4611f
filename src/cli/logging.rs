//! Logs: to standard error, as text or JSON, at a level that can change while the program runs.

use std::io::{self, IsTerminal};

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::config::sections::{Log, LogFormat, LogLevel};

/// How the command line wants it; what it leaves open is for the configuration.
#[derive(Debug, clap::Args)]
pub(super) struct Logging {
    /// What is logged to standard error: error, warn, info, debug, trace, or a filter such as `warn,steadyload=debug`.
    #[arg(long, global = true, value_name = "FILTER")]
    log_level: Option<EnvFilter>,
    /// How it is logged.
    #[arg(long, global = true, value_enum)]
    log_format: Option<Format>,
}

/// How messages are written.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

impl Logging {
    /// Starts to log. Returns what sets another level; it does nothing when the command line has set one.
    pub(super) fn start(self, log: Log) -> Box<dyn Fn(LogLevel)> {
        let is_fixed = self.log_level.is_some();
        let (layer, handle) = reload::Layer::new(self.log_level.unwrap_or_else(|| filter(log.level)));
        let format = self.log_format.unwrap_or(match log.format {
            LogFormat::Text => Format::Text,
            LogFormat::Json => Format::Json,
        });
        let registry = Registry::default().with(layer);
        match format {
            Format::Text => registry
                .with(fmt::layer().with_target(false).with_ansi(io::stderr().is_terminal()).with_writer(io::stderr))
                .init(),
            Format::Json => registry.with(fmt::layer().json().with_writer(io::stderr)).init(),
        }
        Box::new(move |level| {
            if !is_fixed && let Err(error) = handle.reload(filter(level)) {
                tracing::warn!(%error, "the log level cannot be changed");
            }
        })
    }
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
