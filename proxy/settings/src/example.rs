//! `config.example.yaml` and the tables of `docs/operating/config.md`, made from the table of keys, so that neither can say
//! what the program does not do.

use std::fmt::Write as _;

use super::{
    key::{Key, KeyState},
    table::{self, SECTIONS},
    unsupported_keys::{self, InertKeys, UNSUPPORTED},
};

const HEAD: &str = "\
# The configuration of MetaClaw: copy it to ~/.metaclaw/config.yaml and keep what you change.
# Every key stands here with its default; a key without one is commented out.
# METACLAW__RL__BATCH_SIZE=8 in the environment stands for rl.batch_size and comes before the file.
";
const WIDTH: usize = 100;

/// The example file: every key that works, with its default.
pub fn example() -> String {
    let mut lines = vec![HEAD.to_owned()];
    for section in SECTIONS.iter() {
        lines.push(format!("# --- {} ---", section.title));
        lines.extend(key_lines(&section.keys()));
        lines.push(String::new());
    }
    lines.join("\n")
}

fn key_lines(keys: &[&Key]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = "";
    for key in keys {
        let (heading, name) = key.path.rsplit_once('.').unwrap_or(("", &key.path));
        let chosen = heading.strip_suffix(".*");
        if heading != open {
            lines.extend(heading_lines(keys, heading, open));
            open = heading;
        }
        let indent = match chosen {
            Some(above) => format!("{}#     ", "  ".repeat(above.matches('.').count())),
            None if heading.is_empty() => String::new(),
            None => "  ".repeat(1 + heading.matches('.').count()),
        };
        let choice = key.choice().map(|choice| format!(" ({choice})"));
        let comment = format!("{}{}", key.help, choice.unwrap_or_default());
        lines.extend(wrapped(&comment, &format!("{indent}# ")));
        let hidden = mark(key.default.is_empty() && chosen.is_none());
        let line = format!("{indent}{hidden}{name}: {}", key.default);
        lines.push(line.trim_end().to_owned());
    }
    lines
}

fn wrapped(text: &str, start: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = start.to_owned();
    for word in text.split(' ') {
        if line.len() > start.len() && line.chars().count() + word.chars().count() > WIDTH {
            lines.push(line.trim_end().to_owned());
            start.clone_into(&mut line);
        }
        line.push_str(word);
        line.push(' ');
    }
    lines.push(line.trim_end().to_owned());
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
        parts.is_some_and(|(named, _)| named == heading)
    };
    let silent = keys.iter().filter(below).all(|key| key.default.is_empty());
    // A section within a section stands below it.
    let indent = "  ".repeat(heading.matches('.').count());
    let name = heading.rsplit('.').next().unwrap_or(heading);
    vec![format!("{indent}{}{name}:", mark(silent))]
}

fn mark(silent: bool) -> &'static str {
    if silent { "# " } else { "" }
}

/// The tables of `docs/operating/config.md`.
pub fn reference() -> String {
    let mut page = String::new();
    for section in SECTIONS.iter() {
        let rows = section.keys();
        let rows = rows.iter().map(|key| row(key));
        let head = "| key | allowed | default | meaning |\n|---|---|---|---|";
        add_table(&mut page, section.title, head, rows);
    }
    let older = UNSUPPORTED.older_names.iter();
    let rows = older.map(|(older, key)| format!("| `{older}` | `{key}` |"));
    let head = "| older name | key |\n|---|---|";
    add_table(&mut page, "Older names", head, rows);
    let rows = group_rows(&UNSUPPORTED.without_effect).chain(values_of_inert_keys());
    let head = "| accepted, without effect | why |\n|---|---|";
    add_table(&mut page, "Keys without effect", head, rows);
    let refused = group_rows(&UNSUPPORTED.refused_keys);
    let head = "| stops the start | what to do instead |\n|---|---|";
    add_table(&mut page, "Keys that are refused", head, refused);
    page
}

fn group_rows(groups: &[InertKeys]) -> impl Iterator<Item = String> {
    groups.iter().map(|group| {
        let keys: Vec<String> = group.keys.keys().map(|path| format!("`{path}`")).collect();
        format!("| {} | {} |", keys.join(", "), group.reason)
    })
}

fn add_table(page: &mut String, title: &str, head: &str, rows: impl Iterator<Item = String>) {
    // Writing to a text cannot fail.
    let _ = writeln!(page, "\n## {title}\n\n{head}");
    for row in rows {
        page.push_str(&row);
        page.push('\n');
    }
}

fn values_of_inert_keys() -> impl Iterator<Item = String> {
    let inert = table::keys().filter(|key| matches!(key.state, KeyState::WithoutEffect(_)));
    inert.flat_map(|key| {
        let values = unsupported_keys::values(&key.path).into_iter();
        values.filter_map(|(value, state)| match state {
            KeyState::WithoutEffect(why) => Some(format!("| `{}: {value}` | {why} |", key.path)),
            KeyState::Refused(why) => Some(format!("| `{}: {value}` | refused: {why} |", key.path)),
            KeyState::Works | KeyState::SameAs(_) => None,
        })
    })
}

fn row(key: &Key) -> String {
    let named = key.kind.name().map(str::to_owned);
    let allowed = named.unwrap_or_else(|| key.allowed()).replace('|', "\\|");
    let default = match &*key.default {
        "" => String::new(),
        default => format!("`{default}`"),
    };
    let states = states(key);
    format!(
        "| `{}` | {allowed} | {default} | {}{states} |",
        key.path, key.help
    )
}

fn states(key: &Key) -> String {
    let told = key.values.iter().map(|(value, state)| match state {
        KeyState::SameAs(word) => format!(" `{value}` is an older word for `{word}`."),
        KeyState::WithoutEffect(reason) => format!(" `{value}` has no effect: {reason}."),
        KeyState::Refused(reason) => format!(" `{value}` is refused: {reason}."),
        KeyState::Works => String::new(),
    });
    told.collect()
}
