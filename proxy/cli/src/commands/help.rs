//! Help that teaches: examples for each command.

use std::fmt::Write as _;

use clap::Command;

use self::examples::EXAMPLES;
use super::exit;

mod examples;
#[cfg(test)]
mod page;

/// The command with examples below the help of each subcommand, and exit codes below its own.
pub(crate) fn taught(mut command: Command) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|it| it.get_name().to_owned())
        .collect();
    for name in names {
        if let Some(text) = examples(&name) {
            command = command.mut_subcommand(name, |it| it.after_help(text));
        }
    }
    let mut codes = "Exit codes:".to_owned();
    for (code, meaning) in exit::CODES {
        let _ = write!(codes, "\n  {code:<4} {meaning}");
    }
    command.after_help(codes)
}

fn examples(name: &str) -> Option<String> {
    let (_, examples) = EXAMPLES.iter().find(|(of, _)| *of == name)?;
    let mut text = "Examples:".to_owned();
    for (line, does) in *examples {
        let _ = write!(text, "\n  {line}\n      {does}");
    }
    Some(text)
}

#[cfg(test)]
mod tests;
