//! `steadyload metrics`: every metric there is, from the catalogue that `/metrics` is made of.

use crate::cli::{Exit, say};
use crate::export::metrics::document;

const EXAMPLES: &str = "\
Examples:
  # a line a metric
  steadyload metrics
  # what there is to say about the time to first token
  steadyload metrics | grep first_token
  # the documentation, with the queries that answer the usual questions
  steadyload metrics --markdown > metrics.md";

/// List every metric: name, type, unit, labels, meaning.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    /// As docs/metrics.md, with the PromQL that reads them.
    #[arg(long)]
    markdown: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    say(&if args.markdown { document::markdown() } else { document::table() })?;
    Ok(Exit::Fine)
}
