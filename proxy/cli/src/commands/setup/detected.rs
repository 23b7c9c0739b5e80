//! What the agent itself is set to: the answers that are preset where the settings say nothing.

use metaclaw_chat::Secret;

use crate::environment::Environment;

/// The model that an agent asks today.
#[derive(Debug, Clone)]
pub(super) struct Detected {
    /// The agent, as people call it.
    pub agent: String,
    /// As in `llm.provider`, where it is one that has a name there.
    pub provider: Option<String>,
    pub api_base: String,
    pub model: String,
    /// Its key; none where the agent keeps a login to itself.
    pub key: Option<Secret>,
}

/// Looks at the agents of this machine; none where there is none, or none whose model can be read.
pub(super) fn detect(_environment: &Environment) -> Option<Detected> {
    None
}
