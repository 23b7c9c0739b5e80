//! What was learned, from which words, and what became of it: `lessons.jsonl` in the library's folder.
//!
//! One JSON object a line, in the order in which it was learned; its number is what `undo` takes. The file is small
//! (a person has dozens of wishes, not thousands), so each change writes it anew, in one rename.

use std::{
    io,
    path::{Path, PathBuf},
};

use metaclaw_chat::{AgentId, SessionId, TurnId};
use serde::{Deserialize, Serialize};

use crate::{
    file::{MAX_JOURNAL, read_text, write_text},
    guard::Suspicion,
    hearing::Facet,
};

pub(crate) const FILE: &str = "lessons.jsonl";
/// Lessons that are kept: beyond, the oldest that are not in force go.
const MAX_LESSONS: usize = 2_000;

/// Where a lesson comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Whose lesson it is.
    pub agent: AgentId,
    /// Where it was said; none where the owner wrote it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// When, in Unix milliseconds.
    pub at_ms: u64,
}

/// One thing that was learned, or is about to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lesson {
    /// Its number, from 1: what `metaclaw undo` takes.
    pub n: u64,
    /// Where it comes from.
    #[serde(flatten)]
    pub origin: Origin,
    pub heard: String,
    /// The wish that was understood.
    pub wish: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facet: Option<Facet>,
    /// The wishes that it took the place of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<String>,
    /// When the owner let it stand, in Unix milliseconds; none where it did not wait for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// What became of it.
    #[serde(flatten)]
    pub state: LessonState,
}

/// What became of a lesson.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum LessonState {
    /// In WISHES.md, from the next session on.
    InForce,
    /// A complaint: one more about the same makes a wish.
    Noted,
    /// It waits for the owner's look.
    Review {
        /// What is suspicious about it.
        why: Vec<Suspicion>,
    },
    /// Taken back, or refused.
    Undone,
    /// Its words are gone: what it was learned from was forgotten.
    Forgotten,
}

/// Lessons could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {}: {source}", path.display())]
pub struct JournalError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// All lessons, as the file has them.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) lessons: Vec<Lesson>,
}

// === impl Lesson ===

impl Lesson {
    /// When it came into force, if it did, in Unix milliseconds.
    pub(crate) fn in_force_ms(&self) -> u64 {
        self.since_ms.unwrap_or(self.origin.at_ms)
    }
}

// === impl Journal ===

impl Journal {
    /// Reads the journal of a library. A line that is no lesson stops it: to write the others back would lose it.
    pub(crate) fn read(dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join(FILE);
        let failed = |source| JournalError {
            path: path.clone(),
            source,
        };
        let text = match read_text(&path, MAX_JOURNAL) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(error)),
        };
        let lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty());
        let lessons = lines.map(|(number, line)| {
            serde_json::from_str(line).map_err(|error| {
                let why = format!("line {}: {error}", number + 1);
                failed(io::Error::new(io::ErrorKind::InvalidData, why))
            })
        });
        Ok(Self {
            lessons: lessons.collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn write(&mut self, dir: &Path) -> Result<(), JournalError> {
        self.drop_oldest();
        let path = dir.join(FILE);
        let failed = |source| JournalError {
            path: path.clone(),
            source,
        };
        let mut text = String::new();
        for lesson in &self.lessons {
            let line = serde_json::to_string(lesson).map_err(|error| failed(error.into()))?;
            text.push_str(&line);
            text.push('\n');
        }
        write_text(&path, &text).map_err(failed)
    }

    /// A new lesson, with the next number.
    pub(crate) fn add(
        &mut self,
        origin: Origin,
        heard: &str,
        wish: &str,
        facet: Option<Facet>,
    ) -> &mut Lesson {
        let n = self.lessons.last().map_or(1, |last| last.n + 1);
        self.lessons.push(Lesson {
            n,
            origin,
            heard: heard.to_owned(),
            wish: wish.to_owned(),
            facet,
            replaced: Vec::new(),
            since_ms: None,
            state: LessonState::Noted,
        });
        let last = self.lessons.len() - 1;
        &mut self.lessons[last]
    }

    /// The newest lesson that fits.
    pub(crate) fn newest(&mut self, fits: impl Fn(&Lesson) -> bool) -> Option<&mut Lesson> {
        self.lessons.iter_mut().rev().find(|lesson| fits(lesson))
    }

    fn drop_oldest(&mut self) {
        let mut too_many = self.lessons.len().saturating_sub(MAX_LESSONS);
        self.lessons.retain(|lesson| {
            let goes = too_many > 0 && lesson.state != LessonState::InForce;
            too_many -= usize::from(goes);
            !goes
        });
    }
}
