//! `steadyload prompts`: what a load would send, without sending it.

use std::ops::Range;

use crate::app::prompts::Prompts;
use crate::cli::configuration::{self, Sources};
use crate::cli::{Exit, complain, say};
use crate::config::Environment;

const EXAMPLES: &str = "\
Examples:
  # the first prompt of a load, and how long it is
  steadyload prompts -c steadyload.toml --load canary
  # the first five as they are sent, a JSON object a line
  steadyload prompts -c steadyload.toml --load canary --index 0..5 --json
  # what another seed would send
  steadyload prompts -c . --load canary --set workloads.chat.seed=7";

/// Show the prompts of a load, with their lengths. Nothing is sent.
///
/// The same configuration shows the same prompts on any machine. Exit code 2: the configuration is wrong.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) sources: Sources,
    /// Whose prompts.
    #[arg(long, value_name = "NAME")]
    load: String,
    /// Which of them: one, or from the first to before the second.
    #[arg(long, value_name = "N | FROM..TO", default_value = "0", value_parser = indices)]
    index: Range<u64>,
    /// A JSON object a line, with the body that is sent.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let environment = Environment::from_process();
    let Some(loaded) = configuration::load(&args.sources.request(), &environment) else {
        return Ok(Exit::Misconfigured);
    };
    let prompts = match Prompts::open(&loaded.config, &args.load) {
        Ok(prompts) => prompts,
        Err(error) => {
            complain(&format!("steadyload: {error:#}"));
            return Ok(Exit::Misconfigured);
        }
    };
    if !args.json {
        say(&prompts.heading())?;
    }
    for index in args.index.clone() {
        say(&if args.json { prompts.json(index) } else { prompts.text(index) }?)?;
    }
    Ok(Exit::Fine)
}

/// `5`, or `0..5`.
fn indices(text: &str) -> Result<Range<u64>, String> {
    let wants = "wants an index, or a range such as 0..5";
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wants.to_owned());
    let range = match text.split_once("..") {
        Some((from, to)) => number(from)?..number(to)?,
        None => {
            let index = number(text)?;
            index..index.checked_add(1).ok_or(wants)?
        }
    };
    if range.is_empty() {
        Err("holds no index: the second number has to be above the first".to_owned())
    } else {
        Ok(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_one_or_a_range() {
        assert_eq!((indices("7"), indices("0..5"), indices("3 .. 4")), (Ok(7..8), Ok(0..5), Ok(3..4)));
        for wrong in ["", "x", "-1", "5..5", "5..2", "..3", "0..", "0..=4", "18446744073709551615"] {
            assert!(indices(wrong).is_err(), "{wrong}");
        }
    }
}
