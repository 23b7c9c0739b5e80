//! Requests to an environment server.

use std::time::Duration;

use metaclaw_chat::excerpt;
use serde_json::Value;

use super::super::error::AgentError;
use crate::failure;

/// How long the server may take for one action.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that shows a screen and acts on it.
#[derive(Debug)]
pub(super) struct GuiServer {
    http: reqwest::Client,
    address: String,
}

// === impl GuiServer ===

impl GuiServer {
    pub(super) fn new(http: reqwest::Client, address: &str) -> Self {
        Self {
            http,
            address: address.trim_end_matches('/').to_owned(),
        }
    }

    /// Sends a request, and returns the answer. It is never sent twice: an action is not done twice.
    ///
    /// # Errors
    /// If the server is not reached, answers with an error, or with something else than JSON.
    pub(super) async fn post(&self, verb: &str, body: &Value) -> Result<Value, AgentError> {
        let request = self.http.post(format!("{}/{verb}", self.address));
        let answer = async {
            let response = request.json(body).timeout(PATIENCE).send().await?;
            Ok::<_, reqwest::Error>((response.status(), response.bytes().await?))
        };
        let (status, bytes) = answer
            .await
            .map_err(|error| self.wrong(verb, failure::in_words(error)))?;
        let text = String::from_utf8_lossy(&bytes);
        let value: Option<Value> = serde_json::from_slice(&bytes).ok();
        match value {
            Some(value) if status.is_success() => Ok(value),
            Some(value) if value["error"]["message"].is_string() => {
                let words = value["error"]["message"].as_str().unwrap_or_default();
                Err(self.wrong(verb, format!("status {status}: {words}")))
            }
            _ => Err(self.wrong(verb, format!("status {status}: {}", excerpt(&text)))),
        }
    }

    pub(super) fn wrong(&self, verb: &str, words: String) -> AgentError {
        AgentError::Environment {
            url: format!("{}/{verb}", self.address),
            words,
        }
    }
}
