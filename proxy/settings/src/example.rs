//! `config.example.yaml` and the table of `docs/operating/config.md`, made from the table of keys, so that
//! neither can say what the program does not do.

use super::{
    key::{Key, State},
    table::TABLE,
};

const HEAD: &str = "\
# The configuration of MetaClaw: copy it to ~/.metaclaw/config.yaml and keep what you change.
# Every key stands here with its default; a key without one is commented out.
# METACLAW__RL__BATCH_SIZE=8 in the environment stands for rl.batch_size and comes before the file.
";

/// The example file: every key that works, with its default.
pub fn example() -> String {
    let mut lines = vec![HEAD.to_owned()];
    for section in TABLE {
        let works = |key: &&Key| key.state == State::Done;
        let keys: Vec<&Key> = section.keys.iter().filter(works).collect();
        if !keys.is_empty() {
            lines.push(format!("# --- {} ---", section.title));
            lines.extend(key_lines(&keys));
            lines.push(String::new());
        }
    }
    lines.join("\n")
}

/// Keys below their headings; keys of one heading stand together.
fn key_lines(keys: &[&Key]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = "";
    for key in keys {
        let (heading, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        let chosen = heading.strip_suffix(".*");
        if heading != open {
            lines.extend(heading_lines(keys, heading, open));
            open = heading;
        }
        let indent = match chosen {
            Some(above) => format!("{}#     ", "  ".repeat(above.matches('.').count())),
            None if heading.is_empty() => String::new(),
            None => "  ".to_owned(),
        };
        let choice = key.choice().map(|it| format!(" ({it})"));
        let choice = choice.unwrap_or_default();
        lines.push(format!("{indent}# {}{choice}", key.meaning));
        let hidden = mark(key.default.is_empty() && chosen.is_none());
        let line = format!("{indent}{hidden}{name}: {}", key.default);
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// What opens a heading: nothing where it is open already; below a name that people choose, a form
/// that is commented out.
fn heading_lines(keys: &[&Key], heading: &str, open: &str) -> Vec<String> {
    if let Some(above) = heading.strip_suffix(".*") {
        let indent = "  ".repeat(above.matches('.').count());
        let last = above.rsplit('.').next().unwrap_or(above);
        return vec![format!("{indent}# {last}:"), format!("{indent}#   NAME:")];
    }
    if open.starts_with(&format!("{heading}.")) {
        return Vec::new();
    }
    let below = |key: &&&Key| {
        let parts = key.path.rsplit_once('.');
        parts.is_some_and(|(it, _)| it == heading)
    };
    let silent = keys.iter().filter(below).all(|key| key.default.is_empty());
    vec![format!("{}{heading}:", mark(silent))]
}

/// What stands before a line that says nothing.
fn mark(silent: bool) -> &'static str {
    if silent { "# " } else { "" }
}

/// The table of `docs/operating/config.md`.
pub fn reference() -> String {
    let mut lines = Vec::new();
    for section in TABLE {
        lines.push(format!("\n## {}\n", section.title));
        lines.push("| key | allowed | default | meaning |".to_owned());
        lines.push("|---|---|---|---|".to_owned());
        lines.extend(section.keys.iter().map(row));
    }
    lines.join("\n") + "\n"
}

fn row(key: &Key) -> String {
    let meaning = match key.state {
        State::Done => key.meaning.to_owned(),
        State::Inert(reason) => format!("*accepted, without effect:* {reason}"),
        State::Refused(reason) => format!("*refused:* {reason}"),
        State::Alias(target) => format!("older name of `{target}`"),
    };
    let allowed = key.allowed().replace('|', "\\|");
    let default = match key.default {
        "" => "none".to_owned(),
        default => format!("`{default}`"),
    };
    let states = states(key);
    format!(
        "| `{}` | {allowed} | {default} | {meaning}{states} |",
        key.path
    )
}

/// What single values come to.
fn states(key: &Key) -> String {
    let told = key.values.iter().map(|(value, state)| match state {
        State::Alias(word) => format!("; `{value}` is `{word}`"),
        State::Inert(reason) => format!("; `{value}`: without effect, {reason}"),
        State::Refused(reason) => format!("; `{value}`: refused, {reason}"),
        State::Done => String::new(),
    });
    told.collect()
}
