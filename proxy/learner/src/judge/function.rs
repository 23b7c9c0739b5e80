//! The owner's reward function: one request contains many turns.
//!
//! There is no separate task: of the callers that wait for a score, one sends a request for all of them as soon as the
//! previous request is answered. So a single turn is sent at once, and turns that arrive meanwhile are sent together.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};

use futures_util::future::BoxFuture;
use metaclaw_chat::lock;
use metaclaw_reward::grade::{self, Grade};
use serde_json::Value;
use tokio::sync::oneshot;

use super::ask::AskFailed;

pub(super) const MOST_TURNS: usize = 32;
/// The largest size of a request of several turns, in bytes, because requests repeat long conversations.
const MOST_BYTES: usize = 8 << 20;

/// Sends a request to a reward function, and returns its answer.
pub trait Post: fmt::Debug + Send + Sync {
    /// Sends this body and returns the answer's body.
    fn post<'a>(&'a self, body: &'a Value) -> BoxFuture<'a, Result<String, PostFailed>>;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct PostFailed {
    pub why: String,
    /// Whether the service was reached, and refused or failed; a smaller request may succeed.
    pub was_asked: bool,
}

/// The owner's reward function.
#[derive(Debug)]
pub struct RewardFunction {
    post: Arc<dyn Post>,
    waiting: Mutex<Vec<WaitingCase>>,
    /// The caller that holds this lock sends the request.
    asks: tokio::sync::Mutex<()>,
}

type Graded = Result<Option<Grade>, AskFailed>;

#[derive(Debug)]
struct WaitingCase {
    turn: Value,
    n_bytes: usize,
    answer: oneshot::Sender<Graded>,
}

// === impl RewardFunction ===

impl RewardFunction {
    /// Creates the function that `post` calls.
    pub fn new(post: Arc<dyn Post>) -> Self {
        Self {
            post,
            waiting: Mutex::default(),
            asks: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the score of a turn, or `None` if the function has no opinion.
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
                // The caller that sent the request was dropped, and its answer with it.
                graded = &mut graded => return graded.unwrap_or_else(|_| failed("the question was given up")),
                _asks = self.asks.lock() => self.ask(self.take()).await,
            }
        }
    }

    fn take(&self) -> Vec<WaitingCase> {
        let mut waiting = self.waiting();
        waiting.retain(|waiting| !waiting.answer.is_closed());
        let mut n_bytes = 0;
        let fits = |case: &&WaitingCase| {
            n_bytes += case.n_bytes;
            n_bytes <= MOST_BYTES
        };
        let n = waiting.iter().take(MOST_TURNS).take_while(fits).count();
        // A longer turn is sent alone.
        let n = n.max(1).min(waiting.len());
        waiting.drain(..n).collect()
    }

    /// Asks about some turns; if that request fails, about each turn alone.
    async fn ask(&self, batch: Vec<WaitingCase>) {
        if batch.is_empty() {
            return;
        }
        let turns: Vec<Value> = batch.iter().map(|case| case.turn.clone()).collect();
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

    /// A panic elsewhere leaves a usable list, because each change is one call.
    fn waiting(&self) -> MutexGuard<'_, Vec<WaitingCase>> {
        lock(&self.waiting)
    }
}

fn failed(why: impl Into<String>) -> Graded {
    Err(AskFailed { why: why.into() })
}

#[cfg(test)]
mod tests;
