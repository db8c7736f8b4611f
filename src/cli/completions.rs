//! `steadyload completions`: what the Tab key knows, made from the same definition that parses the command line.

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, Exit, NAME, say};

const EXAMPLES: &str = "\
Examples:
  # bash, for every user of this machine
  steadyload completions bash > /etc/bash_completion.d/steadyload
  # zsh: in a folder of $fpath
  steadyload completions zsh > ~/.zfunc/_steadyload
  # fish
  steadyload completions fish > ~/.config/fish/completions/steadyload.fish";

/// Print what completes commands and options in a shell.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    /// For which shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    say(std::str::from_utf8(&script).context("the completions are no text")?)?;
    Ok(Exit::Fine)
}
