//! What a track's agent is told by its environment.

use std::{ffi::OsString, path::PathBuf};

use metaclaw_chat::Secret;

use crate::sandbox::{SandboxChoice, UnknownSandbox};

/// The model's name in requests, if `METACLAW_MODEL` names none. The proxy asks for the agent's adapter whatever it is.
const MODEL: &str = "policy";

/// The settings of one run of an agent on one task.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// `OPENAI_BASE_URL`: the address of chat completions, up to `/v1`.
    pub base_url: String,
    /// `OPENAI_API_KEY`.
    pub api_key: Secret,
    /// `METACLAW_MODEL`: the name of the model in requests.
    pub model: String,
    /// `METACLAW_TASK`: a JSON file with the task.
    pub task: PathBuf,
    /// `METACLAW_REWARD`: the file to which the agent writes its score.
    pub reward: PathBuf,
    /// `METACLAW_SANDBOX`: the program that separates commands.
    pub sandbox: SandboxChoice,
    /// `METACLAW_MAX_TURNS`: the most replies of the model.
    pub max_turns: Option<u32>,
    /// `METACLAW_GUI_SERVER`: the environment server of the track `gui`. It comes before a task's own.
    pub gui_server: Option<String>,
    /// The folder that relative paths of the task start from.
    pub folder: PathBuf,
}

/// A variable of the environment that is missing or cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AgentSettingsError {
    #[error("{name} is not set: `metaclaw rollout run` sets it for the programs that it starts")]
    Missing { name: &'static str },
    #[error("{name} {value:?} is not allowed: {allowed}")]
    Value {
        name: &'static str,
        value: OsString,
        allowed: &'static str,
    },
    #[error("METACLAW_SANDBOX: {0}")]
    Sandbox(#[from] UnknownSandbox),
}

// === impl AgentSettings ===

impl AgentSettings {
    /// Reads the settings. `variable` returns a variable of the environment.
    ///
    /// # Errors
    /// If a variable is missing, or has a value that is not allowed.
    pub fn from_environment(
        variable: impl Fn(&'static str) -> Option<OsString>,
    ) -> Result<Self, AgentSettingsError> {
        let given = |name| variable(name).filter(|value| !value.is_empty());
        let missing = |name| AgentSettingsError::Missing { name };
        let text = |name| match given(name).map(OsString::into_string) {
            Some(Err(value)) => Err(AgentSettingsError::Value {
                name,
                value,
                allowed: "a text in UTF-8",
            }),
            text => Ok(text.and_then(Result::ok)),
        };
        let needed = |name| text(name)?.ok_or_else(|| missing(name));
        let path = |name| given(name).map(PathBuf::from).ok_or_else(|| missing(name));
        let name = "METACLAW_MAX_TURNS";
        let turns = text(name)?.map(|text| {
            let number = text.parse().ok().filter(|number| *number > 0);
            number.ok_or_else(|| AgentSettingsError::Value {
                name,
                value: text.into(),
                allowed: "a whole number from 1",
            })
        });
        let sandbox = text("METACLAW_SANDBOX")?.map(|text| text.parse());
        Ok(Self {
            base_url: needed("OPENAI_BASE_URL")?,
            api_key: Secret::from(needed("OPENAI_API_KEY")?),
            model: text("METACLAW_MODEL")?.unwrap_or_else(|| MODEL.to_owned()),
            task: path("METACLAW_TASK")?,
            reward: path("METACLAW_REWARD")?,
            sandbox: sandbox.transpose()?.unwrap_or_default(),
            max_turns: turns.transpose()?,
            gui_server: text("METACLAW_GUI_SERVER")?,
            folder: PathBuf::from("."),
        })
    }
}
