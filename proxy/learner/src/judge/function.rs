//! The owner's reward function: turns are put to it many at once.
//!
//! No task of its own: of those who wait for a score one asks for all of them, when the question before is answered.
//! So one alone is asked about at once, and what comes meanwhile goes together.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::BoxFuture;
use metaclaw_reward::grade::{self, Grade};
use serde_json::Value;
use tokio::sync::oneshot;

use super::ask::AskFailed;

/// The most turns of one question.
pub(super) const MOST_TURNS: usize = 32;
/// And their most bytes, where there are more turns than one: requests repeat long conversations.
const MOST_BYTES: usize = 8 << 20;

/// Puts a question to a reward function, and brings its answer.
pub trait Post: fmt::Debug + Send + Sync {
    /// The body of its answer to this one.
    fn post<'a>(&'a self, body: &'a Value) -> BoxFuture<'a, Result<String, PostFailed>>;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct PostFailed {
    pub why: String,
    /// Whether somebody was there, and refused or failed at what was asked: less of it may pass.
    pub was_asked: bool,
}

/// The owner's reward function.
#[derive(Debug)]
pub struct RewardFunction {
    post: Arc<dyn Post>,
    waiting: Mutex<Vec<WaitingCase>>,
    /// Who has it asks.
    asks: tokio::sync::Mutex<()>,
}

type Graded = Result<Option<Grade>, AskFailed>;

/// A turn that waits for its score.
#[derive(Debug)]
struct WaitingCase {
    turn: Value,
    n_bytes: usize,
    answer: oneshot::Sender<Graded>,
}

// === impl RewardFunction ===

impl RewardFunction {
    /// The one that is asked by `post`.
    pub fn new(post: Arc<dyn Post>) -> Self {
        Self {
            post,
            waiting: Mutex::default(),
            asks: tokio::sync::Mutex::default(),
        }
    }

    /// Its score of a turn; none where it has no opinion.
    pub(super) async fn grade(&self, turn: Value) -> Graded {
        let (answer, mut graded) = oneshot::channel();
        let n_bytes = turn.to_string().len();
        self.waiting().push(WaitingCase {
            turn,
            n_bytes,
            answer,
        });
        loop {
            tokio::select! {
                biased;
                // Whoever asked for it is gone, with its answer.
                graded = &mut graded => return graded.unwrap_or_else(|_| failed("the question was given up")),
                _asks = self.asks.lock() => self.ask(self.take()).await,
            }
        }
    }

    /// The first of those that wait, as many as go together.
    fn take(&self) -> Vec<WaitingCase> {
        let mut waiting = self.waiting();
        waiting.retain(|it| !it.answer.is_closed());
        let mut n_bytes = 0;
        let fits = |it: &&WaitingCase| {
            n_bytes += it.n_bytes;
            n_bytes <= MOST_BYTES
        };
        let n = waiting.iter().take(MOST_TURNS).take_while(fits).count();
        // One that is longer goes alone.
        let n = n.max(1).min(waiting.len());
        waiting.drain(..n).collect()
    }

    /// Asks about some turns; one by one, where the answer about all is none.
    async fn ask(&self, batch: Vec<WaitingCase>) {
        if batch.is_empty() {
            return;
        }
        let turns: Vec<Value> = batch.iter().map(|it| it.turn.clone()).collect();
        match self.scores(&turns).await {
            Ok(scores) => {
                for (it, score) in batch.into_iter().zip(scores) {
                    it.answer.send(score).ok();
                }
            }
            Err(error) if error.was_asked && batch.len() > 1 => {
                tracing::debug!(%error, "the reward function is asked about each turn alone");
                for it in batch {
                    let alone = self.scores(std::slice::from_ref(&it.turn)).await;
                    let score = match alone {
                        Ok(mut scores) => scores.pop().unwrap_or_else(|| failed("no score")),
                        Err(error) => failed(error.why),
                    };
                    it.answer.send(score).ok();
                }
            }
            Err(error) => {
                for it in batch {
                    it.answer.send(failed(error.why.clone())).ok();
                }
            }
        }
    }

    /// One for each turn.
    async fn scores(&self, turns: &[Value]) -> Result<Vec<Graded>, PostFailed> {
        let answer = self.post.post(&grade::body(turns)).await?;
        let scores = grade::read(&answer, turns.len()).map_err(|error| PostFailed {
            why: error.to_string(),
            was_asked: true,
        })?;
        let scores = scores.into_iter();
        Ok(scores
            .map(|score| score.or_else(|error| failed(error.to_string())))
            .collect())
    }

    /// A panic elsewhere leaves a list usable: each change is one call.
    fn waiting(&self) -> MutexGuard<'_, Vec<WaitingCase>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(why: impl Into<String>) -> Graded {
    Err(AskFailed { why: why.into() })
}

#[cfg(test)]
mod tests;
