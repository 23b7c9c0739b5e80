//! Who judges, and how a model is asked for it.

use std::{borrow::Cow, fmt, sync::Arc};

use futures_util::future::{BoxFuture, join_all};
use metaclaw_chat::{Message, Verdict, Vote};
use metaclaw_reward::{Evidence, Rules, prompt, verdict, vote};

use crate::sample::reason;

/// Who judges.
#[derive(Debug, Clone)]
pub enum Judge {
    /// Rules alone.
    Rules(Rules),
    /// Rules first; where none fits, a model, by majority.
    Model {
        /// The rules.
        rules: Rules,
        /// The model.
        model: Arc<dyn Ask>,
        /// Votes for one verdict, at least 1.
        votes: usize,
    },
}

/// A model that can be asked for one answer.
pub trait Ask: fmt::Debug + Send + Sync {
    /// Its answer to a conversation.
    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>>;
}

/// No answer came; the turn waits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the judge did not answer: {why}")]
pub struct AskFailed {
    /// Why not.
    pub why: String,
}

// === impl Judge ===

impl Judge {
    /// Nobody judges.
    pub fn nobody() -> Self {
        Self::Rules(Rules::default())
    }

    /// Who judges where a verdict is of use; where it is of none, rules alone, which cost nothing.
    pub(crate) fn for_use(&self, is_used: bool) -> Cow<'_, Self> {
        match self {
            Self::Model { rules, .. } if !is_used => Cow::Owned(Self::Rules(rules.clone())),
            other => Cow::Borrowed(other),
        }
    }

    /// Whether nobody judges: turns wait, and are judged once somebody does.
    pub(crate) fn is_nobody(&self) -> bool {
        matches!(self, Self::Rules(rules) if rules.is_empty())
    }

    /// The verdict, or why there is none for good.
    pub(crate) async fn verdict(
        &self,
        evidence: &Evidence,
    ) -> Result<Result<Verdict, &'static str>, AskFailed> {
        match self {
            Self::Rules(rules) => Ok(rules.judge(evidence).ok_or(reason::NO_RULE)),
            Self::Model {
                rules,
                model,
                votes,
            } => {
                if let Some(verdict) = rules.judge(evidence) {
                    return Ok(Ok(verdict));
                }
                let votes = ask_votes(&**model, evidence, (*votes).max(1)).await?;
                Ok(verdict::tally(&votes).ok_or(reason::NO_VOTE))
            }
        }
    }
}

/// Asks for votes until they have decided: as many at once as are needed at least, then one by one.
async fn ask_votes(
    model: &dyn Ask,
    evidence: &Evidence,
    m: usize,
) -> Result<Vec<Option<Vote>>, AskFailed> {
    let messages = prompt::judge_messages(evidence);
    let first = (0..=m / 2).map(|_| model.ask(&messages));
    let answers: Result<Vec<String>, AskFailed> = join_all(first).await.into_iter().collect();
    let mut votes: Vec<_> = answers?.iter().map(|answer| vote::read(answer)).collect();
    while !verdict::decided(&votes, m) {
        votes.push(vote::read(&model.ask(&messages).await?));
    }
    Ok(votes)
}

#[cfg(test)]
mod tests;
