//! Reads what a host has learned by itself from its own part of a request: all of a system prompt, and the text before the
//! owner's words. Each line is read once, and the size of what is kept is bounded, however much the host shows.
//!
//! The formats are those of OpenClaw 2026.9.6, Claude Code 2.1.331, Codex 0.169.0, Hermes 0.19.0, opencode 1.18.33,
//! nanobot 0.3.5, QwenPaw 2.2.2. Text in another format is not recognised, and then our lessons stay. Nothing here
//! guesses.

use std::path::Path;

use metaclaw_chat::{Role, head};
use serde::{Deserialize, Serialize};

use crate::words::WORD_LISTS;

/// The largest number of skills, notes and standing intents of one host.
const MAX_SKILLS: usize = 256;
const MAX_NOTES: usize = 200;
const MAX_INTENTS: usize = 20;
/// The longest name, description and line, in characters. A longer name or line is ignored. A longer description is
/// cut.
const MAX_NAME: usize = 128;
const MAX_DESCRIPTION: usize = 160;
const MAX_LINE: usize = 300;
const MAX_BYTES: usize = 64 * 1024;

/// What a host has learned by itself, as its prompt shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostLessons {
    /// The skills that it can load.
    pub skills: Vec<HostSkill>,
    /// Its notes about its owner: lines of `USER.md`, `CLAUDE.md`, `AGENTS.md` of Codex, Hermes' memory.
    pub notes: Vec<HostNote>,
    /// Actions for when something comes up.
    pub intents: Vec<String>,
}

/// One skill of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSkill {
    pub name: String,
    /// When it applies, if the host says so. A long text is cut.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// One note of a host about its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNote {
    /// The line without its bullet.
    pub text: String,
    /// The limit given by a heading or a line above it ("When writing code:"), or `None` if it always applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Collector {
    pub(super) lessons: HostLessons,
    n_bytes: usize,
}

// === impl HostLessons ===

impl HostLessons {
    /// Returns whether nothing was learned.
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty() && self.notes.is_empty() && self.intents.is_empty()
    }

    /// Keeps the intents that were read earlier in the same session, because the host shows each only when it applies.
    pub(crate) fn keep_intents(&mut self, before: &Self) {
        for intent in &before.intents {
            if self.intents.len() < MAX_INTENTS && !self.intents.contains(intent) {
                self.intents.push(intent.clone());
            }
        }
    }

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

// === impl Collector ===

impl Collector {
    pub(super) fn add_skill(&mut self, name: &str, description: &str) {
        let is_known = |skill: &HostSkill| skill.name == name;
        let skills = &self.lessons.skills;
        if skills.len() < MAX_SKILLS && is_line(name, MAX_NAME) && !skills.iter().any(is_known) {
            let description = cut(description);
            if self.takes(name.len() + description.len()) {
                let name = name.to_owned();
                self.lessons.skills.push(HostSkill { name, description });
            }
        }
    }

    pub(super) fn describe_last(&mut self, description: &str) {
        let description = cut(description);
        let is_bare = |skill: &HostSkill| skill.description.is_empty();
        if self.lessons.skills.last().is_some_and(is_bare)
            && self.takes(description.len())
            && let Some(last) = self.lessons.skills.last_mut()
        {
            last.description = description;
        }
    }

    pub(super) fn add_note(&mut self, text: &str, within: Option<&str>) {
        let notes = &self.lessons.notes;
        let fits = notes.len() < MAX_NOTES && is_line(text, MAX_LINE);
        if !fits || notes.iter().any(|note| note.text == text) {
            return;
        }
        if self.takes(text.len() + within.map_or(0, str::len)) {
            let (text, within) = (text.to_owned(), within.map(str::to_owned));
            self.lessons.notes.push(HostNote { text, within });
        }
    }

    pub(super) fn add_intent(&mut self, text: &str) {
        let intents = &self.lessons.intents;
        let fits = intents.len() < MAX_INTENTS && is_line(text, MAX_LINE);
        if fits && !intents.iter().any(|intent| intent == text) && self.takes(text.len()) {
            self.lessons.intents.push(text.to_owned());
        }
    }

