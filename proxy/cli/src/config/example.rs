//! `config.example.yaml` and the table of `docs/config.md`, made from the table of keys, so that
//! neither can say what the program does not do.

use super::{
    key::{Key, State},
    table::TABLE,
};

/// The example file: every key that works with its default, and what the rest is for.
pub(crate) fn example() -> String {
    let mut text = String::from(
        "# The configuration of MetaClaw: copy it to ~/.metaclaw/config.yaml and keep what you change.\n\
         # Every key stands here with its default; a key without one is commented out.\n\
         # METACLAW__RL__BATCH_SIZE=8 in the environment stands for rl.batch_size and comes before the file.\n",
    );
    for section in TABLE {
        let keys: Vec<&Key> = section
            .keys
            .iter()
            .filter(|it| it.state == State::Done)
            .collect();
        if !keys.is_empty() {
            text.push_str(&format!("\n# --- {} ---\n", section.title));
            write_keys(&mut text, &keys);
        }
    }
    text
}

/// Keys below their headings; keys of one heading stand together.
fn write_keys(text: &mut String, keys: &[&Key]) {
    let mut open = "";
    for key in keys {
        let (heading, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        if heading != open {
            let silent = keys
                .iter()
                .all(|it| !it.path.starts_with(&format!("{heading}.")) || it.default.is_empty());
            text.push_str(&format!("{}{heading}:\n", if silent { "# " } else { "" }));
            open = heading;
        }
        let indent = if heading.is_empty() { "" } else { "  " };
        let choice = key
            .choice()
            .map(|it| format!(" ({it})"))
            .unwrap_or_default();
        text.push_str(&format!("{indent}# {}{choice}\n", key.meaning));
        if key.default.is_empty() {
            text.push_str(&format!("{indent}# {name}:\n"));
        } else {
            text.push_str(&format!("{indent}{name}: {}\n", quoted(key)));
        }
    }
}

/// The default as it must be written to be read as what it is.
fn quoted(key: &Key) -> String {
    match key.kind {
        super::kind::Kind::Time => format!("\"{}\"", key.default),
        _ => key.default.to_owned(),
    }
}

/// The table of `docs/config.md`.
pub(crate) fn reference() -> String {
    let mut text = String::new();
    for section in TABLE {
        text.push_str(&format!(
            "\n## {}\n\n| key | allowed | default | meaning |\n|---|---|---|---|\n",
            section.title
        ));
        for key in section.keys {
            let meaning = match key.state {
                State::Done => key.meaning.to_owned(),
                State::Inert(reason) => format!("*accepted, without effect:* {reason}"),
                State::Refused(reason) => format!("*refused:* {reason}"),
                State::Alias(target) => format!("older name of `{target}`"),
            };
            let allowed = key.allowed().replace('|', "\\|");
            let default = if key.default.is_empty() {
                "none".to_owned()
            } else {
                format!("`{}`", key.default)
            };
            text.push_str(&format!(
                "| `{}` | {allowed} | {default} | {meaning}{} |\n",
                key.path,
                fates(key)
            ));
        }
    }
    text
}

/// What single values come to.
fn fates(key: &Key) -> String {
    let told = key.values.iter().map(|(value, state)| match state {
        State::Alias(word) => format!("; `{value}` is `{word}`"),
        State::Inert(reason) => format!("; `{value}`: without effect, {reason}"),
        State::Refused(reason) => format!("; `{value}`: refused, {reason}"),
        State::Done => String::new(),
    });
    told.collect()
}
