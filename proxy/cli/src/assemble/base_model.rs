//! The policy model without its adapter, asked as a judge model is: it gets better by nothing that it says.

use futures_util::future::BoxFuture;
use metaclaw_chat::{Message, Span};
use metaclaw_control::compare::{BASE, PolicyAddress};
use metaclaw_learner::{Ask, AskFailed};
use metaclaw_llm::{AskParams, ChatClient, LlmConfig};
use metaclaw_settings::{Policy, address::host};

use super::whole_answer;

/// It is asked straight at its server, beside the gateway: no turn is kept, no lesson put in. It costs time, and at a
/// provider its tokens.
#[derive(Debug)]
pub(super) struct UnadaptedModel {
    pub(super) http: reqwest::Client,
    /// Changes when the trainer is started again.
    pub(super) address: PolicyAddress,
    pub(super) params: AskParams,
    pub(super) timeout: Span,
    /// How it is called where its address is one of this process ([`called`]).
    pub(super) called: Option<String>,
}

/// The name of a provider's model, whose chats are answered at an address that its owner does not know.
pub(super) fn called(policy: &Policy) -> Option<String> {
    match policy {
        Policy::Cloud(cloud) => Some(format!("{} at {}", cloud.model, host(&cloud.url))),
        Policy::None | Policy::Local { .. } | Policy::Remote { .. } => None,
    }
}

// === impl UnadaptedModel ===

impl UnadaptedModel {
    async fn try_ask(&self, messages: &[Message]) -> anyhow::Result<String> {
        let config = LlmConfig {
            timeout: self.timeout,
            ..self.address.config(BASE)?
        };
        let client = ChatClient::new(config, self.http.clone())?;
        Ok(whole_answer::ask(&client, messages, &self.params).await?.1)
    }

    fn in_words(&self, error: &str) -> String {
        match (&self.called, &self.address.url) {
            (Some(called), Some(url)) => error
                .replace(&format!("{url}/v1/chat/completions"), called)
                .replace(url, called),
            _ => error.to_owned(),
        }
    }
}

impl Ask for UnadaptedModel {
    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        Box::pin(async move {
            let answer = self.try_ask(messages).await;
            answer.map_err(|error| AskFailed {
                why: self.in_words(&format!("{error:#}")),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_model_and_no_address_of_this_process() {
        let url = "http://127.0.0.1:33177";
        let base = |called: Option<&str>| UnadaptedModel {
            http: metaclaw_llm::loopback_client().unwrap(),
            address: PolicyAddress {
                url: Some(url.to_owned()),
                trainer: None,
                key: None,
            },
            params: AskParams::default(),
            timeout: Span::secs(60),
            called: called.map(str::to_owned),
        };
        let error = format!("{url}/v1/chat/completions did not answer within 60 s");
        let said = base(Some("Qwen/Qwen3-8B at tinker.example")).in_words(&error);
        assert_eq!(
            said,
            "Qwen/Qwen3-8B at tinker.example did not answer within 60 s"
        );
        assert_eq!(base(None).in_words(&error), error);
    }
}
