//! What an agent's configuration says.

use std::path::PathBuf;

use metaclaw_chat::Secret;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::Agent;

/// The model that an agent asks, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Whose configuration it is.
    pub agent: Agent,
    pub file: PathBuf,
    /// The agent's own name of the provider, as in `openai`.
    pub provider: String,
    /// The provider's name of the model, as in `gpt-5.2`.
    pub model: String,
    /// The provider's address, as the agent has it.
    pub base_url: String,
    /// The API that the agent speaks to it.
    pub api: Api,
    pub credential: Credential,
    /// What else a person should know, a sentence each.
    pub notes: Vec<String>,
    /// The provider's entry and the model's in the agent's file; null where it has none.
    pub(crate) entry: Value,
    pub(crate) model_entry: Value,
}

/// A chat API that we relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Api {
    OpenaiCompletions,
    OpenaiResponses,
    AnthropicMessages,
}

/// What opens the provider.
#[derive(Debug, Clone, PartialEq)]
pub enum Credential {
    /// A key that could be read.
    Key {
        key: Secret,
        /// Where it stood, in words that end "from ..".
        from: String,
    },
    /// A reference that the agent alone can follow: what it sends is passed on, and no key is ours.
    Reference(Value),
    /// A login that the agent keeps to itself: what it sends is passed on, and no key is ours.
    Login,
}

/// Why no model can be read from a configuration that is there.
#[derive(Debug, thiserror::Error)]
pub enum DetectError {
    /// The file, or one that it includes, cannot be read.
    #[error("{}: {message}", path.display())]
    Unreadable { path: PathBuf, message: String },
    /// No primary model stands in it.
    #[error("{} names no model (agents.defaults.model.primary)", path.display())]
    NoModel { path: PathBuf },
    /// It asks a proxy by our name already, and no record says what was there before.
    #[error(
        "{} asks the provider {provider} already, which this MetaClaw did not write (an older one, or somebody by hand): its own model stands nowhere",
        path.display()
    )]
    ByAnother { path: PathBuf, provider: String },
    /// The API is one that we do not relay.
    #[error("{}: {provider} is asked in {api}, which MetaClaw does not relay", path.display())]
    Api {
        path: PathBuf,
        provider: String,
        /// The API, as it stands there.
        api: String,
    },
    /// Nothing says where the provider is.
    #[error("{}: the address of {provider} stands nowhere (models.providers.{provider}.baseUrl)", path.display())]
    NoAddress { path: PathBuf, provider: String },
}

// === impl Api ===

impl Api {
    /// As OpenClaw writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenaiCompletions => "openai-completions",
            Self::OpenaiResponses => "openai-responses",
            Self::AnthropicMessages => "anthropic-messages",
        }
    }

    /// The one of this name.
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
