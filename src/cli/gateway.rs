//! `steadyload gateway`: the simulated gateway alone, for trying things out where nothing can be hurt.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use tokio::runtime::Builder;

use crate::app::signals::Stop;
use crate::cli::simulated::Simulated;
use crate::cli::{Exit, complain, say};
use crate::sim::Gateway;
use crate::sim::fault;
use crate::sim::settings::{self, Settings};

const EXAMPLES: &str = "\
Examples:
  # healthy: 200 ms to the first token, 20 ms a token
  steadyload gateway
  # as slow as an engine with batches, a queue and caches would be
  steadyload gateway --preset 7b-rtx4090 --set max_running_requests=8
  # one request in a hundred is refused, and one stands still after three tokens
  steadyload gateway --fault status:code=503,share=0.01 --fault stall:share=0.01
  # everything that it can pretend to be
  steadyload gateway --list";

/// Run a simulated gateway with a healthy vLLM behind it, or with whatever is wrong with it that you name.
///
/// It serves /v1/chat/completions, /v1/completions, /generate, /v1/models, /tokenize, /server_info, /health and /metrics. A
/// single request can ask for a fault by the header x-sim-fault; /admin/faults (GET, PUT, DELETE) changes them while it runs,
/// /admin/truth shows the server's own stamps.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    /// Where it listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:9878", value_name = "ADDRESS", value_parser = address)]
    listen: SocketAddr,
    #[command(flatten)]
    pub(super) simulated: Simulated,
    /// Write the server's own stamps of each request as a line of JSON.
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// List every setting and fault, and end.
    #[arg(long)]
    list: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.list {
        say(&format!("{}\nfaults (--fault NAME:KEY=VALUE,…):\n{}", settings::list(), fault::describe()))?;
        return Ok(Exit::Fine);
    }
    let settings = match args.simulated.settings(None) {
        Ok(settings) => settings,
        Err(error) => {
            complain(&format!("steadyload: {error:#}"));
            return Ok(Exit::Misconfigured);
        }
    };
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(serve(args, settings))
}

async fn serve(args: &Args, settings: Settings) -> anyhow::Result<Exit> {
    let mut stop = Stop::arm().context("cannot handle signals")?;
    let bound = Gateway::bind(settings, args.listen).await;
    let mut gateway = bound.with_context(|| format!("cannot listen on {} (--listen)", args.listen))?;
    if let Some(path) = &args.truth {
        gateway.write_truth(path).with_context(|| format!("cannot write {} (--truth)", path.display()))?;
    }
    say(&gateway.describe())?;
    gateway.run(stop.asked()).await.context("the truth file is incomplete")?;
    Ok(Exit::Fine)
}

/// An address to listen on.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "wants an IP address and a port, such as 127.0.0.1:9878 or [::1]:0".to_owned())
}
