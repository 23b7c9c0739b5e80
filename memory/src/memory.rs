//! One memory, as a line of its file.

use std::fmt;

use metaclaw_skills::{Origin, Suspicion};
use serde::{Deserialize, Serialize};

use crate::scope::MemoryScope;

/// The longest memory in characters.
pub(crate) const MAX_CHARS: usize = 300;
/// The importance from which a memory is pinned.
const PINNED: f32 = 0.99;

/// What a memory is about. The names are those of the Python original.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Something that happened.
    Episodic,
    /// A lasting fact.
    Semantic,
    /// What the owner likes or dislikes.
    Preference,
    /// How the owner's project is.
    ProjectState,
    /// What a session was about. Only files of the Python original contain this kind; it is never made here.
    WorkingSummary,
    /// How the owner does things.
    ProceduralObservation,
}

/// One fact in the owner's words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// 16 hexadecimal digits.
    pub memory_id: String,
    pub scope_id: MemoryScope,
    #[serde(rename = "type")]
    pub kind: MemoryKind,
    /// One line of at most 300 characters.
    pub content: String,
    /// The owner's sentence behind it, if it has other words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// From 0 to 1. A memory with at least 0.99 is pinned.
    pub importance: f32,
    /// From 0 to 1.
    pub confidence: f32,
    /// The agent, and the session and turn in which it was said. Without a session, the owner wrote it by hand.
    #[serde(flatten)]
    pub origin: Origin,
    /// When it was said last, in Unix milliseconds.
    pub updated_ms: u64,
    #[serde(flatten)]
    pub state: MemoryState,
}

/// Whether a memory is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum MemoryState {
    /// Sessions may get it.
    Active,
    /// A newer one has replaced it.
    Superseded {
        /// The id of the newer one.
        superseded_by: String,
    },
    /// It waits for the owner's review.
    Review {
        /// What is suspicious about it.
        why: Vec<Suspicion>,
    },
}

// === impl MemoryKind ===

impl MemoryKind {
    pub const ALL: [Self; 6] = [
        Self::Episodic,
        Self::Semantic,
        Self::Preference,
        Self::ProjectState,
        Self::WorkingSummary,
        Self::ProceduralObservation,
    ];

    /// Returns the name on the wire and in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Episodic => "episodic",
            Self::Semantic => "semantic",
            Self::Preference => "preference",
            Self::ProjectState => "project_state",
            Self::WorkingSummary => "working_summary",
            Self::ProceduralObservation => "procedural_observation",
        }
    }

    /// Returns the kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Returns how important a memory of this kind is, from 0 to 1, as in the Python original.
    pub(crate) fn importance(self) -> f32 {
        match self {
            Self::Episodic => 0.5,
            Self::Semantic => 0.82,
            Self::Preference | Self::WorkingSummary => 0.9,
            Self::ProjectState => 0.88,
            Self::ProceduralObservation => 0.8,
        }
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Memory ===

impl Memory {
    pub fn is_active(&self) -> bool {
        self.state == MemoryState::Active
    }

    pub fn is_pinned(&self) -> bool {
        self.importance >= PINNED
    }
}

/// Returns a text on one line.
pub(crate) fn one_line(text: &str) -> String {
    let visible = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let visible: String = visible.collect();
    metaclaw_chat::one_line(&visible)
}
