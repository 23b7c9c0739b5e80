//! The owner's own advantages for turns of rollouts: `rl.advantages`.
//!
//! The function is sent the turns of complete groups with their rewards and log-probabilities, and returns the advantage of
//! each turn, or of each id of its reply. The loss is A times the probability ratio, so the function can express any loss of
//! which the gradient is a sum of weighted log-probabilities.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::{Message, TurnId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    formulas::single,
    judge::{Post, PostFailed},
    sample::{MAX_ADVANTAGE, RolloutGroup, RolloutStep, StepAdvantage, StepAdvantages},
};

/// A function of the owner's, behind an address, that computes advantages.
#[derive(Debug, Clone)]
pub struct AdvantageFunction(Arc<dyn Post>);

#[derive(Debug, Deserialize)]
struct GivenAdvantages {
    advantages: BTreeMap<String, GivenAdvantage>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum GivenAdvantage {
    One(f64),
    ById(Vec<f64>),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum AdvantagesError {
    #[error(transparent)]
    Post(#[from] PostFailed),
    #[error("the answer is not {{\"advantages\": {{id: number or list of numbers}}}}: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("the answer has no advantage for sample {0}")]
    Missing(TurnId),
    #[error("the answer has an advantage for {0:?}, which is no sample")]
    Unknown(String),
    #[error(
        "the advantage {value} of sample {id} is not allowed: -{MAX_ADVANTAGE} to {MAX_ADVANTAGE}"
    )]
    Range { id: TurnId, value: f64 },
    #[error("sample {id} has {n_ids} ids, and its list has {n} advantages")]
    Length { id: TurnId, n_ids: usize, n: usize },
}

// === impl AdvantageFunction ===

impl AdvantageFunction {
    /// Creates the function that `post` calls.
    pub fn new(post: Arc<dyn Post>) -> Self {
        Self(post)
    }

    /// Returns the advantage of each turn of these groups.
    ///
    /// # Errors
    /// [`AdvantagesError`].
    pub(crate) async fn compute(
        &self,
        groups: &[RolloutGroup],
    ) -> Result<StepAdvantages, AdvantagesError> {
        let steps: Vec<&RolloutStep> = groups.iter().flat_map(|group| &group.steps).collect();
        let samples: Vec<Value> = steps.iter().map(|step| sample(step)).collect();
        read(&self.0.post(&json!({"samples": samples})).await?, &steps)
    }
}

/// Returns a turn as the function is shown it (docs/extending/advantages.md).
fn sample(step: &RolloutStep) -> Value {
    let RolloutStep { turn, mark, .. } = step;
    let tokens = turn.tokens.as_ref();
    json!({
        "id": turn.id,
        "rollout": mark.id,
        "task": mark.task,
        "group": mark.group,
        "attempt": mark.attempt,
        "step": step.step,
        "outcome": step.outcome,
        "reward": step.reward,
        "ids": n_ids(step),
        "logprobs": tokens.map(|token| &token.logprobs),
        "reply": turn.reply.as_ref().map(Message::text),
    })
}

fn n_ids(step: &RolloutStep) -> usize {
    step.turn.tokens.as_ref().map_or(0, |t| t.ids.len())
}

fn read(answer: &str, steps: &[&RolloutStep]) -> Result<StepAdvantages, AdvantagesError> {
    let mut given = serde_json::from_str::<GivenAdvantages>(answer)?.advantages;
    let mut advantages = StepAdvantages::new();
    for step in steps {
        let id = step.turn.id;
        let own = given
            .remove(&id.to_string())
            .ok_or(AdvantagesError::Missing(id))?;
        advantages.insert(id, checked(id, own, n_ids(step))?);
    }
    given
        .pop_first()
        .map_or(Ok(advantages), |(id, _)| Err(AdvantagesError::Unknown(id)))
}

fn checked(
    id: TurnId,
    given: GivenAdvantage,
    n_ids: usize,
) -> Result<StepAdvantage, AdvantagesError> {
    let number = |value: f64| {
        let is_within = value.is_finite() && value.abs() <= f64::from(MAX_ADVANTAGE);
        let number = is_within.then(|| single(value));
        number.ok_or(AdvantagesError::Range { id, value })
    };
    match given {
        GivenAdvantage::One(one) => Ok(StepAdvantage::One(number(one)?)),
        GivenAdvantage::ById(each) if each.len() == n_ids => {
            let each: Vec<f32> = each.into_iter().map(number).collect::<Result<_, _>>()?;
            Ok(StepAdvantage::ById(each.into()))
        }
        GivenAdvantage::ById(each) => Err(AdvantagesError::Length {
            id,
            n_ids,
            n: each.len(),
        }),
    }
}

#[cfg(test)]
mod tests;
