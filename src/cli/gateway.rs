//! `steadyload gateway`: the simulated gateway alone, for trying things out where nothing can be hurt.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use tokio::runtime::Builder;

use crate::app::signals::Stop;
use crate::cli::{Exit, complain, say};
use crate::sim::Gateway;
use crate::sim::fault;
use crate::sim::fault::rule::FaultRule;
use crate::sim::settings::Settings;

/// Run a simulated gateway with a healthy vLLM behind it, or with whatever is wrong with it that you name.
///
/// It serves /v1/chat/completions, /v1/completions, /generate, /v1/models, /tokenize, /server_info, /health and /metrics. A
/// single request can ask for a fault by the header x-sim-fault; /admin/faults (GET, PUT, DELETE) changes them while it runs,
/// /admin/truth shows the server's own stamps.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where it listens; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:9878", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// What it pretends to be, such as ttft=100ms or gap=lognormal:20ms,0.3; --list shows all.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// What is wrong with it, such as stall:after=3 or status:code=503,share=0.01; --list shows all.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<String>,
    /// Write the server's own stamps of each request as a line of JSON.
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,
    /// List every setting and fault, and end.
    #[arg(long)]
    list: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.list {
        let (settings, faults) = (Settings::default().describe(), fault::describe());
        say(&format!("settings (--set KEY=VALUE):\n{settings}\nfaults (--fault NAME:KEY=VALUE,…):\n{faults}"))?;
        return Ok(Exit::Fine);
    }
    let settings = match settings_of(args) {
        Ok(settings) => settings,
        Err(error) => {
            complain(&format!("steadyload: {error:#}"));
            return Ok(Exit::Misconfigured);
        }
    };
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(serve(args, settings))
}

fn settings_of(args: &Args) -> anyhow::Result<Settings> {
    let mut settings = Settings::default();
    for text in &args.settings {
        let (key, value) =
            text.split_once('=').ok_or_else(|| anyhow!("--set {text}: wants KEY=VALUE, such as ttft=100ms"))?;
        settings.set(key.trim(), value.trim()).with_context(|| format!("--set {text}"))?;
    }
    for text in &args.faults {
        settings.faults.push(FaultRule::parse(text).with_context(|| format!("--fault {text}"))?);
    }
    Ok(settings)
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
