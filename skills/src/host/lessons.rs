//! What a host has learned, in the shape in which it is kept: bounded, however much it shows.

use serde::{Deserialize, Serialize};

/// Skills, notes and standing intents of one host that are kept at most.
const MAX_SKILLS: usize = 256;
const MAX_NOTES: usize = 200;
const MAX_INTENTS: usize = 20;
/// The longest name, description and line, in characters. A longer name or line is none; a longer description is cut.
const MAX_NAME: usize = 128;
const MAX_DESCRIPTION: usize = 160;
const MAX_LINE: usize = 300;
/// Bytes of all of it.
const MAX_BYTES: usize = 64 * 1024;

/// What a host has learned by itself, as it tells its model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostLessons {
    /// The skills that it can load.
    pub skills: Vec<HostSkill>,
    /// What it notes about its owner: lines of `USER.md`, `CLAUDE.md`, `AGENTS.md` of Codex, Hermes' memory.
    pub notes: Vec<HostNote>,
    /// What it is to do when something comes up.
    pub intents: Vec<String>,
}

/// One skill of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSkill {
    pub name: String,
    /// When it applies, as far as the host says; the beginning of a long one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// One line that a host notes about its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNote {
    /// The line, as it stands there, without its bullet.
    pub text: String,
    /// What it is limited to, by a heading or a line above it ("When writing code:"); none where it always holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

/// Takes in what is read, as far as it is kept.
#[derive(Debug, Default)]
pub(super) struct Collector {
    pub(super) lessons: HostLessons,
    n_bytes: usize,
}

// === impl HostLessons ===

impl HostLessons {
    /// Whether nothing was learned.
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty() && self.notes.is_empty() && self.intents.is_empty()
    }

    /// Takes over the intents of what was read before in the same session: the host shows each only when it applies.
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

    /// Says what the skill that was added last is for, where it was added without that.
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

    /// Whether so many bytes more are kept.
    fn takes(&mut self, n_bytes: usize) -> bool {
        let has_room = self.n_bytes + n_bytes <= MAX_BYTES;
        self.n_bytes += if has_room { n_bytes } else { 0 };
        has_room
    }
}

/// Whether a text can be kept as one line of at most so many characters.
fn is_line(text: &str, max: usize) -> bool {
    let mut chars = text.chars();
    chars.by_ref().take(max).all(|c| !c.is_control()) && chars.next().is_none()
}

/// The beginning of a description, on one line.
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
