//! A model that is asked for learning, within the token budget of the day.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use metaclaw_chat::{Message, Usage, now_ms};
use metaclaw_control::token_budget::TokenBudget;
use metaclaw_learner::{Ask, AskFailed};
use metaclaw_llm::{AskParams, ChatClient};

use super::whole_answer;

/// Letters of a token, about, where a server does not say what it counted.
const LETTERS: usize = 4;

/// A model that is asked within the budget.
#[derive(Debug)]
pub(super) struct BudgetedModel {
    pub(super) client: ChatClient,
    pub(super) params: AskParams,
    pub(super) budget: Arc<TokenBudget>,
}

fn tokens(usage: &Usage) -> u64 {
    usage.prompt_tokens.saturating_add(usage.completion_tokens)
}

impl Ask for BudgetedModel {
    fn name(&self) -> Option<&str> {
        Some(self.client.model())
    }

    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        Box::pin(async move {
            if !self.budget.allows() {
                return Err(AskFailed {
                    why: format!(
                        "today's budget for learning is spent ({} tokens, budget.*); it begins anew at midnight UTC",
                        self.budget.spend(now_ms()).limit
                    ),
                });
            }
            let asked = whole_answer::ask(&self.client, messages, &self.params).await;
            let (answers, said) = asked.map_err(|error| {
                self.budget.failed();
                AskFailed {
                    why: error.to_string(),
                }
            })?;
            for answer in answers {
                let counted = answer.usage.as_ref().map(tokens);
                let used = counted.unwrap_or_else(|| about(messages, &answer.text));
                self.budget.answered(used).await;
            }
            Ok(said)
        })
    }
}

/// Tokens of a question and its answer, by their length.
fn about(messages: &[Message], answer: &str) -> u64 {
    let asked: usize = messages.iter().map(|it| it.text().len()).sum();
    u64::try_from((asked + answer.len()) / LETTERS).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use metaclaw_llm::{BudgetConfig, LlmConfig, http_client};
    use metaclaw_turns::{TurnLog, TurnsConfig};

    use super::*;

    #[tokio::test]
    async fn nobody_is_asked_once_it_is_spent() {
        let folder = tempfile::tempdir().unwrap();
        let log = TurnLog::open(&folder.path().join("turns"), &TurnsConfig::default()).unwrap();
        let config = BudgetConfig {
            share: 0.05,
            tokens_per_day: 0,
        };
        let file = folder.path().join("spend.json");
        let budget = Arc::new(TokenBudget::open(config, file, log.clone()));
        let config = LlmConfig {
            url: "http://127.0.0.1:9/v1".to_owned(),
            ..LlmConfig::default()
        };
        let http = http_client(&crate::roots::load()).unwrap();
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
}
