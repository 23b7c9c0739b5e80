//! The fields of a task that all tracks have, and its file.

use std::{fs, io, path::PathBuf, time::Duration};

use metaclaw_chat::regular;
use serde::{Deserialize, de::DeserializeOwned};
use smart_default::SmartDefault;

use super::settings::AgentSettings;
use crate::sandbox::SandboxLimits;

pub(super) struct EpisodeStart<'a> {
    pub(super) settings: &'a AgentSettings,
    pub(super) options: TaskOptions,
    pub(super) http: reqwest::Client,
}

/// Settings of a task, beside what the model has to do. They are read apart from a track's own fields, because an error
/// in a flattened struct does not name the field.
#[derive(Debug, Clone, SmartDefault, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct TaskOptions {
    /// The system prompt. Without it, the track's own is used.
    pub(super) system: Option<String>,
    /// The most replies of the model.
    #[default = 16]
    pub(super) max_turns: u32,
    /// The most tokens of one reply.
    #[default = 1024]
    pub(super) max_tokens: u32,
    #[default = 1.0]
    pub(super) temperature: f64,
    /// Exchanges that the model is shown before the task, as examples of how to reply.
    pub(super) earlier: Vec<EarlierExchange>,
    /// Whether replies are asked for as streams.
    pub(super) stream: bool,
    /// The tools are described in the system prompt and not sent with the request: for a model whose chat template
    /// has no place for them.
    pub(super) tools_in_prompt: bool,
    /// The time of one command of the model, in seconds.
    #[default = 30]
    pub(super) command_timeout_s: u32,
    /// The time of the check after the model has ended, in seconds.
    #[default = 60]
    pub(super) check_timeout_s: u32,
    /// The bytes of a command's output that the model sees.
    #[default = 4096]
    pub(super) max_output: usize,
    pub(super) sandbox: SandboxLimits,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EarlierExchange {
    pub(super) user: String,
    pub(super) assistant: String,
}

/// Why a task cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TaskFileError {
    #[error("cannot read the task of {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the task of {} cannot be used: {reason}", path.display())]
    Field { path: PathBuf, reason: String },
}

// === impl TaskOptions ===

impl TaskOptions {
    pub(super) fn command_time(&self) -> Duration {
        Duration::from_secs(self.command_timeout_s.into())
    }

    pub(super) fn check_time(&self) -> Duration {
        Duration::from_secs(self.check_timeout_s.into())
    }

    pub(super) fn turns(&self, settings: &AgentSettings) -> u32 {
        self.max_turns.min(settings.max_turns.unwrap_or(u32::MAX))
    }
}

// === functions ===

/// Reads the task of an agent's settings.
///
/// # Errors
/// If the file cannot be read, or a field is missing or wrong. The error names it.
pub(super) fn read<T: DeserializeOwned>(settings: &AgentSettings) -> Result<T, TaskFileError> {
    let path = || settings.task.clone();
    let text = regular(&settings.task).and_then(fs::read);
    let text = text.map_err(|source| TaskFileError::Read {
        path: path(),
        source,
    })?;
    let mut json = serde_json::Deserializer::from_slice(&text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| TaskFileError::Field {
        path: path(),
        reason: error.to_string(),
    })
}
