//! The history of lessons: what was learned, from which words, and its present state: `lessons.jsonl` in the library's
//! folder.
//!
//! Each line is a JSON object, in the order of learning. `undo` takes its number. The file is small (a person has
//! dozens of wishes, not thousands), so each change rewrites it in one rename.

use std::path::Path;

use metaclaw_chat::{AgentId, SenderId, SessionId, TurnId, one_line};
use serde::{Deserialize, Serialize};

use crate::{
    file::{JournalError, read_lines, write_lines, write_text},
    guard::Suspicion,
    hearing::Facet,
    holder::Holder,
};

pub(crate) const FILE: &str = "lessons.jsonl";
/// The largest number of lessons. Beyond it, the oldest that are not in force are removed.
const MAX_LESSONS: usize = 2_000;

/// The origin of a lesson.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The agent of the lesson.
    pub agent: AgentId,
    /// The session in which it was said, or `None` if the owner wrote it by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// The person who said it, or `None` for the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<SenderId>,
    /// The time in Unix milliseconds.
    pub at_ms: u64,
}

/// One thing that was learned, or is proposed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lesson {
    /// Its number, from 1, which `metaclaw undo` takes.
    pub n: u64,
    /// Its origin.
    #[serde(flatten)]
    pub origin: Origin,
    pub heard: String,
    /// The detected wish.
    pub wish: String,
    /// Its subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facet: Option<Facet>,
    /// The wishes that it replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<String>,
    /// When the owner accepted it, in Unix milliseconds. `None` if it did not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// When the message was sent that took it back, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_back_ms: Option<u64>,
    /// Its present state.
    #[serde(flatten)]
    pub state: LessonState,
    /// Whether the change of WISHES.md that belongs to the state is not known to be made. It is made at the next start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
}

/// The state of a lesson.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum LessonState {
    /// It is in WISHES.md, and applies from the next session on.
    ///
    /// The file decides what is in force, because people edit it too. So the history keeps this state for a wish that
    /// another one replaced, or whose line somebody removed.
    #[display("in force")]
    InForce,
    /// Another wish about the same subject took its place. [`Library::journal`](crate::Library::journal) says so of a
    /// wish that the history has as in force.
    #[display("replaced by: {by_wish}")]
    Replaced {
        /// The number of the other one. If that is undone, this one is in force again.
        by: u64,
        /// The words of the other one.
        #[serde(default)]
        by_wish: String,
    },
    /// A complaint. One more about the same subject makes a wish.
    #[display("noted; said once more, it is a wish")]
    Noted,
    /// A complaint that was said again, which made a wish: a later lesson.
    #[display("said again, which made it a wish")]
    Repeated,
    /// It waits for the owner's review.
    #[display("waits for you")]
    Review { why: Vec<Suspicion> },
    /// It was undone, or dismissed.
    #[display("taken back")]
    Undone,
    /// Its session was deleted, so its words are gone.
    #[display("forgotten")]
    Forgotten,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    pub(crate) lessons: Vec<Lesson>,
}

// === impl Origin ===

impl Origin {
    pub(crate) fn by_hand(agent: &AgentId, sender: Option<&SenderId>, at_ms: u64) -> Self {
        Self {
            agent: agent.clone(),
            session: None,
            turn: None,
            sender: sender.cloned(),
            at_ms,
        }
    }

    /// Returns whose wish it is.
    pub fn holder(&self) -> Holder<'_> {
        Holder {
            agent: &self.agent,
            sender: self.sender.as_ref(),
        }
    }
}

// === impl LessonState ===

impl LessonState {
    /// Returns whether its wish is in force, or was until another one replaced it.
    pub fn was_in_force(&self) -> bool {
        matches!(self, Self::InForce | Self::Replaced { .. })
    }

    /// Returns whether `metaclaw undo` takes it back.
    pub fn can_be_undone(&self) -> bool {
        matches!(self, Self::InForce | Self::Noted)
    }
}

// === impl Lesson ===

impl Lesson {
    /// Returns when it came into force, in Unix milliseconds, if it did.
    pub fn in_force_ms(&self) -> u64 {
        self.since_ms.unwrap_or(self.origin.at_ms)
    }

    /// Deletes its words. Those of a wish that may be in a file stay until it is removed there.
    pub(crate) fn forget(&mut self) {
        self.unfinished |= self.state == LessonState::InForce;
        self.state = LessonState::Forgotten;
        self.replaced.clear();
        if !self.unfinished {
            self.heard.clear();
            self.wish.clear();
        }
    }
}

// === impl Journal ===

impl Journal {
    /// Reads the journal of a library. An invalid line is an error, because writing the other lines back would lose it.
    pub(crate) fn read(dir: &Path) -> Result<Self, JournalError> {
        let lessons = read_lines(&dir.join(FILE))?;
        Ok(Self { lessons })
    }

    pub(crate) fn write(&mut self, dir: &Path) -> Result<(), JournalError> {
        self.drop_oldest();
        write_lines(&dir.join(FILE), &self.lessons, write_text)
    }

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
            wish: one_line(wish),
            facet,
            replaced: Vec::new(),
            since_ms: None,
            taken_back_ms: None,
            state: LessonState::Noted,
            unfinished: false,
        });
        let last = self.lessons.len() - 1;
        &mut self.lessons[last]
    }

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
