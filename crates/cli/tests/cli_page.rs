//! The reference page of the command, from the code that reads the command line: that the committed page is this one (`make cli` writes
//! it).

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory};
use everstep_cli::args::{Cli, EXIT_CODES};

const HEAD: &str = "\
# The command

<!-- Written by `make cli`. Change what the code says of it instead. -->

`everstep` runs coordinators, and asks them over HTTP. `everstep COMMAND --help` shows the same as this page;
`everstep completions SHELL` prints a script that completes commands and options. Colours and spinners come on a terminal only.
With `--output json` or `yaml` the answer of the server is printed as it is.
";

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");

/// The page, in Markdown.
fn page() -> String {
    let mut cli = Cli::command();
    cli.build();
    let mut page = HEAD.to_owned();
    write!(page, "\n## Exit codes\n\n| code | |\n| --- | --- |\n").unwrap();
    for line in EXIT_CODES.lines().skip(1) {
        let (code, meaning) = line.trim().split_once("  ").unwrap();
        writeln!(page, "| {code} | {meaning} |").unwrap();
    }
    let shared: Vec<_> = cli.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    page.push_str("\n## Options of every command\n\n");
    table(&mut page, shared.iter());
    for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
        section(&mut page, command, "everstep", 2);
    }
    page
}

fn section(page: &mut String, command: &Command, parent: &str, level: usize) {
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    write!(page, "\n{} `{name}`\n\n{about}.\n", "#".repeat(level)).unwrap();
    let usage = command.clone().render_usage().to_string();
    if !command.has_subcommands() {
        write!(page, "\n```\n{}\n```\n", usage.trim_start_matches("Usage: ")).unwrap();
    }
    let own: Vec<_> = command
        .get_arguments()
        .filter(|arg| !arg.is_global_set() && !matches!(arg.get_id().as_str(), "help" | "version"))
        .collect();
    if !own.is_empty() {
        page.push('\n');
        table(page, own.into_iter());
    }
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        section(page, sub, &name, level + 1);
    }
}

fn table<'a>(page: &mut String, args: impl Iterator<Item = &'a Arg>) {
    page.push_str("| argument | meaning |\n| --- | --- |\n");
    for arg in args {
        let shown = arg.to_string().replace('|', "\\|");
        let mut meaning = arg.get_help().map(ToString::to_string).unwrap_or_default().replace('|', "\\|");
        let values: Vec<_> =
            arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
        if !values.is_empty() && arg.get_action().takes_values() {
            write!(meaning, ": {}", values.join(", ")).unwrap();
        }
        let defaults: Vec<_> =
            arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
        if !defaults.is_empty() && arg.get_action().takes_values() {
            write!(meaning, ". Default: {}", defaults.join(", ")).unwrap();
        }
        if let Some(variable) = arg.get_env() {
            write!(meaning, ". Environment: `{}`", variable.to_string_lossy()).unwrap();
        }
        writeln!(page, "| `{shown}` | {meaning} |").unwrap();
    }
}

#[test]
fn the_page_of_the_command_is_up_to_date() {
    if std::env::var_os("EVERSTEP_TEST_WRITE_PAGES").is_some() {
        std::fs::write(PAGE, page()).unwrap();
    }
    let committed = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(committed == page(), "docs/reference/cli.md differs from the code; write it anew: make cli");
}

#[test]
fn everything_on_the_command_line_is_explained() {
    fn check(command: &Command, path: &str) {
        assert!(command.get_about().is_some(), "{path} has no text");
        for arg in command.get_arguments() {
            assert!(arg.get_help().is_some(), "{path} {arg} has no text");
        }
        for sub in command.get_subcommands() {
            check(sub, &format!("{path} {}", sub.get_name()));
        }
    }
    let mut cli = Cli::command();
    cli.build();
    cli.clone().debug_assert();
    check(&cli, "everstep");
}
