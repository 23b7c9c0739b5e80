//! The models and services that learning asks.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::StatusCode;
use metaclaw_chat::{Message, Secret, Span, Usage, now_ms, without_thinking};
use metaclaw_control::{
    compare::{BASE, PolicyAddress},
    token_budget::TokenBudget,
};
use metaclaw_learner::{Ask, AskFailed, Post, PostFailed};
use metaclaw_llm::{
    Answer, AskError, AskParams, ChatClient, LlmConfig, PostClient, http_client, loopback_client,
};
use metaclaw_settings::address::is_here;
use rustls::RootCertStore;
use serde_json::Value;

/// The room for an answer in tokens. It is only a bound: a model that does not think ends before it.
const ROOM: u32 = 4_096;
/// How much more room the second request has.
const MORE: u32 = 4;
/// Letters of a token, about, where a server does not say what it counted.
const LETTERS: usize = 4;

#[derive(Debug)]
pub(super) struct BudgetedModel {
    pub(super) client: ChatClient,
    pub(super) params: AskParams,
    pub(super) budget: Arc<TokenBudget>,
}

/// The policy model without its adapter: it gets better by nothing that it says.
///
/// It is asked straight at its server, beside the gateway: no turn is kept, no lesson put in. It costs time, and at a
/// provider its tokens.
#[derive(Debug)]
pub(super) struct UnadaptedModel {
    pub(super) policy: PolicyModel,
    pub(super) params: AskParams,
    pub(super) timeout: Span,
}

#[derive(Debug, Clone)]
pub(super) struct PolicyModel {
    pub(super) http: reqwest::Client,
    pub(super) address: PolicyAddress,
    /// What a provider's model is called. Its chats are answered at an address that its owner does not know.
    pub(super) called: Option<String>,
}

/// A service that answers JSON with JSON: a reward function, an external teacher.
#[derive(Debug)]
pub(super) struct Function(PostClient);

pub(super) fn ask_params(temperature: f64) -> AskParams {
    AskParams {
        temperature: Some(temperature),
        max_tokens: Some(ROOM),
        ..AskParams::default()
    }
}

// === impl BudgetedModel ===

impl Ask for BudgetedModel {
    fn name(&self) -> Option<&str> {
        Some(self.client.model())
    }

    fn may_ask(&self) -> BoxFuture<'_, bool> {
        Box::pin(self.budget.may_ask())
    }

    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        Box::pin(async move {
            if !self.budget.may_ask().await {
                return Err(AskFailed {
                    why: format!(
                        "today's budget for learning is spent ({} tokens, budget.*); it begins anew at midnight UTC",
                        self.budget.spend(now_ms()).limit
                    ),
                });
            }
            let asked = ask_until_whole(&self.client, messages, &self.params).await;
            let (answers, text) = asked.map_err(|error| {
                self.budget.failed();
                AskFailed {
                    why: error.to_string(),
                }
            })?;
            for answer in answers {
                let counted = answer.usage.as_ref().map(tokens);
                let used = counted.unwrap_or_else(|| estimate(messages, &answer.text));
                self.budget.answered(used).await;
            }
            Ok(text)
        })
    }
}

fn tokens(usage: &Usage) -> u64 {
    usage.prompt_tokens.saturating_add(usage.completion_tokens)
}

fn estimate(messages: &[Message], answer: &str) -> u64 {
    let asked: usize = messages.iter().map(|message| message.text().len()).sum();
    u64::try_from((asked + answer.len()) / LETTERS).unwrap_or(u64::MAX)
}

// === impl UnadaptedModel ===

impl UnadaptedModel {
    async fn try_ask(&self, messages: &[Message]) -> anyhow::Result<String> {
        let config = LlmConfig {
            timeout: self.timeout,
            ..self.policy.address.config(BASE)?
        };
        let client = ChatClient::new(config, self.policy.http.clone())?;
        Ok(ask_until_whole(&client, messages, &self.params).await?.1)
    }

