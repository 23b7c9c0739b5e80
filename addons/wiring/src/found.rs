//! The relevant content of an agent's configuration.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use metaclaw_chat::Secret;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The agent's model, and how the agent reaches it.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// OpenClaw's configuration file.
    pub file: PathBuf,
    /// The agent's own name for the provider, for example `openai`.
    pub provider: String,
    /// The provider's name for the model, for example `gpt-5.2`.
    pub model: String,
    /// The provider's address in the agent's configuration.
    pub base_url: String,
    /// The API that the agent uses for it.
    pub api: Api,
    pub credential: Credential,
    /// Notes for the person, one sentence each.
    pub notes: Vec<String>,
    /// The entries of the provider and the model in the agent's file, or null if it has none.
    pub(crate) entry: Value,
    pub(crate) model_entry: Value,
}

/// A chat API that MetaClaw relays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    OpenaiCompletions,
    OpenaiResponses,
    AnthropicMessages,
}

/// How the agent authenticates at the provider.
#[derive(Debug, Clone, PartialEq)]
pub enum Credential {
    /// A readable key.
    Key {
        key: Secret,
        /// Where it was found, in words that begin with "from".
        from: String,
    },
    /// A reference that only the agent can resolve. The proxy passes on what the agent sends, and has no key itself.
    Reference(Value),
    /// A login in the agent's own store. The proxy passes on what the agent sends, and has no key itself.
    Login,
}

/// Why no model can be read from an existing configuration.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct DetectError {
    path: PathBuf,
    why: Box<dyn Error + Send + Sync>,
}

// === impl DetectError ===

impl DetectError {
    pub(crate) fn new(path: &Path, why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            path: path.to_owned(),
            why: why.into(),
        }
    }
}

// === impl Found ===

impl Found {
    /// Returns what OpenClaw asks and where that stands, in words that change when any of it does.
    pub fn asks(&self) -> String {
        let (file, base_url) = (self.file.display(), &self.base_url);
        format!("{}/{} at {base_url} ({file})", self.provider, self.model)
    }
}

// === impl Api ===

impl Api {
    /// Returns the name that OpenClaw uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenaiCompletions => "openai-completions",
            Self::OpenaiResponses => "openai-responses",
            Self::AnthropicMessages => "anthropic-messages",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        [
            Self::OpenaiCompletions,
            Self::OpenaiResponses,
            Self::AnthropicMessages,
        ]
        .into_iter()
        .find(|api| api.as_str() == name)
    }
}
