//! Texts as ids.

use metaclaw_trainer_api::{BackendError, wire::TokenizeRequest};
use serde_json::{Map, Value};

use super::server::Policy;

// === impl Policy ===

impl Policy {
    /// A conversation as ids, up to where the assistant begins.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn render(
        &self,
        messages: Vec<Value>,
        tools: Option<Value>,
    ) -> Result<Vec<u32>, BackendError> {
        self.render_with(messages, tools, Map::new()).await
    }

    /// The same with variables of the chat template.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn render_with(
        &self,
        messages: Vec<Value>,
        tools: Option<Value>,
        chat_template_kwargs: Map<String, Value>,
    ) -> Result<Vec<u32>, BackendError> {
        let request = TokenizeRequest {
            tools,
            chat_template_kwargs,
            ..TokenizeRequest::messages(messages)
        };
        Ok(self.backend.tokenize(request).await?.tokens)
    }

    /// A text as ids, without the marks of a conversation around it.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn encode(&self, text: &str) -> Result<Vec<u32>, BackendError> {
        let request = TokenizeRequest::text(text);
        Ok(self.backend.tokenize(request).await?.tokens)
    }
}
