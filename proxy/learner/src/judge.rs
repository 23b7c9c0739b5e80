//! Who judges, and how a model is asked for it.

use std::{fmt, sync::Arc};

use futures_util::future::{BoxFuture, join_all};
use metaclaw_chat::{Message, Verdict, Vote};
use metaclaw_reward::{Evidence, Rules, prompt, verdict, vote};

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

/// What a verdict may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Price {
    /// Rules alone.
    Nothing,
    /// One vote where no rule fits.
    OneVote,
    /// The configured votes where no rule fits.
    Majority,
}

/// Why there is no verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoVerdict {
    /// No rule fits, and no model was asked.
    NotAsked,
    /// The model's answers were no votes.
    NoVote,
}

// === impl Judge ===

impl Judge {
    /// Nobody judges.
    pub fn nobody() -> Self {
        Self::Rules(Rules::default())
    }

    /// The model that can be asked, for verdicts and for what rules cannot hear.
    pub(crate) fn model(&self) -> Option<&dyn Ask> {
        match self {
            Self::Rules(_) => None,
            Self::Model { model, .. } => Some(&**model),
        }
    }

    /// The rules, which come before any model.
    pub(crate) fn rules(&self) -> &Rules {
        match self {
            Self::Rules(rules) | Self::Model { rules, .. } => rules,
        }
    }

    /// Whether anybody judges at this price: where nobody does turns wait, and are judged once somebody does.
    pub(crate) fn judges(&self, price: Price) -> bool {
        match self {
            Self::Rules(rules) => !rules.is_empty(),
            Self::Model { rules, .. } => !rules.is_empty() || price != Price::Nothing,
        }
    }

    /// The verdict, or why there is none: for good, or until somebody else judges.
    pub(crate) async fn verdict(
        &self,
        evidence: &Evidence,
        price: Price,
    ) -> Result<Result<Verdict, NoVerdict>, AskFailed> {
        let (rules, model) = match self {
            Self::Rules(rules) => (rules, None),
            Self::Model {
                rules,
                model,
                votes,
            } => (rules, price.votes(*votes).map(|votes| (&**model, votes))),
        };
        if let Some(verdict) = rules.judge(evidence) {
            return Ok(Ok(verdict));
        }
        let Some((model, votes)) = model else {
            return Ok(Err(NoVerdict::NotAsked));
        };
        let votes = ask_votes(model, evidence, votes).await?;
        Ok(verdict::tally(&votes).ok_or(NoVerdict::NoVote))
    }
}

// === impl Price ===

impl Price {
    /// How many votes are asked for, of those configured.
    fn votes(self, configured: usize) -> Option<usize> {
        match self {
            Self::Nothing => None,
            Self::OneVote => Some(1),
            Self::Majority => Some(configured.max(1)),
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
