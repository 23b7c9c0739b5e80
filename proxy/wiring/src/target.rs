//! Where an agent is pointed at.

use metaclaw_chat::Secret;
use serde_json::{Value, json};

use crate::found::{Api, Found};

/// What callers show where the proxy asks for no key: OpenClaw asks no provider without one.
const NO_KEY: &str = "metaclaw";

/// The proxy, as an agent reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `http://127.0.0.1:30000`, without a path.
    pub origin: String,
    /// What callers must show; none where they need no key.
    pub key: Option<Secret>,
    /// Whether the proxy has a key of its own for the provider. Without one, what the agent shows is
    /// passed on.
    pub has_provider_key: bool,
    /// Whether the proxy asks for a model of its own choice, whatever name the agent asks for.
    pub names_model: bool,
}

// === impl Target ===

impl Target {
    /// What an agent is given as base URL: each API has its own idea of where the path begins.
    pub fn base_url(&self, api: Api) -> String {
        match api {
            Api::OpenaiCompletions | Api::OpenaiResponses => format!("{}/v1", self.origin),
            Api::AnthropicMessages => self.origin.clone(),
        }
    }

    /// What the agent shows: our key, or what the provider wants, where we pass it on.
    pub(crate) fn api_key(&self, found: &Found) -> Value {
        let given = &found.entry["apiKey"];
        match &self.key {
            Some(key) => json!(key.expose()),
            None if self.has_provider_key || given.is_null() => json!(NO_KEY),
            None => given.clone(),
        }
    }
}
