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
mod tests {
    use clap::CommandFactory as _;

    use super::{
        super::Cli,
        page::{is_shown, page},
        *,
    };

    #[test]
    fn every_command_has_examples_and_every_example_is_of_a_command() {
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|it| is_shown(it));
        let names: Vec<&str> = shown.map(Command::get_name).collect();
        let told: Vec<&str> = EXAMPLES.iter().map(|(name, _)| *name).collect();
        let without: Vec<&&str> = names.iter().filter(|it| !told.contains(it)).collect();
        assert!(
            without.is_empty(),
            "no examples in commands/help/examples.rs: {without:?}"
        );
        for name in told {
            assert!(names.contains(&name), "{name} is no command");
        }
    }

    #[test]
    fn every_example_is_a_command_line_that_is_understood() {
        for (line, _) in EXAMPLES.iter().flat_map(|(_, lines)| *lines) {
            let typed = line.split(['|', '>']).next().unwrap_or(line);
            let mut words = Vec::new();
            for (at, part) in typed.split('"').enumerate() {
                if at % 2 == 1 {
                    words.push(part);
                } else {
                    words.extend(part.split_whitespace());
                }
            }
            words.retain(|it| !it.starts_with("METACLAW_") && !it.starts_with("WANDB_"));
            let parsed = Cli::command().try_get_matches_from(&words);
            assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
        }
    }

    /// `METACLAW_WRITE_EXAMPLE=1 cargo nextest run -p metaclaw example` writes it anew.
    #[test]
    fn the_page_of_commands_says_what_the_example_help_says() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        crate::testing::check_made(&root.join("docs/using/commands.md"), &page(Cli::command()));
    }
}
