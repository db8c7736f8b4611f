//! `steadyload demo`: what a daemon does, to look at, without a gateway and without a configuration.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::runtime::Builder;

use crate::app::demo::{Demo, LOAD, Logs, Plan};
use crate::app::signals::Signals;
use crate::cli::logging::{Logging, Started};
use crate::cli::simulated::Simulated;
use crate::cli::{Exit, QUIET, complain, say};
use crate::config::sections::Pace;
use crate::config::{self, Environment, LoadRequest};
use crate::sim::value::Value;

mod text;

/// The pace without a flag: enough for a P99 that means something within a minute, little for any machine.
const DEFAULT_RATE: &str = "3";

/// The engine without a flag.
const PRESET: &str = "7b-rtx4090";

const EXAMPLES: &str = "\
Examples:
  # a rate that the engine takes easily, until Ctrl-C
  steadyload demo
  # ten seconds of a closed loop near the engine's knee
  steadyload demo --concurrency 30 --for 10s
  # one request in twenty is refused
  steadyload demo --rate 5 --fault status:code=503,share=0.05
  # a smaller batch: watch the queue grow
  steadyload demo --rate 5 --set max_running_requests=8";

/// The shortest time between two lines: the daemon's pictures come once a second.
const SHORTEST: Duration = Duration::from_secs(1);

/// See it work: a simulated gateway and a daemon in one process, with page and metrics; nothing leaves this machine.
///
/// Exit code 0: asked to stop, or the time was up. 2: a flag is wrong. 4: it could not run.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    /// Requests per second, whatever the gateway does [default: 3].
    #[arg(long, value_name = "NUMBER", conflicts_with = "concurrency", allow_negative_numbers = true)]
    rate: Option<String>,
    /// Requests under way at any time, in place of a rate.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    concurrency: Option<String>,
    /// How long it runs, such as 30s; without it, until Ctrl-C.
    #[arg(long = "for", value_name = "TIME")]
    length: Option<String>,
    /// How often it prints a line.
    #[arg(long, value_name = "TIME", default_value = "5s")]
    every: String,
    #[command(flatten)]
    simulated: Simulated,
}

pub(super) fn run(args: &Args, logging: Logging) -> anyhow::Result<Exit> {
    // Before anything else: what comes first would die of SIGHUP.
    let signals = Signals::arm().context("cannot handle signals")?;
    let plan = match plan(args) {
        Ok(plan) => plan,
        Err(error) => {
            complain(&format!("steadyload: {error:#}"));
            return Ok(Exit::Misconfigured);
        }
    };
    let Started { set_level, dropped, writing: _writing } = logging.start(QUIET);
    let logs = Logs { set_level, dropped: Box::new(move || dropped.dropped_lines() as u64) };
    let runtime = Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(conduct(plan, signals, logs))?;
    Ok(Exit::Fine)
}

async fn conduct(plan: Plan, signals: Signals, logs: Logs) -> anyhow::Result<()> {
    let (pace, every, length) = (plan.pace, plan.every, plan.length);
    let mut demo = Demo::start(plan, signals, logs).await?;
    let opening = text::opening(&pace, length, every, demo.places());
    // Whether or not somebody reads it, it ends in order.
    let shown = show(&mut demo, &opening).await;
    let figures = demo.finish().await?;
    shown?;
    say(&text::summary(&figures))?;
    Ok(())
}

/// Prints until the end begins, or nobody reads any more.
async fn show(demo: &mut Demo, opening: &str) -> std::io::Result<()> {
    say(opening)?;
    let mut lines = 0;
    while let Some(figures) = demo.next().await {
        if lines % text::LINES_PER_HEADING == 0 {
            say(&text::heading())?;
        }
        say(&text::line(&figures))?;
        lines += 1;
    }
    say(&text::ending(demo.places()))
}

/// The flags, checked.
pub(super) fn plan(args: &Args) -> anyhow::Result<Plan> {
    let length = args.length.as_deref().map(|text| time("--for", text)).transpose()?;
    if length == Some(Duration::ZERO) {
        bail!("--for: is 0, wants some time, such as 30s; without the flag it runs until Ctrl-C");
    }
    let every = time("--every", &args.every)?;
    if every < SHORTEST {
        bail!("--every: is {every:?}, wants a second or more: numbers come once a second");
    }
    let gateway = args.simulated.settings(Some(PRESET))?;
    let pace = match (&args.rate, &args.concurrency) {
        (rate, None) => pace("rate", rate.as_deref().unwrap_or(DEFAULT_RATE))?,
        (_, Some(concurrency)) => pace("concurrency", concurrency)?,
    };
    Ok(Plan { pace, length, every, gateway })
}

fn time(flag: &str, text: &str) -> anyhow::Result<Duration> {
    Duration::read(text).with_context(|| format!("{flag}: is {text:?}, wants {}", Duration::SHAPE))
}

/// The pace that a flag asks for, by the rules of the setting that it stands for.
fn pace(flag: &str, value: &str) -> anyhow::Result<Pace> {
    let setting = format!("loads.{LOAD}.{flag}");
    let load = |key: &str| format!("loads.{LOAD}.{key}");
    let overrides = [
        ("targets.t.base_url".to_owned(), "http://127.0.0.1".to_owned()),
        ("targets.t.model".to_owned(), "m".to_owned()),
        ("workloads.w.seed".to_owned(), "1".to_owned()),
        (load("target"), "t".to_owned()),
        (load("workload"), "w".to_owned()),
        (setting.clone(), value.to_owned()),
    ];
    let request = LoadRequest { files: Vec::new(), overrides: overrides.into() };
    match config::load(&request, &Environment::default()) {
        Ok(loaded) => loaded.config.loads.get(LOAD).map(|load| load.pace).context("the demo's load is not there"),
        Err(faults) => {
            let fault = faults.findings().first().context("refused without a reason")?;
            // The correction names the setting as a flag of another command.
            let help = fault.help.as_deref().unwrap_or_default();
            let help =
                help.replace(&format!("--set {setting}="), &format!("--{flag} ")).replace(", or remove the load", "");
            bail!("--{flag}: {}\n    {help}", fault.what)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_held_to_the_rules_of_its_setting_and_named_as_a_flag() {
        assert!(
            matches!(pace("rate", "2.5").unwrap(), Pace::Rate(rate) if rate.per_second.to_bits() == 2.5_f64.to_bits())
        );
        assert!(matches!(pace("concurrency", "4").unwrap(), Pace::Concurrency(workers) if workers.get() == 4));
        for (flag, value, says) in [
            (
                "rate",
                "0",
                "--rate: is 0, wants requests per second: above 0 and at most 100_000\n    write a rate above 0",
            ),
            ("rate", "nan", "--rate: is the text \"nan\", wants a number\n    write `--rate 3.5`"),
            ("rate", "-1", "--rate: is -1, "),
            ("rate", "1e6", "write `--rate 100000` or less"),
            ("concurrency", "0", "wants a whole number from 1 to 65_536\n    write `--concurrency 1` or more"),
            ("concurrency", "1.5", "write `--concurrency 2`"),
        ] {
            let error = pace(flag, value).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("--set") && !error.contains("loads."), "{error}");
        }
    }
}
