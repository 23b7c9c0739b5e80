//! The method of rollouts: GRPO (<https://arxiv.org/abs/2402.03300>) over the rollouts of one task, or OpenClaw-RL's
//! step-wise form of it (arXiv 2603.10165). The advantages are computed with the batch ([`crate::batch`]).
//!
//! Each rollout has the same weight 1/B, and each id of it the same share: w = 1/(B·T) at each of the T ids of its turns.
//! So a long rollout does not count more than a short one.

use metaclaw_turns::Turn;

use super::method::{Example, Group, Method, NotAnExample, Objective, TrainingSignal, Want};
use crate::sample::{Batch, ExcludeReason, MAX_ADVANTAGE, Teaching, datum, sampled_fairly};

#[derive(Debug)]
pub(crate) struct Rollouts;

// === impl Rollouts ===

impl Method for Rollouts {
    fn name(&self) -> &'static str {
        "rollouts"
    }

    fn signals(&self) -> &'static [TrainingSignal] {
        &[]
    }

    fn wants(&self, turn: &Turn, _teaching: Teaching<'_>) -> Want {
        if sampled_fairly(turn) {
            Want::Own
        } else {
            Want::Never(ExcludeReason::BadSampling)
        }
    }

    /// The examples are in the order of the batch, in which the turns of a rollout follow each other: the training server
    /// computes the part that a prompt shares with the turn before once.
    fn group(&self, batch: &Batch, objective: &Objective) -> Result<Group, NotAnExample> {
        let examples = batch.pushed().filter_map(|sample| {
            let tokens = sample.turn.tokens.as_ref()?;
            let push = sample.push.as_ref()?;
            let share = push.rollout.as_ref()?.share;
            let advantages = push.advantages(tokens.ids.len(), MAX_ADVANTAGE);
            let weighted: Vec<f32> = advantages.map(|advantage| share * advantage).collect();
            let datum = datum::verdict(tokens, &weighted);
            Some(Example::new(vec![sample.id()], datum))
        });
        Ok(Group {
            method: &Self,
            loss: objective.rollout_loss.loss,
            loss_config: objective.rollout_loss.config.clone(),
            examples: examples.collect::<Result<_, _>>()?,
        })
    }
}
