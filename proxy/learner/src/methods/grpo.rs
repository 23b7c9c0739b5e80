//! GRPO (<https://arxiv.org/abs/2402.03300>): the advantage of a turn's ids is how much better its verdict is than
//! those of other replies to the same prompt.

use std::sync::Arc;

use metaclaw_turns::Turn;

use super::{
    method::{Compares, Group, Method, NotAnExample, Objective, TrainingSignal, Want},
    policy_gradient,
};
use crate::{
    formulas::{by_bucket, single},
    sample::{Baselines, Batch, Teaching},
};

#[derive(Debug)]
pub(super) struct Grpo;

// === impl Grpo ===

impl Method for Grpo {
    fn name(&self) -> &'static str {
        "grpo"
    }

    fn signals(&self) -> &'static [TrainingSignal] {
        &[TrainingSignal::Verdict]
    }

    fn wants(&self, turn: &Turn, _teaching: Teaching<'_>) -> Want {
        policy_gradient::wants(self, turn)
    }

    fn compares(&self) -> Compares {
        Compares::Siblings
    }

    /// Siblings are replies to a prompt of the same ids.
    fn advantages(&self, turns: &[&Arc<Turn>], _baselines: Baselines) -> Vec<f32> {
        let with_prompts = turns.iter().map(|turn| {
            let prompt = turn.tokens.as_ref().map(|t| t.prompt_ids.as_slice());
            let reward = f64::from(policy_gradient::reward(turn));
            (prompt.unwrap_or_default(), reward)
        });
        let advantages = by_bucket(&with_prompts.collect::<Vec<_>>());
        advantages.into_iter().map(single).collect()
    }

    fn group(&self, batch: &Batch, objective: &Objective) -> Result<Group, NotAnExample> {
        policy_gradient::per_turn(&Self, batch, objective)
    }
}
