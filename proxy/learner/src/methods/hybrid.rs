//! OpenClaw-RL's method of May 2026 (arXiv 2603.10165 version 2): the verdict gives the reply's own ids an advantage, a
//! teacher that was given the hint gives one to the ids that the student found most probable, and both surrogates are
//! added.

use std::sync::Arc;

use futures_util::{FutureExt as _, future::BoxFuture};
use metaclaw_trainer_api::{BackendError, LossFn};
use metaclaw_turns::Turn;

use super::{
    hinted,
    method::{
        Example, Group, LogprobClient, Method, NotAnExample, Objective, TrainingSignal, Want,
    },
    policy_gradient,
};
use crate::sample::{Baselines, Batch, Teaching};

/// The heading that OpenClaw-RL writes above a hint.
const LABEL: &str = "[user's hint / instruction]";

#[derive(Debug)]
pub(super) struct Hybrid;

// === impl Hybrid ===

impl Method for Hybrid {
    fn name(&self) -> &'static str {
        "hybrid"
    }

    fn signals(&self) -> &'static [TrainingSignal] {
        &[TrainingSignal::Verdict, TrainingSignal::Hint]
    }

    fn wants(&self, turn: &Turn, teaching: Teaching<'_>) -> Want {
        let by_verdict = || policy_gradient::wants(self, turn);
        hinted::wants(turn, teaching).unwrap_or_else(by_verdict)
    }

    fn advantages(&self, turns: &[&Arc<Turn>], _baselines: Baselines) -> Vec<f32> {
        let rewards = turns.iter().map(|turn| policy_gradient::reward(turn));
        rewards.collect()
    }

    fn usual_loss(&self) -> LossFn {
        LossFn::Ppo
    }

    fn words_of_hint(&self, hint: &str) -> Option<String> {
        Some(format!("{LABEL}\n{hint}"))
    }

    fn group(&self, batch: &Batch, objective: &Objective) -> Result<Group, NotAnExample> {
        hinted::group(&Self, batch.pushed(), objective, Some(objective.w_rl))
    }

    fn refresh<'a>(
        &'a self,
        examples: &'a mut [Example],
        policy: LogprobClient<'a>,
    ) -> BoxFuture<'a, Result<Option<f64>, BackendError>> {
        hinted::refresh(examples, policy).boxed()
    }
}
