//! `steadyload run`: the daemon.

use anyhow::Context;
use tokio::runtime::Builder;

use crate::app::daemon;
use crate::app::signals::Signals;
use crate::cli::Exit;
use crate::cli::configuration::{self, Sources};
use crate::cli::logging::{Logging, Started};
use crate::config::Environment;

const EXAMPLES: &str = "\
Examples:
  # keep the load of a file; metrics on http://127.0.0.1:9877/metrics
  steadyload run -c steadyload.toml
  # at another rate, with windows that survive a restart
  steadyload run -c steadyload.toml --set loads.canary.rate=1 --set state.dir=s
  # metrics on every interface, logs for a machine
  steadyload run -c . --set server.listen=0.0.0.0:9877 --log-format json
  # the second of four daemons that share every load
  steadyload run -c steadyload.toml --set shard.index=1 --set shard.count=4";

/// Run the daemon: keep every load of the configuration on its target, and serve /metrics.
///
/// Exit code 0: asked to stop by a signal. 2: the configuration is wrong. 4: it could not start, or a part of it failed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) sources: Sources,
}

pub(super) fn run(args: &Args, logging: Logging) -> anyhow::Result<Exit> {
    // Before anything else: what comes first would die of SIGHUP.
    let signals = Signals::arm().context("cannot handle signals")?;
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let (request, environment) = (args.sources.request(), Environment::from_process());
    let Some(loaded) = configuration::load(&request, &environment) else { return Ok(Exit::Misconfigured) };
    let Started { set_level, dropped, writing: _writing } = logging.start(loaded.config.log);
    for warning in &loaded.warnings {
        tracing::warn!("{}", warning.to_string().trim_end());
    }
    let settings = daemon::Settings {
        request,
        environment,
        loaded,
        listener: None,
        set_log_level: set_level,
        dropped_log_lines: Box::new(move || dropped.dropped_lines() as u64),
        watching: Box::new(|_| ()),
    };
    runtime.block_on(daemon::run(settings, signals))?;
    Ok(Exit::Fine)
}
