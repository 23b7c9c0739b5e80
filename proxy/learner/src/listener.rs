//! Chooses the model that detects wishes in a message, if the judge is not a model that can do so.

use std::sync::Arc;

use metaclaw_skills::{Heard, Question};
use tokio::sync::OnceCell;

use crate::judge::{Ask, AskFailed};

/// Messages for a trial of the policy model, which must say correctly whether each contains a wish before it gets the
/// owner's. Rules are sure about none of them.
const TRIAL: [(&str, bool); 8] = [
    ("Your messages are so long that I fall asleep.", true),
    ("The save button must always be visible.", false),
    ("我看消息都在手表上", true),
    ("我昨天去了北京。", false),
    ("Always run the tests before committing", true),
    ("I never eat breakfast.", false),
    ("我眼睛不好，字多了看不清", true),
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
    let Some(question) = Question::new(TRIAL.map(|(text, _)| text)) else {
        return Ok(false);
    };
    let answer = model.ask(&question.messages()).await?;
    let read = question.read(&answer).unwrap_or_default();
    let is_wish = |heard: &Heard| matches!(heard, Heard::Wish { .. });
    let hears = read.iter().map(|heard| heard.iter().flatten().any(is_wish));
    let passes = hears.eq(TRIAL.map(|(_, has_wish)| has_wish));
    if !passes {
        tracing::info!(
            "the policy model does not tell wishes from tasks: rules hear (set llm.api_key or judge.kind llm for a model that does)"
        );
    }
    Ok(passes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::BoxFuture;
    use metaclaw_chat::Message;
    use metaclaw_skills::is_doubtful;

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
            let heard = (1..)
                .zip(asked.lines())
                .filter(|(_, line)| (self.hears)(line));
            let lines: Vec<String> = heard.map(|(n, _)| format!("wish {n}: so be it")).collect();
            Box::pin(async move { Ok(lines.join("\n") + "\nnone") })
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
            ["Your messages", "手表", "Always run", "字多了"]
                .iter()
                .any(|wish| asked.contains(wish))
        };

        assert_eq!(is_able(tells).await, (true, 1));
        // Small models find a wish in everything, or in nothing.
        assert_eq!(is_able(|_| true).await, (false, 1));
        assert_eq!(is_able(|_| false).await, (false, 1));
        assert!(TRIAL.iter().all(|(text, _)| is_doubtful(text)));
    }
}
