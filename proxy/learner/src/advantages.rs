//! The owner's own advantages for turns of rollouts: `rl.advantages`.
//!
//! The function is sent the turns of complete groups with their rewards and log-probabilities, and returns the advantage of
//! each turn, or of each id of its reply. The loss is A times the probability ratio, so the function can express any loss of
//! which the gradient is a sum of weighted log-probabilities.

use std::{collections::BTreeMap, fmt, sync::Arc};

use metaclaw_chat::{Message, TurnId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    formulas::single,
    judge::Post,
    sample::{MAX_ADVANTAGE, RolloutGroup, RolloutStep, StepAdvantage, StepAdvantages},
};

/// A function of the owner's, behind an address, that computes advantages.
#[derive(Clone)]
pub struct AdvantageFunction(Arc<dyn Post>);

/// What the function answers.
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

// === impl AdvantageFunction ===

impl AdvantageFunction {
    /// Creates the function that `post` calls.
    pub fn new(post: Arc<dyn Post>) -> Self {
        Self(post)
    }

    /// Returns the advantage of each turn of these groups.
    ///
    /// # Errors
    /// Returns in words why there are none: the function cannot be reached, or its answer cannot be used.
    pub(crate) async fn compute(&self, groups: &[RolloutGroup]) -> Result<StepAdvantages, String> {
        let steps: Vec<&RolloutStep> = groups.iter().flat_map(|group| &group.steps).collect();
        let samples: Vec<Value> = steps.iter().map(|step| sample(step)).collect();
        let answer = self.0.post(&json!({"samples": samples})).await;
        let answer = answer.map_err(|error| error.to_string())?;
        read(&answer, &steps)
    }
}

impl fmt::Debug for AdvantageFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdvantageFunction").finish_non_exhaustive()
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

fn read(answer: &str, steps: &[&RolloutStep]) -> Result<StepAdvantages, String> {
    let given: GivenAdvantages = serde_json::from_str(answer).map_err(|error| {
        format!("the answer is not {{\"advantages\": {{id: number or list of numbers}}}}: {error}")
    })?;
    let mut given = given.advantages;
    let mut advantages = StepAdvantages::new();
    for step in steps {
        let id = step.turn.id;
        let own = given.remove(&id.to_string());
        let own = own.ok_or_else(|| format!("the answer has no advantage for sample {id}"))?;
        advantages.insert(id, checked(id, own, n_ids(step))?);
    }
    match given.first_key_value() {
        Some((id, _)) => Err(format!(
            "the answer has an advantage for {id:?}, which is no sample"
        )),
        None => Ok(advantages),
    }
}

fn checked(id: TurnId, given: GivenAdvantage, n_ids: usize) -> Result<StepAdvantage, String> {
    let most = f64::from(MAX_ADVANTAGE);
    let number = |value: f64| {
        let is_within = value.is_finite() && value.abs() <= most;
        let why =
            || format!("the advantage {value} of sample {id} is not allowed: -{most} to {most}");
        is_within.then(|| single(value)).ok_or_else(why)
    };
    match given {
        GivenAdvantage::One(one) => Ok(StepAdvantage::One(number(one)?)),
        GivenAdvantage::ById(each) if each.len() == n_ids => {
            let each: Vec<f32> = each.into_iter().map(number).collect::<Result<_, _>>()?;
            Ok(StepAdvantage::ById(each.into()))
        }
        GivenAdvantage::ById(each) => Err(format!(
            "sample {id} has {n_ids} ids, and its list has {} advantages",
            each.len()
        )),
    }
}

#[cfg(test)]
mod tests;
