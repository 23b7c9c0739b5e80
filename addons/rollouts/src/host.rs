//! What a run needs of the program that it is part of: training steps, the turns of the log, a judge.

use std::fmt::Debug;

use async_trait::async_trait;
use metaclaw_chat::{AgentId, Message};

use crate::file::RewardSource;

/// The result of a training step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainedStep {
    /// How many turns it was made of; 0 if there was nothing to train on.
    pub n_turns: usize,
    /// The result in words, on one line.
    pub line: String,
}

/// A turn of an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeTurn {
    pub id: String,
    /// The messages of its request.
    pub messages: Vec<Message>,
    /// The index of the first message that no earlier turn has.
    pub new_from: usize,
    pub reply: Option<Message>,
}

/// The command around a run.
#[async_trait(?Send)]
pub trait RunHost: Debug {
    /// Makes one training step, and waits for it.
    async fn train(&self, agent: &AgentId) -> anyhow::Result<TrainedStep>;

    /// Reads turns from the log.
    async fn turns(&self, ids: &[String]) -> anyhow::Result<Vec<EpisodeTurn>>;

    /// Asks the model that judges by `source`.
    async fn ask_judge(
        &self,
        source: &RewardSource,
        messages: Vec<Message>,
    ) -> anyhow::Result<String>;

    /// An environment variable that is set and not empty.
    fn variable(&self, name: &str) -> Option<String>;
}
