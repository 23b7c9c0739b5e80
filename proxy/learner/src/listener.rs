//! Chooses the model that detects wishes in a message, if the judge is not a model that can do so.

use std::sync::Arc;

use metaclaw_skills::{Heard, Question};
use tokio::sync::OnceCell;

use crate::judge::{Ask, AskFailed};

/// Messages for a trial of the policy model, which must say correctly whether each contains a wish before it gets the
/// owner's.
const TRIAL: [(&str, bool); 8] = [
    ("From now on answer me in one sentence.", true),
    ("Make the save button always visible.", false),
    ("以后别给我用表情符号了", true),
    ("把这句翻成英文：以后请随手关门", false),
    ("Never send an email before I have read it.", true),
    ("I never eat breakfast. Is that unhealthy?", false),
    ("跟我说话直接点，客套话都省了", true),
    ("这次简单说，我在地铁上", false),
];

/// A model that detects wishes in a message.
#[derive(Debug)]
pub enum Listener {
    /// A model that the owner configured for chats, and that needs no trial.
    Model(Arc<dyn Ask>),
    /// The policy model, which may be small, and is used only after it has passed a trial.
    Policy {
        model: Arc<dyn Ask>,
        /// Whether it has passed; unknown until it has answered.
        passed: OnceCell<bool>,
    },
}

// === impl Listener ===

impl Listener {
    /// Creates a listener with the policy model, which still has to pass its trial.
    pub fn policy(model: Arc<dyn Ask>) -> Self {
        Self::Policy {
            model,
            passed: OnceCell::new(),
        }
    }

    pub(crate) async fn able(&self) -> Option<&dyn Ask> {
        match self {
            Self::Model(model) => Some(&**model),
            Self::Policy { model, passed } => {
                let passed = passed.get_or_try_init(|| passes(&**model)).await;
                passed.is_ok_and(|passed| *passed).then_some(&**model)
            }
        }
    }
}

async fn passes(model: &dyn Ask) -> Result<bool, AskFailed> {
    for (text, has_wish) in TRIAL {
        let Some(question) = Question::new(text) else {
            continue;
        };
        let answer = model.ask(&question.messages()).await?;
        let heard = question.read(&answer).unwrap_or_default();
        let hears = heard.iter().any(|one| matches!(one, Heard::Wish { .. }));
        if hears != has_wish {
            tracing::info!(
                "the policy model does not tell wishes from tasks: rules hear (set llm.api_key or judge.kind llm for a model that does)"
            );
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::BoxFuture;
    use metaclaw_chat::Message;

    use super::*;

    #[derive(Debug)]
    struct Scripted {
        hears: fn(&str) -> bool,
        n_asked: AtomicUsize,
    }

    impl Ask for Scripted {
        fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
            self.n_asked.fetch_add(1, Ordering::Relaxed);
            let asked = messages[1].text().into_owned();
            let answer = if (self.hears)(&asked) {
                "wish 1: so be it"
            } else {
                "none"
            };
            Box::pin(async move { Ok(answer.to_owned()) })
        }
    }

    async fn is_able(hears: fn(&str) -> bool) -> (bool, usize) {
        let model = Arc::new(Scripted {
            hears,
            n_asked: AtomicUsize::new(0),
        });
        let listener = Listener::policy(Arc::<Scripted>::clone(&model));
        let first = listener.able().await.is_some();
        assert_eq!(listener.able().await.is_some(), first);
        (first, model.n_asked.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_policy_model_is_asked_once_it_has_told_wishes_from_tasks() {
        let tells = |asked: &str| {
            ["From now on", "以后别给我", "Never send", "跟我说话"]
                .iter()
                .any(|wish| asked.contains(wish))
        };
        assert_eq!(is_able(tells).await, (true, TRIAL.len()));
        // Small models find a wish in everything, or in nothing.
        assert_eq!(is_able(|_| true).await, (false, 2));
        assert_eq!(is_able(|_| false).await, (false, 1));
    }
}
