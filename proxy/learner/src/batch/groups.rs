//! Builds what the training server gets of a batch, and the statistics of its samples.

use std::collections::BTreeMap;

use metaclaw_chat::Score;
use metaclaw_turns::{Tokens, Turn};

use crate::{
    config::{RlConfig, RlConfigError},
    lineage::{BatchStats, RolloutStats, Spread},
    methods::{ANCHOR, Group, Method, NotAnExample, ROLLOUTS, TrainingSignal},
    sample::{Batch, GroupOutcomes, score},
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum NoGroups {
    #[error(transparent)]
    Example(#[from] NotAnExample),
    #[error(transparent)]
    Config(#[from] RlConfigError),
}

/// Returns one group for each method; the server adds up their gradients. Rollouts have a method of their own, whatever
/// `rl.method` is.
///
/// # Errors
/// Returns [`NoGroups`] if a sample's token ids make no training example, or if settings contradict each other.
pub(crate) fn groups(batch: &Batch, config: &RlConfig) -> Result<Vec<Group>, NoGroups> {
    let objective = config.objective()?;
    let methods: Vec<&'static dyn Method> = if batch.is_of_rollouts() {
        vec![ROLLOUTS]
    } else {
        config.method.iter().collect()
    };
    let methods = methods.into_iter().chain([ANCHOR]);
    let groups = methods.map(|method| method.group(batch, &objective));
    let groups: Vec<Group> = groups.collect::<Result<_, _>>()?;
    let is_there = |group: &Group| !group.examples.is_empty();
    Ok(groups.into_iter().filter(is_there).collect())
}

pub(crate) fn stats(batch: &Batch, groups: &[Group]) -> BatchStats {
    let turns = batch.turns();
    let turns = || turns.values().copied();
    let tokens = || turns().filter_map(|turn| turn.tokens.as_ref());
    let mut samples = BTreeMap::new();
    for group in groups {
        // A sample that the teacher answered is one turn, which may have several replies to train on.
        let n = if group.method.signals().contains(&TrainingSignal::Target) {
            batch.counts().0
        } else {
            group.examples.len()
        };
        *samples.entry(group.method.name().to_owned()).or_default() += n;
    }
    let pushes = batch.pushed().filter_map(|sample| sample.push.as_ref());
    let advantages = pushes.map(|push| f64::from(push.advantage));
    let advantages = advantages.filter(|given| *given != 0.0);
    let rollouts = batch.is_of_rollouts().then(|| rollouts(&batch.groups));
    let rewards: Vec<f32> = if batch.is_of_rollouts() {
        batch.outcomes().collect()
    } else {
        turns().filter_map(score).map(Score::value).collect()
    };
    let is_good = |reward: &f32| f64::from(u8::from(*reward > 0.0));
    let is_cut = |turn: &Turn| turn.meta.finish_reason.as_deref() == Some("length");
    BatchStats {
        samples,
        reward: Spread::new(rewards.iter().copied().map(f64::from)),
        success_rate: Spread::new(rewards.iter().map(is_good)).mean,
        advantage: Spread::new(advantages),
        response_len: Spread::new(tokens().map(|token| token.ids.len() as f64)),
        logprob: Spread::new(tokens().filter_map(mean_logprob)),
        truncated_ratio: Spread::new(turns().map(|turn| f64::from(u8::from(is_cut(turn))))).mean,
        version: Spread::new(tokens().filter_map(|t| t.version).map(|v| v as f64)),
        rollouts,
    }
}

fn rollouts(groups: &[GroupOutcomes]) -> RolloutStats {
    let outcomes = groups.iter().flat_map(|group| &group.outcomes);
    let n = outcomes.clone().count();
    let n_good = outcomes.filter(|outcome| **outcome > 0.0).count();
    let passed = groups
        .iter()
        .filter(|group| group.outcomes.iter().any(|outcome| *outcome > 0.0));
    let n_groups = groups.len();
    RolloutStats {
        n,
        n_groups,
        n_without_difference: groups.iter().filter(|group| !group.is_trained).count(),
        success: n_good as f64 / n.max(1) as f64,
        pass_at_k: passed.count() as f64 / n_groups.max(1) as f64,
    }
}

fn mean_logprob(tokens: &Tokens) -> Option<f64> {
    let n = tokens.logprobs.len();
    let sum: f64 = tokens.logprobs.iter().copied().map(f64::from).sum();
    (n > 0).then(|| sum / n as f64)
}
