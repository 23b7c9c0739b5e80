//! Help that teaches: examples for each command.

use std::{collections::BTreeMap, fmt::Write as _};

use clap::{
    Command, Error,
    error::{ContextKind, ContextValue},
};

use super::exit;

#[cfg(test)]
mod page;

pub(crate) fn taught(command: Command) -> Command {
    let examples: BTreeMap<&str, &str> = examples().collect();
    let command = command.mut_subcommands(|command| match examples.get(command.get_name()) {
        Some(text) => command.after_help(format!("Examples:\n{text}")),
        None => command,
    });
    let mut codes = "Exit codes:".to_owned();
    for (code, meaning) in exit::CODES {
        let _ = write!(codes, "\n  {code:<4} {meaning}");
    }
    command.after_help(codes)
}

pub(crate) fn with_successor(mut error: Error) -> Error {
    let learn = ContextValue::String("learn".to_owned());
    if error.get(ContextKind::InvalidSubcommand) == Some(&learn) {
        let tip = "`metaclaw ui` shows in a browser what is learned, `metaclaw status` and `metaclaw report` in the terminal";
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![tip.into()]),
        );
    }
    error
}

fn examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    let blocks = include_str!("../../data/examples.txt").trim_end();
    let blocks = blocks.split("\n\n");
    blocks.filter_map(|block| block.split_once('\n'))
}

#[cfg(test)]
mod tests;
