//! Memories: facts that the owner told, for agents that remember nothing by themselves.
//!
//! A memory is a lesson beside wishes and skills. It is one fact in the owner's words, with the turn that it comes from,
//! and comes only from what the owner typed: never from a tool's result, a web page, another person or a model.
//!
//! ```text
//! what the owner types -> buffer -> facts (a model's, or by rules) -> store -> recall -> system prompt
//! ```

mod buffer;
mod facts;
mod recall;
mod relation;
mod relevance;
mod replies;
mod store;

use std::str::FromStr;

use metaclaw_chat::display_as_serde;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::{file::JournalError, guard::Suspicion, journal::Origin};

pub use self::{
    buffer::{BufferedSession, BufferedTurn},
    facts::{Fact, FactQuestion, plain_facts},
    recall::{MEMORY_HEADING, MemoryHit, MemoryPolicy, Recall},
    relation::Consolidated,
    replies::{memory_json, search_json, stats_json, summary_json},
    store::{MemoryStore, Remembered},
};

const MAX_CHARS: usize = 300;
/// The importance from which a memory is pinned.
const PINNED: f32 = 0.99;
/// The scope of requests and memories that name none, unless `memory.scope` is set.
const DEFAULT_SCOPE: &str = "default";
/// The longest scope in characters. A longer one is shortened, and its hash is added, so that two scopes never become one.
const MAX_SCOPE: usize = 200;
const HASH_DIGITS: usize = 32;

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

/// One fact in the owner's words, as a line of its file.
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
    Active,
    /// A newer memory, which has this id, has replaced it.
    Superseded {
        superseded_by: String,
    },
    /// It waits for the owner's review, because it is suspicious.
    Review {
        why: Vec<Suspicion>,
    },
}

/// Which memories of an agent belong together: `default`, `user:alice` or `user:alice|workspace:shop`. The name is one
/// line, and never a path.
#[derive(
    Debug,
    Clone,
    SmartDefault,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    derive_more::Display,
)]
#[serde(from = "String")]
pub struct MemoryScope(#[default(DEFAULT_SCOPE.to_owned())] String);

/// Why a memory could not be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    #[error("the text of a memory is empty: write one line of 1 to {MAX_CHARS} characters")]
    Empty,
    #[error("the text of a memory has {length} characters: at most {MAX_CHARS} are allowed")]
    TooLong { length: usize },
    #[error("there is no memory {0:?}: `metaclaw memory list` shows the ids")]
    Unknown(String),
    #[error(transparent)]
    File(#[from] JournalError),
}

/// A word is no kind of memory.
#[derive(Debug, thiserror::Error)]
#[error("{given:?} is none of {}", MemoryKind::ALL.map(|kind| kind.to_string()).join(", "))]
pub struct MemoryKindError {
    given: String,
}

// === impl MemoryKind ===

impl MemoryKind {
    const ALL: [Self; 6] = [
        Self::Episodic,
        Self::Semantic,
        Self::Preference,
        Self::ProjectState,
        Self::WorkingSummary,
        Self::ProceduralObservation,
    ];

    /// Returns how important a memory of this kind is, from 0 to 1, as in the Python original.
    fn importance(self) -> f32 {
        match self {
            Self::Episodic => 0.5,
            Self::Semantic => 0.82,
            Self::Preference | Self::WorkingSummary => 0.9,
            Self::ProjectState => 0.88,
            Self::ProceduralObservation => 0.8,
        }
    }
}

impl FromStr for MemoryKind {
    type Err = MemoryKindError;

    fn from_str(name: &str) -> Result<Self, MemoryKindError> {
        let kind = Self::ALL.into_iter().find(|kind| kind.to_string() == name);
        kind.ok_or_else(|| MemoryKindError {
            given: name.to_owned(),
        })
    }
}

display_as_serde!(MemoryKind);

// === impl Memory ===

impl Memory {
    pub fn is_active(&self) -> bool {
        self.state == MemoryState::Active
    }

    pub fn is_pinned(&self) -> bool {
        self.importance >= PINNED
    }

    fn is_replaced_by(&self, id: &str) -> bool {
        matches!(&self.state, MemoryState::Superseded { superseded_by } if superseded_by == id)
    }
}

// === impl MemoryScope ===

impl From<String> for MemoryScope {
    fn from(name: String) -> Self {
        Self::new(&name)
    }
}

impl MemoryScope {
    /// Reads a name. A part of the form `session:ID` is left out, as in the Python original, because memories outlive
    /// sessions. An empty name is `default`.
    pub fn new(name: &str) -> Self {
        let name = name.replace(char::is_control, " ");
        let parts = name.split('|').map(str::trim);
        let parts: Vec<&str> = parts
            .filter(|part| !part.is_empty() && !part.starts_with("session:"))
            .collect();
        if parts.is_empty() {
            return Self(DEFAULT_SCOPE.to_owned());
        }
        let name = parts.join("|");
        if name.chars().count() <= MAX_SCOPE {
            return Self(name);
        }
        let hash = blake3::hash(name.as_bytes()).to_hex();
        let start: String = name.chars().take(MAX_SCOPE - HASH_DIGITS - 1).collect();
        Self(format!("{start}~{}", &hash[..HASH_DIGITS]))
    }

    /// The scope of a request: the one that it names, else that of its user and workspace, or `None` if it names none.
    pub fn of_request(
        scope: Option<&str>,
        user: Option<&str>,
        workspace: Option<&str>,
    ) -> Option<Self> {
        let [scope, user, workspace] = [scope, user, workspace]
            .map(|name| name.map(str::trim).filter(|name| !name.is_empty()));
        let name = match (scope, user, workspace) {
            (Some(scope), ..) => scope.to_owned(),
            (None, Some(user), Some(workspace)) => format!("user:{user}|workspace:{workspace}"),
            (None, None, Some(workspace)) => format!("workspace:{workspace}"),
            (None, Some(user), None) => format!("user:{user}"),
            (None, None, None) => return None,
        };
        Some(Self::new(&name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryScope;

    #[test]
    fn scopes_are_named_as_in_the_original() {
        for (scope, user, workspace, expected) in [
            (None, None, Some(" "), None),
            (Some("mine"), Some("a"), None, Some("mine")),
            (None, Some("a"), Some("b"), Some("user:a|workspace:b")),
            (None, None, Some("b"), Some("workspace:b")),
            (Some("default|session:x"), None, None, Some("default")),
            (Some("a\nb|session:x"), None, None, Some("a b")),
        ] {
            let named = MemoryScope::of_request(scope, user, workspace);
            assert_eq!(named.as_ref().map(MemoryScope::as_str), expected);
        }
        assert_eq!(MemoryScope::new(""), MemoryScope::default());
    }

    #[test]
    fn a_long_scope_is_shortened_and_stays_different() {
        let long = |end: &str| MemoryScope::new(&format!("user:{}{end}", "é".repeat(300)));
        let (one, other) = (long("a"), long("b"));
        assert_ne!(one, other);
        assert_eq!(one.as_str().chars().count(), super::MAX_SCOPE);
        assert_eq!(MemoryScope::new(one.as_str()), one, "as it is in a file");
    }
}
