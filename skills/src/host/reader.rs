//! Reads a host's part of a request line by line, each line once.
//!
//! The formats are those of OpenClaw 2026.9.6, Claude Code 2.1.331, Codex 0.169.0, Hermes 0.19.0, opencode 1.18.33,
//! nanobot 0.3.5, QwenPaw 2.2.2. Text in another format is not recognised, and then our lessons stay. Nothing here
//! guesses.

use super::{
    lessons::{Collector, HostLessons},
    section::{Catalog, HostNotes, HostSection, closes, opens},
};

// === impl HostLessons ===

impl HostLessons {
    /// Reads a host's lessons from its parts of the messages of one request ([`crate::host_part`]).
    pub fn read<'t>(parts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut collector = Collector::default();
        for part in parts {
            let mut section = HostSection::Elsewhere;
            for line in part.lines() {
                if let Some(opened) = opens(&section, line) {
                    section = opened;
                } else if closes(&section, line) {
                    section = HostSection::Elsewhere;
                } else {
                    take(&mut section, line, &mut collector);
                }
            }
        }
        collector.lessons
    }
}

/// Adds the lesson on a line of a section.
fn take(section: &mut HostSection, line: &str, collector: &mut Collector) {
    match section {
        HostSection::Elsewhere => {}
        HostSection::Catalog(catalog) => skill(catalog, line, collector),
        HostSection::Notes(notes) => note(notes, line, collector),
        HostSection::Intents => {
            if let Some((head, intent)) = line.split_once("): ")
                && head.trim_start().starts_with("Standing intent (")
            {
                collector.add_intent(intent.trim());
            }
        }
    }
}

fn skill(catalog: &mut Catalog, line: &str, collector: &mut Collector) {
    let line = line.trim();
    catalog.has_elements |= line == "<skill>";
    if catalog.has_elements {
        if let Some(name) = element(line, "<name>", "</name>") {
            collector.add_skill(&unescaped(name), "");
        } else if let Some(description) = element(line, "<description>", "</description>") {
            collector.describe_last(&unescaped(description));
        }
    } else if let Some((name, description)) = item(line) {
        collector.add_skill(name, description);
    } else if let Some((_, names)) = line.split_once(" [names only]: ") {
        for name in names.split(", ").filter(|it| is_name(it)) {
            collector.add_skill(name, "");
        }
    }
}

fn note(notes: &mut HostNotes, line: &str, collector: &mut Collector) {
    if let Some(text) = notes.line(line) {
        collector.add_note(text, notes.within());
    }
}

/// Returns the content of an element on its line. If it continues below, it is cut.
fn element<'t>(line: &'t str, first: &str, last: &str) -> Option<&'t str> {
    let text = line.strip_prefix(first)?;
    Some(text.strip_suffix(last).unwrap_or(text).trim())
}

/// Parses `- name: what it is for`, `- **name**: ..` or `- **name** — ..`, without the file's path at the end.
fn item(line: &str) -> Option<(&str, &str)> {
    let rest = line
        .strip_prefix("- ")
        .or_else(|| line.strip_prefix("* "))?;
    let (name, description) = match rest.strip_prefix("**") {
        Some(bold) => bold.split_once("**")?,
        None => rest
            .split_once(": ")
            .unwrap_or_else(|| (rest.trim_end_matches(':'), "")),
    };
    let description = description.trim_start_matches([':', '—', ' ']);
    let (description, _) = description
        .rsplit_once(" (file: ")
        .unwrap_or((description, ""));
    let (description, _) = description.rsplit_once("  `").unwrap_or((description, ""));
    is_name(name).then_some((name, description.trim()))
}

/// Returns whether it is the name of a skill: one word, possibly of a plugin (`plugin:skill`).
fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/');
    text.starts_with(char::is_alphanumeric) && text.chars().all(is_part)
}

fn unescaped(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    let text = text.replace("&quot;", "\"").replace("&apos;", "'");
    text.replace("&amp;", "&")
}
