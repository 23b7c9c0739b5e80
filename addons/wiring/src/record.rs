//! The record of an agent that was pointed at the proxy. It is on the disk before the agent's file is changed.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    files,
    found::Found,
    openclaw::{change::Edit, entry::Entry},
    target::Target,
};

const VERSION: u32 = 1;
const AGENT: &str = "openclaw";

/// An agent whose owner said yes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    /// The agent's id, `openclaw`.
    pub agent: String,
    pub file: PathBuf,
    /// The agent's provider when its owner said yes.
    pub provider: String,
    /// The model's name at that provider.
    pub model: String,
    pub base_url: String,
    /// The change that is in the file now, or is about to be.
    pub(crate) change: Option<Change>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) before: String,
    pub(crate) after: String,
    pub(crate) copy: PathBuf,
    pub(crate) edit: Edit,
}

/// Two names for the same model, as the agent writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Models {
    /// Through the proxy, for example `metaclaw/gpt-5.2`.
    pub ours: String,
    /// Without the proxy, for example `openai/gpt-5.2`.
    pub former: String,
}

// === impl Models ===

impl Models {
    /// Returns the names if the agent were pointed at `target`.
    pub fn planned(found: &Found, target: &Target) -> Self {
        Self::of(&Entry::new(found, target))
    }

    fn of(entry: &Entry) -> Self {
        Self {
            ours: entry.reference(),
            former: entry.former(),
        }
    }
}

// === impl Record ===

impl Record {
    pub(crate) fn new(found: &Found) -> Self {
        Self {
            version: VERSION,
            agent: AGENT.to_owned(),
            file: found.file.clone(),
            provider: found.provider.clone(),
            model: found.model.clone(),
            base_url: found.base_url.clone(),
            change: None,
        }
    }

    /// Returns whether the record is about this model.
    pub fn is_of(&self, found: &Found) -> bool {
        self.file == found.file
            && self.provider == found.provider
            && self.model == found.model
            && self.base_url == found.base_url
    }

    /// Returns the model's names with and without the proxy, while the agent is pointed at it.
    pub fn models(&self) -> Option<Models> {
        let change = self.change.as_ref()?;
        Some(Models::of(&change.edit.entry))
    }

    pub(crate) fn load(path: &Path) -> io::Result<Option<Self>> {
        files::read_record(path, VERSION, |it: &Self| it.version)
    }

    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        files::write_record(path, self)
    }
}