    fn in_words(&self, error: &str) -> String {
        match (&self.policy.called, &self.policy.address.url) {
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

// === impl Function ===

impl Function {
    pub(super) fn new(
        roots: &Arc<RootCertStore>,
        url: &str,
        key: Option<&Secret>,
        timeout: Span,
    ) -> anyhow::Result<Self> {
        // Services on this machine are reached without a proxy.
        let http = if url.starts_with("http://") && is_here(url) {
            loopback_client()?
        } else {
            http_client(roots)?
        };
        Ok(Self(PostClient::new(http, url, key, timeout)?))
    }
}

impl Post for Function {
    fn post<'a>(&'a self, body: &'a Value) -> BoxFuture<'a, Result<String, PostFailed>> {
        Box::pin(async move {
            self.0.post(body).await.map_err(|error| PostFailed {
                was_asked: error.was_asked(),
                why: error.to_string(),
            })
        })
    }
}

/// Asks a model once more, with more room, if its answer was cut: a model that thinks may use all of it for that. Returns
/// the answers, each of which is paid, and the text of the last one without its thinking. The text is empty if both were
/// cut: such an answer is no vote, and nothing is heard in it.
async fn ask_until_whole(
    client: &ChatClient,
    messages: &[Message],
    params: &AskParams,
) -> Result<(Vec<Answer>, String), AskError> {
    let mut answers = vec![client.ask(messages, params.clone()).await?];
    if let Some(text) = answers.iter().find_map(whole) {
        return Ok((answers, text));
    }
    let room = params.max_tokens.map(|room| room.saturating_mul(MORE));
    let more = AskParams {
        max_tokens: room,
        ..params.clone()
    };
    match client.ask(messages, more).await {
        Ok(answer) => answers.push(answer),
        // The model's context has no more room.
        Err(AskError::Status {
            status: StatusCode::BAD_REQUEST,
            ..
        }) => {}
        Err(error) => return Err(error),
    }
    let text = answers.iter().find_map(whole);
    if text.is_none() {
        tracing::warn!(
            model = client.model(),
            room,
            "a model's answer was cut, and is not used"
        );
    }
    Ok((answers, text.unwrap_or_default()))
}

fn whole(answer: &Answer) -> Option<String> {
    if answer.is_cut() {
        return None;
    }
    without_thinking(&answer.text)
}

#[cfg(test)]
mod tests {
    use metaclaw_llm::BudgetConfig;
    use metaclaw_test_kit::{Reply, Request, Server};
    use metaclaw_turns::{TurnLog, TurnsConfig};
    use serde_json::json;

    use super::*;

    fn answer(text: &str, reason: &str) -> Reply {
        let message = json!({ "role": "assistant", "content": text });
        let choice = json!({ "message": message, "finish_reason": reason });
        Reply::json(json!({ "choices": [choice] }).to_string())
    }

    #[tokio::test]
    async fn a_cut_answer_is_asked_for_once_more_with_more_room() {
        let (yes, no, thought) = ("verdict: 1", "verdict: -1", "<think>verdict: 1");
        for (first, second, expected, n_asked) in [
            ((yes, "stop"), ("", "stop"), yes, 1),
            ((no, "length"), (yes, "stop"), yes, 2),
            ((no, "MAX_TOKENS"), (yes, "end_turn"), yes, 2),
            ((no, "length"), (yes, "model_length"), "", 2),
            ((no, "abort"), (yes, "error"), "", 2),
            ((thought, "stop"), (thought, "length"), "", 2),
        ] {
            let server = Server::scripted([answer(first.0, first.1), answer(second.0, second.1)]);
            let config = LlmConfig {
                url: format!("{}/v1", server.url()),
                model: "judge".to_owned(),
                ..LlmConfig::default()
            };
            let client = ChatClient::new(config, loopback_client().unwrap()).unwrap();
            let params = AskParams {
                max_tokens: Some(64),
                ..AskParams::default()
            };
            let asked = ask_until_whole(&client, &[Message::user("?")], &params).await;
            let (answers, said) = asked.unwrap();
            assert_eq!(
                (said.as_str(), answers.len()),
                (expected, n_asked),
                "{first:?}"
            );
            let asked: Vec<String> = server.asked().iter().map(Request::text).collect();
            let rooms = ["\"max_tokens\":64", "\"max_tokens\":256"];
            assert_eq!(asked.len(), n_asked, "{first:?}");
            assert!(
                asked.iter().zip(rooms).all(|(it, room)| it.contains(room)),
                "{asked:?}"
            );
        }
    }

    #[tokio::test]
    async fn nobody_is_asked_once_it_is_spent() {
        let folder = tempfile::tempdir().unwrap();
        let log = TurnLog::open(&folder.path().join("turns"), &TurnsConfig::default()).unwrap();
        let config = BudgetConfig {
            share: 0.05,
            tokens_per_day: 0,
            ..BudgetConfig::default()
        };
        let file = folder.path().join("spend.json");
        let budget = Arc::new(TokenBudget::open(config, file, log.clone()));
        let config = LlmConfig {
            url: "http://127.0.0.1:9/v1".to_owned(),
            ..LlmConfig::default()
        };
        let http = loopback_client().unwrap();
        let model = BudgetedModel {
            client: ChatClient::new(config, http).unwrap(),
            params: AskParams::default(),
            budget: Arc::clone(&budget),
        };
        let error = model.ask(&[Message::user("Hello?")]).await.unwrap_err();
        assert!(
            error.why.contains("budget for learning is spent (0 tokens"),
            "{error}"
        );
        assert_eq!(budget.spend(now_ms()).spent.n_failed, 0);
        log.close().await;
    }

    #[test]
    fn an_error_names_the_model_and_no_address_of_this_process() {
        let url = "http://127.0.0.1:33177";
        let base = |called: Option<&str>| UnadaptedModel {
            policy: PolicyModel {
                http: loopback_client().unwrap(),
                address: PolicyAddress {
                    url: Some(url.to_owned()),
                    trainer: None,
                    key: None,
                },
                called: called.map(str::to_owned),
            },
            params: AskParams::default(),
            timeout: Span::secs(60),
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
