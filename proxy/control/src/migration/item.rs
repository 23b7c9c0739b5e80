//! One thing that a migration found, and what became of it.

use serde::Serialize;

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MigratedKind {
    Setting,
    /// A provider's key or token.
    Key,
    Skill,
    /// Lines of the history of skills that a model wrote.
    History,
    Turns,
    Adapter,
    /// Another file.
    File,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "why")]
pub enum MigrationOutcome {
    /// It is in the new home now, or would be without `--dry-run`.
    Taken,
    /// The new home has the same already.
    Present,
    /// The new home has another one in its place, which stays. The text says which.
    Kept(String),
    /// It is not taken, for this reason.
    Left(String),
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MigrationItem {
    pub kind: MigratedKind,
    pub name: String,
    #[serde(flatten)]
    pub outcome: MigrationOutcome,
}

// === impl MigratedKind ===

impl MigratedKind {
    /// Returns the word that a person reads.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Setting => "setting",
            Self::Key => "key",
            Self::Skill => "skill",
            Self::History => "history",
            Self::Turns => "turns",
            Self::Adapter => "adapter",
            Self::File => "file",
        }
    }
}
