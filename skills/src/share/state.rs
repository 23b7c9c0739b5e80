//! `share.json` in the library's folder: this home's name in shares, what it shares, and what it has seen of others.

use std::{collections::BTreeMap, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    file::{MAX_JOURNAL, read_text, write_text},
    journal::JournalError,
    writer::WriterId,
};

const FILE: &str = "share.json";

/// What this home remembers of sharing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ShareState {
    /// This home's name, made at the first use.
    pub(super) writer: Option<WriterId>,
    /// The serial number of its present index.
    pub(super) serial: u64,
    /// What it shares, by `<agent>/<name>`.
    pub(super) published: BTreeMap<String, Published>,
    /// The highest serial number of each home that was signed with our key.
    pub(super) seen: BTreeMap<WriterId, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Published {
    pub(super) digest: String,
    /// When it was last changed, in Unix milliseconds.
    pub(super) at_ms: u64,
}

// === impl ShareState ===

impl ShareState {
    pub(super) fn read(dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join(FILE);
        let read = match read_text(&path, MAX_JOURNAL) {
            Ok(text) => serde_json::from_str(&text).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        };
        read.map_err(|source| JournalError { path, source })
    }

    pub(super) fn write(&self, dir: &Path) -> Result<(), JournalError> {
        let path = dir.join(FILE);
        let text = serde_json::to_string_pretty(self).map_err(io::Error::from);
        let written = text.and_then(|text| write_text(&path, &(text + "\n")));
        written.map_err(|source| JournalError { path, source })
    }
}
