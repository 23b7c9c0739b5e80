//! A migration on its way: what it reads, where it writes, what it has found.

use std::path::PathBuf;

use super::{
    item::{MigratedKind, MigrationItem, MigrationOutcome},
    old_home::OldHome,
};
use crate::home::Home;

/// A migration on its way.
pub(super) struct Migration<'a> {
    pub(super) old: OldHome,
    pub(super) home: &'a Home,
    /// The trainer's folder of the new home.
    pub(super) checkpoints: PathBuf,
    /// Whether anything is written, or only decided.
    pub(super) writes: bool,
    pub(super) items: Vec<MigrationItem>,
}

// === impl Migration ===

impl Migration<'_> {
    pub(super) fn note(
        &mut self,
        kind: MigratedKind,
        name: impl Into<String>,
        outcome: MigrationOutcome,
    ) {
        self.items.push(MigrationItem {
            kind,
            name: name.into(),
            outcome,
        });
    }
}
