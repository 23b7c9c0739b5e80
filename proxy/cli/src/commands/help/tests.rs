use clap::CommandFactory as _;

use super::{
    super::Cli,
    page::{is_shown, page, pairs},
    *,
};

#[test]
fn every_command_has_examples_and_every_example_is_of_a_command() {
    let command = Cli::command();
    let shown = command.get_subcommands().filter(|one| is_shown(one));
    let names: Vec<&str> = shown.map(Command::get_name).collect();
    let told: Vec<&str> = examples().map(|(name, _)| name).collect();
    let without: Vec<&&str> = names.iter().filter(|name| !told.contains(name)).collect();
    assert!(
        without.is_empty(),
        "no examples in data/examples.txt: {without:?}"
    );
    for name in &told {
        assert!(names.contains(name), "{name} is no command");
    }
    assert_eq!(told.len(), names.len(), "a command is there twice");
}

#[test]
fn every_example_is_a_command_line_that_is_understood() {
    for (line, _) in examples().flat_map(|(_, text)| pairs(text)) {
        let line = line.rsplit("&& ").next().unwrap_or(line);
        let typed = line.split(['|', '>']).next().unwrap_or(line);
        let mut words = Vec::new();
        for (at, part) in typed.split('"').enumerate() {
            if at % 2 == 1 {
                words.push(part);
            } else {
                words.extend(part.split_whitespace());
            }
        }
        words.retain(|word| !word.starts_with("METACLAW_") && !word.starts_with("WANDB_"));
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

/// The words of a command line that stand in code marks.
fn code_spans(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The middle cells of all tables in the page about other programs: what says the same here.
fn cells_about_us() -> Vec<&'static str> {
    let page = include_str!("../../../../../docs/using/coming-from-elsewhere.md");
    let (_, tables) = page.split_once("## Your command, and ours").unwrap();
    let rows = tables.lines().filter(|line| line.starts_with("| "));
    let cells = rows.map(|row| row.split('|').nth(2).unwrap().trim());
    cells.filter(|cell| *cell != "here").collect()
}

#[test]
fn every_command_of_ours_that_people_from_elsewhere_are_told_is_understood() {
    let mut n_lines = 0;
    for cell in cells_about_us() {
        for line in code_spans(cell) {
            if !line.starts_with("metaclaw ") {
                continue;
            }
            n_lines += 1;
            let parsed = Cli::command().try_get_matches_from(line.split_whitespace());
            assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
        }
    }
    assert!(n_lines > 40, "{n_lines}");
}

#[test]
fn every_key_of_ours_that_people_from_elsewhere_are_told_exists() {
    let reference = metaclaw_settings::example::reference();
    let mut n_keys = 0;
    for cell in cells_about_us() {
        for key in code_spans(cell) {
            let is_key = key.contains('.') && !key.contains([' ', '/']) || key == "mode";
            if !is_key {
                continue;
            }
            n_keys += 1;
            let general = key.replace("agents.main.", "agents.*.");
            assert!(reference.contains(&format!("| `{general}` |")), "{key}");
        }
    }
    assert!(n_keys > 40, "{n_keys}");
}

/// Every command of the Python MetaClaw has its row.
#[test]
fn no_command_of_the_original_is_without_an_answer() {
    let page = include_str!("../../../../../docs/using/coming-from-elsewhere.md");
    for command in [
        "metaclaw setup",
        "metaclaw start",
        "metaclaw stop",
        "metaclaw status",
        "metaclaw train-step",
        "metaclaw config show",
        "metaclaw auth paste-token",
        "metaclaw skills log",
        "metaclaw scheduler status",
        "metaclaw memory",
        "metaclaw uninstall",
    ] {
        let has_row = page.lines().any(|line| {
            let first = line
                .strip_prefix("| ")
                .and_then(|row| row.split(" | ").next());
            first.is_some_and(|cell| cell.contains(command))
        });
        assert!(has_row, "{command}");
    }
}
