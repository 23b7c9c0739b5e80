//! A host's lessons in the form in which they are stored. Their size is bounded, however much the host shows.

use serde::{Deserialize, Serialize};

/// The largest number of skills, notes and standing intents of one host.
const MAX_SKILLS: usize = 256;
const MAX_NOTES: usize = 200;
const MAX_INTENTS: usize = 20;
/// The longest name, description and line, in characters. A longer name or line is ignored. A longer description is
/// cut.
const MAX_NAME: usize = 128;
const MAX_DESCRIPTION: usize = 160;
const MAX_LINE: usize = 300;
/// Bytes of all lessons of a host.
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

/// Collects what is read, within the limits.
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
}

// === impl Collector ===

impl Collector {
    pub(super) fn add_skill(&mut self, name: &str, description: &str) {
        let is_known = |it: &HostSkill| it.name == name;
        let skills = &self.lessons.skills;
        if skills.len() < MAX_SKILLS && is_line(name, MAX_NAME) && !skills.iter().any(is_known) {
            let description = cut(description);
            if self.takes(name.len() + description.len()) {
                let name = name.to_owned();
                self.lessons.skills.push(HostSkill { name, description });
            }
        }
    }

    /// Adds the description of the last skill, if it was added without one.
    pub(super) fn describe_last(&mut self, description: &str) {
        let description = cut(description);
        let is_bare = |it: &HostSkill| it.description.is_empty();
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
        if !fits || notes.iter().any(|it| it.text == text) {
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
        if fits && !intents.iter().any(|it| it == text) && self.takes(text.len()) {
            self.lessons.intents.push(text.to_owned());
        }
    }

    /// Returns whether so many more bytes fit.
    fn takes(&mut self, n_bytes: usize) -> bool {
        let has_room = self.n_bytes + n_bytes <= MAX_BYTES;
        self.n_bytes += if has_room { n_bytes } else { 0 };
        has_room
    }
}

/// Returns whether a text can be stored as one line of at most so many characters.
fn is_line(text: &str, max: usize) -> bool {
    let mut chars = text.chars();
    chars.by_ref().take(max).all(|c| !c.is_control()) && chars.next().is_none()
}

/// Returns the beginning of a description, on one line.
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
