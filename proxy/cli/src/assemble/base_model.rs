//! The policy model without its adapter, asked as a judge model is: it gets better by nothing that it says.

use futures_util::future::BoxFuture;
use metaclaw_chat::{Message, Span};
use metaclaw_learner::{Ask, AskFailed};
use metaclaw_llm::{AskParams, ChatClient, LlmConfig};

use crate::compare::{BASE, PolicyAddress};

/// It is asked straight at its server, beside the gateway: no turn is kept, no lesson put in. It costs time and no
/// tokens of anybody's.
#[derive(Debug)]
pub(super) struct BaseModel {
    pub(super) http: reqwest::Client,
    /// Changes when the trainer is started again.
    pub(super) address: PolicyAddress,
    pub(super) params: AskParams,
    /// For one answer.
    pub(super) timeout: Span,
}

// === impl BaseModel ===

impl BaseModel {
    async fn try_ask(&self, messages: &[Message]) -> anyhow::Result<String> {
        let config = LlmConfig {
            timeout: self.timeout,
            ..self.address.config(BASE)?
        };
        let client = ChatClient::new(config, self.http.clone())?;
        Ok(client.ask(messages, self.params.clone()).await?.text)
    }
}

impl Ask for BaseModel {
    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        Box::pin(async move {
            self.try_ask(messages).await.map_err(|error| AskFailed {
                why: format!("{error:#}"),
            })
        })
    }
}
