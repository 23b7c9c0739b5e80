//! The record of a wired agent. It is on the disk before the agent's files are changed.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    files,
    format::Format,
    found::Found,
    keys::{Models, SetKey, ValueToSet},
};

const VERSION: u32 = 1;

/// An agent that its owner wired to the proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireRecord {
    version: u32,
    /// The agent's name on the command line, for example `codex`.
    pub agent: String,
    /// The origin of the proxy that it uses, for example `http://127.0.0.1:30000`.
    pub origin: String,
    /// What OpenClaw asked by its own settings when its owner wired it.
    asks: Option<String>,
    /// The changes in its files, made or about to be made. Empty while the files are unchanged.
    pub(crate) files: Vec<FileRecord>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileRecord {
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    /// Hash of the file before the change, or none if it did not exist.
    pub(crate) before: Option<String>,
    pub(crate) after: String,
    pub(crate) copy: PathBuf,
    /// Folders above the file that did not exist before, from the outside in.
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) done: Vec<SetKey>,
}

// === impl WireRecord ===

impl WireRecord {
    pub(crate) fn new(agent: &str, origin: &str, asks: Option<String>) -> Self {
        Self {
            version: VERSION,
            agent: agent.to_owned(),
            origin: origin.to_owned(),
            asks,
            files: Vec::new(),
        }
    }

    /// Returns whether OpenClaw still asks what it asked when its owner wired it.
    pub fn is_of(&self, found: &Found) -> bool {
        self.asks == Some(found.asks())
    }

    /// Returns the model that the agent asks while it is wired, if its own stays the next one.
    pub fn models(&self) -> Option<&Models> {
        let keys = self.files.iter().flat_map(|file| &file.done);
        let mut models = keys.filter_map(|done| match &done.key.value {
            ValueToSet::Model(models) => Some(models),
            ValueToSet::Is(_) | ValueToSet::Own(_) | ValueToSet::First(_) => None,
        });
        models.next()
    }

    pub(crate) fn load(path: &Path) -> io::Result<Option<Self>> {
        let Some(bytes) = files::read(path)? else {
            return Ok(None);
        };
        let of_file = |said: String| io::Error::other(format!("{}: {said}", path.display()));
        let record: Self =
            serde_json::from_slice(&bytes).map_err(|error| of_file(error.to_string()))?;
        match record.version {
            VERSION => Ok(Some(record)),
            other => Err(of_file(format!(
                "version {other} is not known: this program reads version {VERSION}"
            ))),
        }
    }

    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        files::write_private(path, &bytes)
    }
}
