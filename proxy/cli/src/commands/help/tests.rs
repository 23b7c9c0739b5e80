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
