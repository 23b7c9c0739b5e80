//! What a migration found, and what became of it.

use std::path::{Path, PathBuf};

use metaclaw_chat::display_as_serde;
use serde::Serialize;

/// What became of everything that was found.
#[derive(Debug, Serialize)]
pub struct MigrationReport {
    pub from: PathBuf,
    pub to: PathBuf,
    /// Whether nothing was written, because only the report was requested.
    pub dry_run: bool,
    pub items: Vec<MigrationItem>,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MigrationItem {
    pub kind: MigratedKind,
    pub name: String,
    #[serde(flatten)]
    pub outcome: MigrationOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MigratedKind {
    Setting,
    /// A provider's key or token.
    Key,
    Skill,
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

// === impl MigrationReport ===

impl MigrationReport {
    pub(super) fn new(from: &Path, to: &Path, dry_run: bool) -> Self {
        Self {
            from: from.to_owned(),
            to: to.to_owned(),
            dry_run,
            items: Vec::new(),
        }
    }

    pub(super) fn note(
        &mut self,
        kind: MigratedKind,
        name: impl Into<String>,
        outcome: MigrationOutcome,
    ) {
        let name = name.into();
        self.items.push(MigrationItem {
            kind,
            name,
            outcome,
        });
    }
}

display_as_serde!(MigratedKind);
