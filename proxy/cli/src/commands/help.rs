//! Help that teaches: examples for each command.

use std::{collections::BTreeMap, fmt::Write as _};

use clap::Command;

use super::exit;

#[cfg(test)]
mod page;

/// The command with examples below the help of each subcommand, and exit codes below its own.
pub(crate) fn taught(command: Command) -> Command {
    let examples: BTreeMap<&str, &str> = examples().collect();
    let command = command.mut_subcommands(|it| match examples.get(it.get_name()) {
        Some(text) => it.after_help(format!("Examples:\n{text}")),
        None => it,
    });
    let mut codes = "Exit codes:".to_owned();
    for (code, meaning) in exit::CODES {
        let _ = write!(codes, "\n  {code:<4} {meaning}");
    }
    command.after_help(codes)
}

/// Returns each command with its examples as its help shows them: a line to type, and below it what that line does.
fn examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    let blocks = include_str!("../../data/examples.txt").trim_end();
    let blocks = blocks.split("\n\n");
    blocks.filter_map(|block| block.split_once('\n'))
}

#[cfg(test)]
mod tests;
