//! `steadyload check`: is the configuration right, and, with `--online`, does what it names answer.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::Context;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use url::Host;

use crate::app::online;
use crate::app::signals::Stop;
use crate::cli::configuration::{self, Sources};
use crate::cli::{Exit, complain, say};
use crate::config::secrets::Secrets;
use crate::config::sections::{Config, Target};
use crate::config::{Environment, Loaded, Plan};
use crate::sim::Gateway;
use crate::sim::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  # every fault of a file, and what a day of it costs in tokens
  steadyload check -c steadyload.toml
  # every setting in force, and what set it
  steadyload check -c steadyload.toml --print
  # does the gateway answer, and what does one request show
  steadyload check -c steadyload.toml --online
  # the same without a gateway
  steadyload check -c examples --online --simulate";

/// Validate a configuration: every fault at once, each with its place and what would be right.
///
/// Exit code 0: valid, and with --online every target answered. 1: a target failed. 2: the configuration is wrong.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) sources: Sources,
    /// Show the settings in force and where each comes from; no secret is shown.
    #[arg(long)]
    print: bool,
    /// Send one streamed request to each target and say what it shows.
    #[arg(long)]
    online: bool,
    /// With --online: first start the simulated gateway at the address of each target on this machine.
    #[arg(long, requires = "online")]
    simulate: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let environment = Environment::from_process();
    let Some(loaded) = configuration::load(&args.sources.request(), &environment) else {
        return Ok(Exit::Misconfigured);
    };
    for warning in &loaded.warnings {
        complain(format!("warning: {warning}").trim_end());
    }
    if args.print {
        say(&loaded.effective.to_string())?;
    } else {
        say(&summary(&loaded))?;
    }
    if !args.online {
        return Ok(Exit::Fine);
    }
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(ask_all(&loaded.config, &environment, args.simulate))
}

fn summary(loaded: &Loaded) -> String {
    let Config { targets, workloads, loads, .. } = &loaded.config;
    let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let parts = [count(targets.len(), "target"), count(workloads.len(), "workload"), count(loads.len(), "load")];
    format!("the configuration is valid: {}\n{}\n", parts.join(", "), Plan::of(&loaded.config))
}

/// Checks every target, one after the other, until all are done or the user has seen enough.
async fn ask_all(config: &Config, environment: &Environment, simulate: bool) -> anyhow::Result<Exit> {
    let mut stop = Stop::arm().context("cannot handle signals")?;
    // Ends with this function, and every gateway with it.
    let mut gateways = JoinSet::new();
    if simulate {
        let mut taken = BTreeSet::new();
        for target in config.targets.values() {
            let address = address_here(target)?;
            if taken.insert(address) {
                let gateway = simulated(target, address, environment).await?;
                say(&format!("a simulated gateway answers on http://{address}\n"))?;
                gateways.spawn(gateway.run(std::future::pending::<()>()));
            }
        }
    }
    let mut exit = Exit::Fine;
    for target in config.targets.values() {
        let report = tokio::select! {
            biased;
            () = stop.asked() => {
                complain("steadyload: stopped by a signal");
                return Ok(Exit::CouldNotRun);
            }
            report = online::check(config, target, environment) => report,
        };
        let report = report.with_context(|| format!("target {} cannot be checked", target.name))?;
        say(&format!("\n{report}"))?;
        if !report.passed() {
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

/// Where a simulated gateway has to listen to be found by this target.
fn address_here(target: &Target) -> anyhow::Result<SocketAddr> {
    let url = &target.base_url;
    let ip = match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback().then_some(IpAddr::from(ip)),
        Some(Host::Ipv6(ip)) => ip.is_loopback().then_some(IpAddr::from(ip)),
        Some(Host::Domain("localhost")) => Some(IpAddr::from(Ipv4Addr::LOCALHOST)),
        Some(Host::Domain(_)) | None => None,
    };
    let address = ip.zip(url.port_or_known_default()).map(SocketAddr::from).filter(|_| url.scheme() == "http");
    address.with_context(|| {
        let name = &target.name;
        format!("--simulate needs an http:// address of this machine in targets.{name}.base_url, and {url} is none")
    })
}

/// A gateway that has the target's model under its path prefix and asks for its key.
async fn simulated(target: &Target, address: SocketAddr, environment: &Environment) -> anyhow::Result<Gateway> {
    let prefix = target.base_url.path().trim_end_matches('/');
    let settings = Settings {
        model: target.model.clone(),
        prefix: prefix.strip_suffix("/v1").unwrap_or(prefix).to_owned(),
        api_key: Secrets::read(target, environment)?.key,
        ..Settings::default()
    };
    Gateway::bind(settings, address).await.with_context(|| format!("the simulated gateway cannot listen on {address}"))
}
