//! Texts as ids.

use metaclaw_trainer_api::{BackendError, wire::TokenizeRequest};
use metaclaw_turns::Turn;
use serde_json::{Map, Value};

use super::server::PolicyModel;

// === impl PolicyModel ===

impl PolicyModel {
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

    async fn render_with(
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

    /// Messages in the place of a turn's own, with its tools and the variables that it has for the chat template.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn render_for(
        &self,
        turn: &Turn,
        messages: Vec<Value>,
    ) -> Result<Vec<u32>, BackendError> {
        let request = &turn.request;
        let variables = request.params.get("chat_template_kwargs");
        let variables = variables.and_then(Value::as_object);
        let variables = variables.cloned().unwrap_or_default();
        let tools = request.tools.as_deref().cloned();
        self.render_with(messages, tools, variables).await
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
