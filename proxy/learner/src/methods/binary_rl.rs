//! REINFORCE with a baseline: the advantage of a turn's ids is how much better than usual its verdict is.

use std::sync::Arc;

use metaclaw_turns::Turn;

use super::{
    method::{Compares, Group, Method, NotAnExample, Objective, TrainingSignal, Want},
    policy_gradient,
};
use crate::sample::{Baselines, Batch, Teaching};

#[derive(Debug)]
pub(super) struct BinaryRl;

// === impl BinaryRl ===

impl Method for BinaryRl {
    fn name(&self) -> &'static str {
        "binary_rl"
    }

    fn signals(&self) -> &'static [TrainingSignal] {
        &[TrainingSignal::Verdict]
    }

    fn wants(&self, turn: &Turn, _teaching: Teaching<'_>) -> Want {
        policy_gradient::wants(self, turn)
    }

    fn compares(&self) -> Compares {
        Compares::Baseline
    }

    fn advantages(&self, turns: &[&Arc<Turn>], baselines: Baselines) -> Vec<f32> {
        turns.iter().map(|turn| baselines.advantage(turn)).collect()
    }

    fn group(&self, batch: &Batch, objective: &Objective) -> Result<Group, NotAnExample> {
        policy_gradient::per_turn(&Self, batch, objective)
    }
}
