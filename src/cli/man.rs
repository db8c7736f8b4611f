//! `steadyload man`: the manual pages, made from the help texts.
//!
//! A page is what `--help` says, but for its examples: they keep their lines, and get a heading of their own at the end.

use std::path::PathBuf;
use std::{fs, io};

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::{Cli, Exit, say};

/// What stands above the examples of a help text.
const HEADING: &str = "Examples:";

const EXAMPLES: &str = "\
Examples:
  # read it
  steadyload man | man -l -
  # a page for each command, where man finds them
  steadyload man --out ~/.local/share/man/man1";

/// Print the manual page, or write one for each command.
///
/// Exit code 0: done. 4: a page could not be written.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    /// Write steadyload.1 and a page for each command into this folder, which is made if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let Some(folder) = &args.out else {
        say(&String::from_utf8_lossy(&page(&program)?))?;
        return Ok(Exit::Fine);
    };
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {} (--out)", folder.display()))?;
    for command in [&program].into_iter().chain(program.get_subcommands()) {
        let path = folder.join(Man::new(command.clone()).get_filename());
        fs::write(&path, page(command)?).with_context(|| format!("cannot write {} (--out)", path.display()))?;
        say(&format!("{}\n", path.display()))?;
    }
    Ok(Exit::Fine)
}

/// One page, in roff.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let examples = command.get_after_long_help().map(ToString::to_string);
    let mut page = Vec::new();
    Man::new(command.clone().after_long_help(None)).render(&mut page)?;
    if let Some(examples) = examples {
        let lines = examples.trim_start_matches(HEADING).trim_start_matches('\n').lines();
        let mut roff = Roff::new();
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in lines {
            roff.text([roman(line)]);
        }
        page.extend(roff.control("fi", []).to_roff().bytes());
    }
    Ok(page)
}
