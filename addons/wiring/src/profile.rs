//! The trait of an agent whose files are changed key by key.

use std::{fmt::Debug, path::PathBuf};

use serde_json::Value;

use crate::{
    agent::Surroundings,
    files,
    format::Format,
    keys::{self, KeyToSet},
    outcome::WiringError,
    target::Target,
};

/// The agent sends a header of its own that identifies each conversation.
pub(crate) const BY_HEADER: &str = "by a header of its own";
/// The agent sends no identifier, so the proxy compares the messages.
pub(crate) const BY_HISTORY: &str = "by what was said";
pub(crate) const NEXT_START: &str = "at its next start";
/// The agent has no list of fallback models.
pub(crate) const NONE: &str = "none";

/// An agent: where its settings are, and which keys make it use the proxy.
pub trait AgentProfile: Debug + Sync {
    /// The name on the command line, which the agent also sends to the proxy, for example `codex`.
    fn id(&self) -> &'static str;

    /// The name as its makers write it, for example `Claude Code`.
    fn name(&self) -> &'static str;

    /// The file names of its program.
    fn programs(&self) -> &'static [&'static str];

    /// Folders or files that exist if the agent has been used on this machine.
    fn traces(&self, surroundings: &Surroundings) -> Vec<PathBuf>;

    /// Returns the keys that make the agent use `target`.
    ///
    /// # Errors
    ///
    /// Returns [`WiringError`] if a file cannot be read, or if no model name is known.
    fn settings(
        &self,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Settings, WiringError>;

    /// The agent's row in the table of docs/using/agents.md.
    fn facts(&self) -> Facts;
}

/// The keys to set in the files of an agent.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    pub(crate) files: Vec<FileSettings>,
    /// Sentences for the agent's owner.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct FileSettings {
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    pub(crate) keys_to_set: Vec<KeyToSet>,
}

/// The columns of the agent's row in the table.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// The model that the agent uses if the proxy does not answer.
    pub fallback: &'static str,
    /// How the proxy distinguishes the agent's conversations.
    pub session: &'static str,
    /// Which requests the proxy recognises as not written by the owner.
    pub side_calls: &'static str,
    /// When a change takes effect.
    pub takes_effect: &'static str,
    /// The package and version that was tested. None if the profile follows the documentation only.
    pub tested: Option<&'static str>,
}

// === impl Surroundings ===

impl Surroundings {
    /// Returns whether this machine has the agent: its program, or files that it writes when it is used.
    pub fn has(&self, agent: &dyn AgentProfile) -> bool {
        let is_installed = agent.programs().iter().any(|it| self.has_program(it));
        is_installed || agent.traces(self).iter().any(|it| it.exists())
    }
}

// === impl Settings ===

impl Settings {
    pub(crate) fn of(path: PathBuf, format: Format, keys_to_set: Vec<KeyToSet>) -> Self {
        Self {
            files: vec![FileSettings {
                path,
                format,
                keys_to_set,
            }],
            notes: Vec::new(),
        }
    }

    pub(crate) fn and(mut self, path: PathBuf, format: Format, keys_to_set: Vec<KeyToSet>) -> Self {
        self.files.push(FileSettings {
            path,
            format,
            keys_to_set,
        });
        self
    }

    /// Returns each file's name and the text that a person would write into an empty file. The proxy's key is masked.
    pub fn by_hand(&self, target: &Target) -> String {
        let files = self.files.iter().map(|file| {
            let text = keys::apply(file.format, "", &file.keys_to_set)
                .map_or_else(|error| error.to_string(), |it| it.0);
            let text = text
                .trim_end()
                .replace('\n', "\n  ")
                .replace("\n  \n", "\n\n");
            format!("{}:\n  {text}", file.path.display())
        });
        let shown = files.collect::<Vec<_>>().join("\n");
        match &target.key {
            Some(key) => shown.replace(key.expose(), "(the proxy's key)"),
            None => shown,
        }
    }
}

/// Returns a list of headers with this one, once: a wired agent has it already.
pub(crate) fn with_header(others: Option<&str>, separator: &str, own: &str) -> String {
    let name = |header: &str| {
        let name = header.split(':').next().unwrap_or_default();
        name.trim().to_ascii_lowercase()
    };
    let others = others.unwrap_or_default().split(separator);
    let others = others.filter(|it| !it.trim().is_empty() && name(it) != name(own));
    others.chain([own]).collect::<Vec<_>>().join(separator)
}

/// Returns the values of a file, or null if it does not exist.
pub(crate) fn read(path: &std::path::Path, format: Format) -> Result<Value, WiringError> {
    let bytes = files::read(path).map_err(|source| WiringError::Io {
        path: path.to_owned(),
        source,
    })?;
    let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default());
    format.values(&text).map_err(|error| WiringError::Unread {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// Returns the model name that the agent is to send: the one that the proxy uses, or the agent's current one.
pub(crate) fn model(target: &Target, current: Option<&str>) -> Result<String, WiringError> {
    let current = current.filter(|it| !it.is_empty()).map(str::to_owned);
    target.model.clone().or(current).ok_or(WiringError::NoModel)
}
