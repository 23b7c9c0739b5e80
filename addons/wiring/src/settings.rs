//! The keys that make an agent use the proxy, file by file.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{
    files,
    format::Format,
    keys::{self, KeyToSet},
    outcome::WiringError,
    target::Target,
};

/// The keys to set in the files of an agent.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) files: Vec<FileSettings>,
    /// What OpenClaw asks today.
    pub(crate) asks: Option<String>,
    /// The key in OpenClaw's own settings. [`Self::by_hand`] masks it.
    pub(crate) own_key: Option<String>,
    /// Sentences for the agent's owner.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct FileSettings {
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    pub(crate) keys_to_set: Vec<KeyToSet>,
}

/// Returns the values of a file, or null if it does not exist.
pub(crate) fn read(path: &Path, format: Format) -> Result<Value, WiringError> {
    let bytes = files::read(path).map_err(files::io_error(path))?;
    let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default());
    format.values(&text).map_err(|error| WiringError::Unread {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

// === impl Settings ===

impl Settings {
    /// Returns each file's name and the text that a person would write into an empty file. Keys are masked.
    pub fn by_hand(&self, target: &Target) -> String {
        let files = self.files.iter().map(|file| {
            let text = keys::apply(file.format, "", &file.keys_to_set)
                .map_or_else(|error| error.to_string(), |applied| applied.0);
            let text = text
                .trim_end()
                .replace('\n', "\n  ")
                .replace("\n  \n", "\n\n");
            format!("{}:\n  {text}", file.path.display())
        });
        let mut shown = files.collect::<Vec<_>>().join("\n");
        if let Some(key) = &target.key {
            shown = shown.replace(key.expose(), "(the proxy's key)");
        }
        match &self.own_key {
            Some(key) => shown.replace(key, "(its own key)"),
            None => shown,
        }
    }
}
