//! The target that an agent is pointed at.

use metaclaw_chat::Secret;
use serde_json::{Value, json};

use crate::found::{Api, Found};

/// The key that callers send if the proxy needs none, because OpenClaw uses no provider without a key.
const NO_KEY: &str = "metaclaw";

/// The proxy, as an agent reaches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its origin, for example `http://127.0.0.1:30000`, without a path.
    pub origin: String,
    /// The key that callers must send, or none if they need none.
    pub key: Option<Secret>,
    /// Whether the proxy has its own key for the provider. If not, it passes on the credential that the agent sends.
    pub has_provider_key: bool,
    /// Whether the proxy relays to the provider that the agent asks without it.
    pub is_own: bool,
    /// The model that the proxy asks for, whatever name the agent sends. None if the agent's name is passed on.
    pub model: Option<String>,
    /// The address that the proxy relays to. None if there is not exactly one.
    pub upstream: Option<String>,
    /// The context window that agents are told of the model, in tokens. None if their own files say it.
    pub context_window: Option<u64>,
}

// === impl Target ===

impl Target {
    /// Returns the agent's base URL. The APIs differ in where the path begins.
    pub fn base_url(&self, api: Api) -> String {
        match api {
            Api::OpenaiCompletions | Api::OpenaiResponses => format!("{}/v1", self.origin),
            Api::AnthropicMessages => self.origin.clone(),
        }
    }

    pub(crate) fn shown_key(&self) -> &str {
        self.key.as_ref().map_or(NO_KEY, Secret::expose)
    }

    /// Returns the key that the agent sends: ours, or the provider's if the proxy passes it on.
    pub(crate) fn api_key(&self, found: &Found) -> Value {
        let given = &found.entry["apiKey"];
        match &self.key {
            Some(key) => json!(key.expose()),
            None if self.has_provider_key || given.is_null() => json!(NO_KEY),
            None => given.clone(),
        }
    }
}
