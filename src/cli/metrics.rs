//! `steadyload metrics`: every metric there is, from the catalogue that `/metrics` is made of.

use crate::cli::{Exit, say};
use crate::export::metrics::document;

/// List every metric: name, type, unit, labels, meaning.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// As docs/metrics.md, with the PromQL that reads them.
    #[arg(long)]
    markdown: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    say(&if args.markdown { document::markdown() } else { document::table() })?;
    Ok(Exit::Fine)
}