    fn takes(&mut self, n_bytes: usize) -> bool {
        let has_room = self.n_bytes + n_bytes <= MAX_BYTES;
        self.n_bytes += if has_room { n_bytes } else { 0 };
        has_room
    }
}

fn is_line(text: &str, max: usize) -> bool {
    let mut chars = text.chars();
    chars.by_ref().take(max).all(|c| !c.is_control()) && chars.next().is_none()
}

fn cut(description: &str) -> String {
    let words = description.split_whitespace();
    let mut cut = String::new();
    for word in words {
        if cut.chars().count() + word.chars().count() >= MAX_DESCRIPTION {
            cut.push('…');
            break;
        }
        if !cut.is_empty() {
            cut.push(' ');
        }
        cut.extend(word.chars().filter(|c| !c.is_control()));
    }
    cut
}

/// The longest part that is read, in bytes. A longer one is not searched.
const MAX_PART: usize = 1 << 20;
/// Elements that a host puts before the owner's words in the same text, by their first and last words. They are those
/// of Claude Code, OpenClaw (standing intents and context) and Codex (AGENTS.md).
const ELEMENTS: &[(&str, &str)] = &[
    ("<system-reminder>", "</system-reminder>"),
    ("<standing_intents>", "</standing_intents>"),
    (
        "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>",
        "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>",
    ),
    ("# AGENTS.md instructions for ", "</INSTRUCTIONS>"),
];

/// Returns the part of a message that the host wrote. It contains nobody else's words, and no tool's.
pub fn host_part(role: Role, text: &str) -> &str {
    let text = head(text, MAX_PART);
    match role {
        Role::System => text,
        Role::User => elements(text),
        Role::Assistant | Role::Tool | Role::Other => "",
    }
}

