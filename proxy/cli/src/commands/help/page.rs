//! Generates docs/using/commands.md from the command definitions.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, builder::PossibleValue};

use super::{super::exit, examples};

/// Returns docs/using/commands.md: every command with its flags.
pub(super) fn page(mut command: Command) -> String {
    command.build();
    let mut page = "# Commands\n\nMade from the program's own help by `METACLAW_WRITE_EXAMPLE=1 cargo nextest run -p metaclaw example`. A command asks\nthe running proxy of the home folder; if none runs, it reads the files there.\n\n| exit code | meaning |\n|---|---|\n".to_owned();
    for (code, meaning) in exit::CODES {
        let _ = writeln!(page, "| {code} | {meaning} |");
    }
    page.push_str("\nEvery command has these flags:\n");
    page.push_str(&arguments(&command, |_| true));
    let of_every_command: Vec<&str> = command
        .get_arguments()
        .map(|arg| arg.get_id().as_str())
        .collect();
    for it in command.get_subcommands().filter(|one| is_shown(one)) {
        let _ = write!(page, "\n## metaclaw {}\n\n", it.get_name());
        page.push_str(&about(it));
        for (_, text) in examples().filter(|(of, _)| *of == it.get_name()) {
            page.push('\n');
            page.extend(
                pairs(text)
                    .iter()
                    .map(|(line, does)| format!("    {line}    # {does}\n")),
            );
        }
        page.push_str(&arguments(it, |arg| {
            !of_every_command.contains(&arg.get_id().as_str())
        }));
        for below in it.get_subcommands().filter(|one| is_shown(one)) {
            let _ = write!(
                page,
                "\n### metaclaw {} {}\n\n",
                it.get_name(),
                below.get_name()
            );
            page.push_str(&about(below));
            page.push_str(&arguments(below, |arg| !arg.is_global_set()));
        }
    }
    page
}

/// Returns the lines to type of a command's examples, each with what it does. They are indented by 2 and by 6 spaces.
pub(super) fn pairs(text: &str) -> Vec<(&str, &str)> {
    fn below<'a>(line: &'a str, indent: &str) -> &'a str {
        let words = line.strip_prefix(indent);
        let words = words.filter(|word| !word.is_empty() && word.trim() == *word);
        words.unwrap_or_else(|| panic!("not indented by {} spaces: {line}", indent.len()))
    }
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines.len().is_multiple_of(2),
        "an example without what it does: {text}"
    );
    let pairs = lines.chunks_exact(2);
    pairs
        .map(|pair| (below(pair[0], "  "), below(pair[1], "      ")))
        .collect()
}

pub(super) fn is_shown(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn about(command: &Command) -> String {
    let text = command.get_about().map(ToString::to_string);
    let about = text.unwrap_or_default();
    format!("{}.\n", about.trim_end_matches('.'))
}

fn arguments(command: &Command, is_own: impl Fn(&Arg) -> bool) -> String {
    let is_told = |arg: &&Arg| {
        let is_clap_s = ["help", "version"].contains(&arg.get_id().as_str());
        !arg.is_hide_set() && !is_clap_s && is_own(arg)
    };
    let rows: Vec<String> = command.get_arguments().filter(is_told).map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n| argument | meaning |\n|---|---|\n{}\n", rows.join("\n"))
}

fn row(arg: &Arg) -> String {
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<String> = names.iter().map(|name| format!("<{name}>")).collect();
    let value = names.join(" ");
    let name = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (None, Some(long)) => format!("--{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, None) => value.clone(),
    };
    let value = if takes_value && !arg.is_positional() {
        format!(" {value}")
    } else {
        String::new()
    };
    let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let allowed = arg.get_possible_values();
    if takes_value && !allowed.is_empty() {
        let allowed: Vec<&str> = allowed.iter().map(PossibleValue::get_name).collect();
        let _ = write!(help, " ({})", allowed.join(", "));
    }
    let default = arg.get_default_values();
    if let (true, Some(default)) = (takes_value, default.first()) {
        let _ = write!(help, " [default: {}]", default.to_string_lossy());
    }
    format!("| `{name}{value}` | {} |", help.trim().replace('|', "\\|"))
}
