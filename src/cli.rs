//! The commands and their exit codes.
//!
//! Only this room prints. Exit codes: 0 fine · 1 a target failed · 2 usage or configuration error · 4 could not run · 130
//! second signal.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod check;
mod completions;
mod configuration;
mod demo;
mod gateway;
mod logging;
mod man;
mod metrics;
mod prompts;
mod run;
mod simulated;

use self::logging::Logging;
use crate::config::sections::{Log, LogFormat, LogLevel};

/// The name of the program, and of its pages and completions.
const NAME: &str = "steadyload";

const EXAMPLES: &str = "\
Examples:
  # the whole thing against a simulated engine
  steadyload demo
  # a simulated gateway to try things on, in one terminal
  steadyload gateway
  # one measured request to it, in another
  steadyload check --online -c examples/steadyload.toml
  # a load on it, with metrics on http://127.0.0.1:9877/metrics
  steadyload run -c examples/steadyload.toml";

/// A steady, reproducible load on an LLM inference gateway, measured as a user would feel it.
#[derive(Debug, Parser)]
#[command(name = NAME, version, about, max_term_width = 110, after_long_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    logging: Logging,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Run(run::Args),
    Check(check::Args),
    Gateway(gateway::Args),
    Metrics(metrics::Args),
    Prompts(prompts::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// What commands log that answer on standard output.
const QUIET: Log = Log { level: LogLevel::Warn, format: LogFormat::Text };

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
    Fine,
    Failed,
    Misconfigured,
    CouldNotRun,
}

/// Runs the command line and says how it ended.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A reader that has gone away leaves nobody to tell.
            let shown = error.print();
            let wanted = !error.use_stderr() && shown.is_ok();
            return if wanted { Exit::Fine } else { Exit::Misconfigured }.into();
        }
    };
    // A list that nobody reads to its end is read; a check whose result nobody saw has not been made.
    let unread = if matches!(cli.command, Command::Check(_)) { Exit::CouldNotRun } else { Exit::Fine };
    let ended = match cli.command {
        Command::Demo(args) => demo::run(&args, cli.logging),
        Command::Run(args) => run::run(&args, cli.logging),
        Command::Check(args) => {
            let _logging = cli.logging.start(QUIET);
            check::run(&args)
        }
        Command::Gateway(args) => {
            let _logging = cli.logging.start(QUIET);
            gateway::run(&args)
        }
        Command::Metrics(args) => metrics::run(&args),
        Command::Prompts(args) => {
            let _logging = cli.logging.start(QUIET);
            prompts::run(&args)
        }
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(error) if is_broken_pipe(&error) => unread.into(),
        Err(error) => {
            complain(&format!("steadyload: {error:#}"));
            Exit::CouldNotRun.into()
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Fine => 0,
            Exit::Failed => 1,
            Exit::Misconfigured => 2,
            Exit::CouldNotRun => 4,
        })
    }
}

/// Prints, unless nobody reads any more.
fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints to standard error. There is nowhere left to report a failure of that.
fn complain(text: &str) {
    let mut err = io::stderr().lock();
    writeln!(err, "{text}").ok();
}

/// `steadyload … | head`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests;