fn elements(text: &str) -> &str {
    let mut rest = text.trim_start();
    let mut end = 0;
    while let Some((_, last)) = ELEMENTS.iter().find(|(first, _)| rest.starts_with(first))
        && let Some(at) = rest.find(last)
    {
        rest = &rest[at + last.len()..];
        end = text.len() - rest.len();
        rest = rest.trim_start();
    }
    &text[..end]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Catalog {
    /// Whether it is in `<available_skills>`. Otherwise it is below a heading.
    is_enclosed: bool,
    /// Whether each skill is a separate element. Otherwise it is an item of a list.
    pub(super) has_elements: bool,
}

#[derive(Debug)]
pub(super) enum HostSection {
    Elsewhere,
    Catalog(Catalog),
    Notes(HostNotes),
    Intents,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// At the heading of the next file, a horizontal rule, or a mark of the host: `## USER.md`.
    File,
    /// At the closing element: Claude Code's `Contents of`, Codex' `<INSTRUCTIONS>`.
    Element,
    /// At the first blank line: Hermes' blocks.
    Blank,
}

#[derive(Debug)]
pub(super) struct HostNotes {
    end: End,
    is_begun: bool,
    /// Inside a front matter, a code fence, or a comment, no line is a note.
    skips: Option<Skipped>,
    /// The present heading at each level, if it limits the lines below.
    headings: [Option<String>; 6],
    /// A line that introduces others ("When writing code:"), and its indentation.
    intro: Option<(String, usize)>,
    /// Whether OpenClaw's comment above the lines says that they do not apply: they were replaced, or are an example.
    is_superseded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skipped {
    FrontMatter,
    Fence,
    Comment,
}

pub(super) fn opens(section: &HostSection, line: &str) -> Option<HostSection> {
    let line = line.trim();
    // A file within an element has its own headings.
    let is_enclosed = matches!(section, HostSection::Notes(notes) if notes.end == End::Element);
    if let Some(heading) = line.strip_prefix('#').filter(|_| !is_enclosed) {
        let heading = heading.trim_start_matches('#');
        return of_heading(
            line.len() - heading.len(),
            heading.strip_prefix(' ')?.trim(),
        );
    }
    if line == "<available_skills>" {
        return Some(catalog(true));
    }
    if line.ends_with("skills are available for use with the Skill tool:") {
        return Some(catalog(false));
    }
    if line == "<standing_intents>" {
        return Some(HostSection::Intents);
    }
    let of_claude = line.starts_with("Contents of ") && line.ends_with("):");
    if of_claude || line == "<INSTRUCTIONS>" || line.starts_with("Instructions from: ") {
        return Some(HostSection::Notes(HostNotes::new(End::Element)));
    }
    let of_hermes = ["USER PROFILE (", "MEMORY (your personal notes)"];
    let is_hermes = of_hermes.iter().any(|start| line.starts_with(start));
    is_hermes.then(|| HostSection::Notes(HostNotes::new(End::Blank)))
}

fn catalog(is_enclosed: bool) -> HostSection {
    HostSection::Catalog(Catalog {
        is_enclosed,
        has_elements: false,
    })
}

/// Returns the section below a heading, or `None` if it belongs to a file that we do not use.
fn of_heading(level: usize, heading: &str) -> Option<HostSection> {
    let lower = heading.to_lowercase();
    let catalogs = [
        "available skills",
        "workspace skills (",
        "agent plugin skills (",
        "built-in skills (",
    ];
    if lower == catalogs[0] || catalogs[1..].iter().any(|start| lower.starts_with(start)) {
        return Some(catalog(false));
    }
    let file = lower.rsplit(['/', '\\']).next()?;
    if level > 2 || !is_file(file) {
        return None;
    }
    Some(match file {
        "user.md" | "profile.md" => HostSection::Notes(HostNotes::new(End::File)),
        _ => HostSection::Elsewhere,
    })
}

/// Returns whether a heading is only the name of a file: `SOUL.md`, and not `USER.md - User Model`.
fn is_file(name: &str) -> bool {
    let extension = Path::new(name).extension();
    extension.is_some_and(|extension| extension == "md") && !name.contains(char::is_whitespace)
}

pub(super) fn closes(section: &HostSection, line: &str) -> bool {
    let line = line.trim();
    match section {
        HostSection::Elsewhere => false,
        HostSection::Intents => line == "</standing_intents>",
        HostSection::Catalog(catalog) if catalog.is_enclosed => line == "</available_skills>",
        HostSection::Catalog(_) => line.starts_with('#') || line.starts_with("</") || line == "---",
        HostSection::Notes(notes) => notes.closes(line),
    }
}

// === impl Notes ===

impl HostNotes {
    fn new(end: End) -> Self {
        Self {
            end,
            is_begun: false,
            skips: None,
            headings: Default::default(),
            intro: None,
            is_superseded: false,
        }
    }

    fn closes(&self, line: &str) -> bool {
        let is_mark = line.starts_with("<!--") && line.to_lowercase().contains("openclaw");
        is_mark
            || match self.end {
                End::File => line == "---" && self.is_begun && self.skips.is_none(),
                End::Element => line.starts_with("</system-reminder>") || line == "</INSTRUCTIONS>",
                End::Blank => line.is_empty() || (line.starts_with('═') && self.is_begun),
            }
    }

    pub(super) fn within(&self) -> Option<&str> {
        let intro = self.intro.as_ref().map(|(intro, _)| intro);
        intro
            .or_else(|| self.headings.iter().flatten().next())
            .map(String::as_str)
    }

    pub(super) fn line<'t>(&mut self, line: &'t str) -> Option<&'t str> {
        let text = line.trim();
        if text.is_empty() || self.is_skipped(text) {
            return None;
        }
        self.is_begun |= !text.starts_with('═');
        let is_drawn = |c: char| matches!(c, '═' | '-' | '*' | '_' | '§' | '=');
        // These are a table, a quotation (Claude Code's, of a file that it does not vouch for), and a horizontal rule.
        let is_none = ["|", ">", "---"].iter().any(|mark| text.starts_with(mark));
        if is_none || text.chars().all(is_drawn) {
            return None;
        }
        if text.starts_with('#') {
            self.heading(text);
            return None;
        }
        let indent = line.len() - line.trim_start().len();
        let (text, is_item) = without_bullet(text)?;
        let is_over =
            |intro: &mut (String, usize)| indent < intro.1 || (indent == intro.1 && !is_item);
        self.intro.take_if(is_over);
        if text.ends_with([':', '：']) {
            let indent = indent + usize::from(is_item);
            self.intro = limits(text).then(|| (text.to_owned(), indent));
            return None;
        }
        let says_something = text
            .chars()
            .filter(|c| c.is_alphanumeric())
            .nth(1)
            .is_some();
        (says_something && !self.is_superseded).then_some(text)
    }

    /// Front matter, code and comments say nothing about the owner. OpenClaw's comments say whether the following lines
    /// apply.
    fn is_skipped(&mut self, text: &str) -> bool {
        match self.skips {
            Some(Skipped::FrontMatter) => self.skips.take_if(|_| text == "---"),
            Some(Skipped::Fence) => self.skips.take_if(|_| text.starts_with("```")),
            Some(Skipped::Comment) => self.skips.take_if(|_| text.contains("-->")),
            None if text.starts_with("<!--") => {
                // A date that nobody filled in belongs to the template's example.
                let marks = ["status: superseded", "YYYY"];
                self.is_superseded = marks.iter().any(|mark| text.contains(mark));
                self.skips = (!text.contains("-->")).then_some(Skipped::Comment);
                return true;
            }
            None if text.starts_with("```") => self.skips.replace(Skipped::Fence),
            None if text == "---" && !self.is_begun => self.skips.replace(Skipped::FrontMatter),
            None => return false,
        };
        true
    }

    fn heading(&mut self, text: &str) {
        let heading = text.trim_start_matches('#');
        let level = (text.len() - heading.len()).min(self.headings.len());
        for below in &mut self.headings[level - 1..] {
            *below = None;
        }
        let heading = heading.trim();
        self.headings[level - 1] = limits(heading).then(|| heading.to_owned());
        self.intro = None;
        self.is_superseded = false;
    }
}

