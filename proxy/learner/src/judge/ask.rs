//! The interface to a judge model, and the number of votes.

use std::fmt;

use futures_util::future::{BoxFuture, join, join_all};
use metaclaw_chat::{Message, Verdict, Vote};
use metaclaw_reward::{Questions, verdict};

/// A model that can be asked for one answer.
pub trait Ask: fmt::Debug + Send + Sync {
    /// Returns the model's answer to a conversation.
    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>>;
}

/// The model did not answer; the turn waits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the judge did not answer: {why}")]
pub struct AskFailed {
    pub why: String,
}

/// What a verdict may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Price {
    /// Only rules, or the owner's own reward function.
    Nothing,
    /// One vote if no rule fits.
    OneVote,
    /// The configured number of votes if no rule fits.
    Majority,
}

// === impl Price ===

impl Price {
    /// Returns the number of votes, given the configured number.
    pub(super) fn votes(self, configured: usize) -> Option<usize> {
        match self {
            Self::Nothing => None,
            Self::OneVote => Some(1),
            Self::Majority => Some(configured.max(1)),
        }
    }
}

/// Returns the verdict of `m` votes (and of as many hints if these are asked for separately), or `None` if no vote
/// could be read.
pub(super) async fn verdict(
    model: &dyn Ask,
    questions: &Questions,
    m: usize,
) -> Result<Option<Verdict>, AskFailed> {
    let (votes, hints) = join(votes(model, questions, m), hints(model, questions, m)).await;
    Ok(questions.verdict(&votes?, &hints?))
}

/// Asks for votes until the majority is certain: first as many at once as are needed at least, then one by one.
async fn votes(
    model: &dyn Ask,
    questions: &Questions,
    m: usize,
) -> Result<Vec<Option<Vote>>, AskFailed> {
    let (messages, read) = (&questions.score, questions.read_score);
    let first = (0..=m / 2).map(|_| model.ask(messages));
    let answers: Result<Vec<String>, AskFailed> = join_all(first).await.into_iter().collect();
    let mut votes: Vec<_> = answers?.iter().map(|answer| read(answer)).collect();
    while !verdict::decided(&votes, m) {
        votes.push(read(&model.ask(messages).await?));
    }
    Ok(votes)
}

async fn hints(model: &dyn Ask, questions: &Questions, m: usize) -> Result<Vec<String>, AskFailed> {
    let Some(messages) = &questions.hint else {
        return Ok(Vec::new());
    };
    let asked = (0..m).map(|_| model.ask(messages));
    let answers: Result<Vec<String>, AskFailed> = join_all(asked).await.into_iter().collect();
    let read = |answer: &String| Questions::read_hint(answer);
    Ok(answers?.iter().filter_map(read).collect())
}
