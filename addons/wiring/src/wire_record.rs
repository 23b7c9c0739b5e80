//! The record of a wired agent. It is on the disk before the agent's files are changed.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{files, format::Format, keys::SetKey};

const VERSION: u32 = 1;

/// An agent that its owner wired to the proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireRecord {
    version: u32,
    /// The agent's name on the command line, for example `codex`.
    pub agent: String,
    /// The origin of the proxy that it uses, for example `http://127.0.0.1:30000`.
    pub origin: String,
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
    pub(crate) fn new(agent: &str, origin: &str, files: Vec<FileRecord>) -> Self {
        Self {
            version: VERSION,
            agent: agent.to_owned(),
            origin: origin.to_owned(),
            files,
        }
    }

    pub(crate) fn load(path: &Path) -> io::Result<Option<Self>> {
        files::read_record(path, VERSION, |it: &Self| it.version)
    }

    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        files::write_record(path, self)
    }
}