/// Returns whether the lines below a heading, or after an introducing line, apply only to some subject.
fn limits(heading: &str) -> bool {
    let lower = heading.to_lowercase();
    let words = || lower.split(|c: char| !c.is_alphanumeric());
    let narrow = WORD_LISTS.list("narrow");
    let is_limiting = words().any(|word| narrow.contains(&word));
    // Chinese has no spaces between its words.
    let has = |general: &&str| {
        let is_word = words().any(|word| word == *general);
        is_word || (!general.is_ascii() && lower.contains(*general))
    };
    is_limiting || !WORD_LISTS.list("general").iter().any(has)
}

/// Returns a line without its bullet and its ticked box, and whether it had a bullet. Returns `None` for a box that is
/// not ticked.
fn without_bullet(text: &str) -> Option<(&str, bool)> {
    let bullets = ["- ", "* ", "+ "];
    let item = bullets.iter().find_map(|bullet| text.strip_prefix(bullet));
    let Some(item) = item.map(str::trim_start) else {
        return Some((text, false));
    };
    if item.starts_with("[ ]") {
        return None;
    }
    let ticked = ["[x]", "[X]"].iter().find_map(|m| item.strip_prefix(m));
    Some((ticked.unwrap_or(item).trim_start(), true))
}

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
        for name in names.split(", ").filter(|name| is_name(name)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_host_puts_before_the_owners_words_is_its_own() {
        let reminder = "<system-reminder>\nA\n</system-reminder>";
        let text = format!("{reminder}\n<system-reminder>B</system-reminder>\nHello {reminder}");
        let own = format!("{reminder}\n<system-reminder>B</system-reminder>");
        assert_eq!(host_part(Role::User, &text), own);
        for not_its_own in [
            "Hello <system-reminder>A</system-reminder>",
            "<system-reminder>never ends",
            "<p>x</p>",
            "",
        ] {
            assert_eq!(host_part(Role::User, not_its_own), "");
        }
        assert_eq!(host_part(Role::System, &text), text);
        assert_eq!(host_part(Role::Tool, reminder), "");
        assert_eq!(host_part(Role::Assistant, reminder), "");
    }
}
