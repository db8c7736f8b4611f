//! The examples in the help texts and in the README: that they are there, and that each of them would still run.

use clap::CommandFactory;

use super::configuration::Sources;
use super::*;
use crate::config::{self, Environment};

/// Where an example names a configuration of the user's own, this one is read.
const THE_EXAMPLE: [(&str, &str); 2] =
    [("-c steadyload.toml", "-c examples/steadyload.toml"), ("-c . ", "-c examples ")];

/// The help text of the program and of each command, by the words that ask for it.
fn help_texts() -> Vec<(String, String)> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let mut texts = vec![(NAME.to_owned(), program.clone().render_long_help().to_string())];
    for command in program.get_subcommands_mut() {
        texts.push((command.get_name().to_owned(), command.render_long_help().to_string()));
    }
    texts
}

/// The lines after the heading, two by two: what it does, and the command line.
fn examples(help: &str) -> Vec<(&str, &str)> {
    let (_, after) = help.split_once("Examples:\n").unwrap_or_default();
    let lines: Vec<_> = after.lines().map(str::trim).collect();
    lines.chunks(2).map(|pair| (pair[0], *pair.get(1).unwrap_or(&""))).collect()
}

/// The words of a command line, up to a comment or to where the shell sends its output. No example has quotes, so no word has spaces.
fn words(line: &str) -> Vec<String> {
    assert!(!line.contains(['\'', '"', '\\', '$', '`']), "needs a real shell: {line}");
    let mut line = line.split(['#', '|', '>']).next().unwrap_or_default().to_owned();
    for (theirs, ours) in THE_EXAMPLE {
        line = line.replace(theirs, ours);
    }
    line.split_whitespace().map(str::to_owned).collect()
}

/// Does what the command does first, up to where it would touch the world.
fn try_out(line: &str) -> Result<(), String> {
    let cli = Cli::try_parse_from(words(line)).map_err(|error| error.to_string())?;
    let load = |sources: &Sources| {
        config::load(&sources.request(), &Environment::default()).map(drop).map_err(|faults| faults.to_string())
    };
    match &cli.command {
        Command::Run(args) => load(&args.sources),
        Command::Check(args) => load(&args.sources),
        Command::Prompts(args) => load(&args.sources),
        Command::Demo(args) => demo::plan(args).map(drop).map_err(|error| format!("{error:#}")),
        Command::Gateway(args) => args.simulated.settings(None).map(drop).map_err(|error| format!("{error:#}")),
        Command::Metrics(_) | Command::Completions(_) | Command::Man(_) => Ok(()),
    }
}

#[test]
fn every_help_text_ends_with_two_to_four_examples_of_its_command() {
    for (name, help) in help_texts() {
        let examples = examples(&help);
        assert!((2..=4).contains(&examples.len()), "{name}: {} examples in\n{help}", examples.len());
        for (what, line) in examples {
            assert!(what.starts_with("# ") && line.starts_with("steadyload "), "{name}: {what:?}, {line:?}");
            assert!(name == NAME || line.split_whitespace().nth(1) == Some(&name), "{name}: another command, {line}");
            // A terminal of 80 columns shows it on one line, from which it can be copied.
            assert!(what.len() <= 78 && line.len() <= 78, "{name}: wider than a terminal: {line}");
        }
    }
}

#[test]
fn every_example_would_run() {
    for (name, help) in help_texts() {
        for (_, line) in examples(&help) {
            try_out(line).unwrap_or_else(|error| panic!("{name}: {line}\n{error}"));
        }
    }
}

#[test]
fn every_command_of_the_readme_would_run() {
    let readme = include_str!("../../README.md");
    let shell = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines: Vec<_> = shell.flat_map(str::lines).filter(|line| line.starts_with("steadyload ")).collect();
    assert!(lines.len() >= 6, "{lines:?}");
    for line in lines {
        try_out(line).unwrap_or_else(|error| panic!("{line}\n{error}"));
    }
}

#[test]
fn what_the_options_of_the_gateway_name_is_taken_by_them() {
    let program = Cli::command();
    let gateway = program.find_subcommand("gateway").unwrap();
    for flag in ["set", "fault"] {
        let option = gateway.get_arguments().find(|option| option.get_long() == Some(flag)).unwrap();
        let help = option.get_help().unwrap().to_string();
        let values: Vec<_> = help.split([' ', ';']).filter(|word| word.contains('=')).collect();
        assert_eq!(values.len(), 2, "{help}");
        for value in values {
            let alone = try_out(&format!("steadyload gateway --{flag} {value}"));
            alone.or_else(|_| try_out(&format!("steadyload gateway --preset 7b-rtx4090 --{flag} {value}"))).unwrap();
        }
    }
}

#[test]
fn an_example_that_would_not_run_is_noticed() {
    for line in [
        "steadyload chekc -c steadyload.toml",
        "steadyload check -c steadyload.toml --onlin",
        "steadyload check -c nowhere.toml",
        "steadyload run -c steadyload.toml --set loads.canary.rat=1",
        "steadyload gateway --set tftt=1s",
        "steadyload gateway --fault stall:from=3",
        "steadyload completions tcsh",
    ] {
        assert!(try_out(line).is_err(), "{line}");
    }
}
