//! Builds what the training server gets of a batch.
//!
//! Statistics of the samples of a step.

use std::collections::BTreeMap;

use metaclaw_chat::Score;
use metaclaw_turns::{Tokens, Turn};

use crate::{
    config::{RlConfig, RlConfigError},
    lineage::{BatchStats, RolloutStats, Spread},
    methods::{ANCHOR, Group, Method, NotAnExample, ROLLOUTS, TrainingSignal},
    sample::{Batch, GroupOutcomes, score},
};

/// Why a batch cannot be trained on.
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
/// Returns [`NoGroups`] for the first sample that is not a sequence, and for settings that contradict each other.
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

/// Returns the statistics of a batch; `groups` are the groups that it makes.
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
    let pushes = batch.pushed().filter_map(|it| it.push.as_ref());
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
        reward: Spread::of(rewards.iter().copied().map(f64::from)),
        success_rate: Spread::of(rewards.iter().map(is_good)).mean,
        advantage: Spread::of(advantages),
        response_len: Spread::of(tokens().map(|it| it.ids.len() as f64)),
        logprob: Spread::of(tokens().filter_map(mean_logprob)),
        truncated_ratio: Spread::of(turns().map(|it| f64::from(u8::from(is_cut(it))))).mean,
        version: Spread::of(tokens().filter_map(|it| it.version).map(|it| it as f64)),
        rollouts,
    }
}

fn rollouts(groups: &[GroupOutcomes]) -> RolloutStats {
    let outcomes = groups.iter().flat_map(|it| &it.outcomes);
    let n = outcomes.clone().count();
    let n_good = outcomes.filter(|it| **it > 0.0).count();
    let passed = groups
        .iter()
        .filter(|it| it.outcomes.iter().any(|it| *it > 0.0));
    let n_groups = groups.len();
    RolloutStats {
        n,
        n_groups,
        n_without_difference: groups.iter().filter(|it| !it.is_trained).count(),
        success: n_good as f64 / n.max(1) as f64,
        pass_at_k: passed.count() as f64 / n_groups.max(1) as f64,
    }
}

fn mean_logprob(tokens: &Tokens) -> Option<f64> {
    let n = tokens.logprobs.len();
    let sum: f64 = tokens.logprobs.iter().copied().map(f64::from).sum();
    (n > 0).then(|| sum / n as f64)
}
