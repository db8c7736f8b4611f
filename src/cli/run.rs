//! `steadyload run`: the daemon.

use std::path::PathBuf;

use anyhow::Context;
use tokio::runtime::Builder;

use crate::app::daemon;
use crate::app::signals::Signals;
use crate::cli::logging::{Logging, Started};
use crate::cli::{Exit, complain, configuration};
use crate::config::{self, Environment, LoadRequest};

/// Run the daemon: keep every load of the configuration on its target, and serve /metrics.
///
/// Exit code 0: asked to stop by a signal. 2: the configuration is wrong. 4: it could not start, or a part of it failed.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Configuration file (TOML, JSON or YAML), or a folder with a steadyload.toml; later ones win over earlier ones.
    #[arg(short, long, required = true, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// A setting over everything else, such as loads.canary.rate=2.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = configuration::key_value)]
    overrides: Vec<(String, String)>,
}

pub(super) fn run(args: &Args, logging: Logging) -> anyhow::Result<Exit> {
    // Before anything else: what comes first would die of SIGHUP.
    let signals = Signals::arm().context("cannot handle signals")?;
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let files = args.config.iter().map(|path| configuration::file(path)).collect();
    let request = LoadRequest { files, overrides: args.overrides.clone() };
    let environment = Environment::from_process();
    let loaded = match config::load(&request, &environment) {
        Ok(loaded) => loaded,
        Err(faults) => {
            complain(faults.to_string().trim_end());
            return Ok(Exit::Misconfigured);
        }
    };
    let Started { set_level, dropped, writing: _writing } = logging.start(loaded.config.log);
    for warning in &loaded.warnings {
        tracing::warn!("{}", warning.to_string().trim_end());
    }
    let settings = daemon::Settings {
        request,
        environment,
        loaded,
        set_log_level: set_level,
        dropped_log_lines: Box::new(move || dropped.dropped_lines() as u64),
    };
    runtime.block_on(daemon::run(settings, signals))?;
    Ok(Exit::Fine)
}
