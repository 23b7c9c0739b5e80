//! Groups of rollouts: what is complete of them in the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use metaclaw_chat::{AgentId, GroupId, RolloutId, TurnId};
use metaclaw_turns::{LogError, Rollout, RolloutFilter, RolloutMark, Turn, TurnKind};

use crate::{
    sample::{ExcludeReason, RolloutGroup, RolloutStep},
    shared::Shared,
};

/// Judged turns of an agent's rollouts, as a look at the log finds them.
#[derive(Debug, Default)]
pub(crate) struct RolloutTurns {
    /// Those that can be trained on.
    pub(crate) ready: Vec<Arc<Turn>>,
    /// Groups of which the ids of a turn have not arrived yet.
    pub(crate) coming: BTreeSet<GroupId>,
}

/// What a look found of groups.
#[derive(Debug, Default)]
pub(crate) struct FoundGroups {
    /// The complete ones, the oldest first.
    pub(crate) groups: Vec<RolloutGroup>,
    /// Turns of groups that can never be compared, and why.
    pub(crate) spent: Vec<(TurnId, ExcludeReason)>,
}

/// Finds the complete groups among these turns. Turns of other groups wait.
///
/// # Errors
/// Returns the log's errors.
pub(crate) async fn complete_groups(
    shared: &Shared,
    agent: &AgentId,
    turns: &RolloutTurns,
) -> Result<FoundGroups, LogError> {
    let mut found = FoundGroups::default();
    let mut by_group: BTreeMap<GroupId, Vec<(Arc<Turn>, RolloutMark)>> = BTreeMap::new();
    for turn in &turns.ready {
        if let Some(mark) = turn.served.rollout.clone() {
            let of_group = by_group.entry(mark.group.clone()).or_default();
            of_group.push((Arc::clone(turn), mark));
        }
    }
    by_group.retain(|group, _| !turns.coming.contains(group));
    if by_group.is_empty() {
        return Ok(found);
    }
    let filter = RolloutFilter {
        agent: Some(agent.clone()),
        ..RolloutFilter::default()
    };
    let all = shared
        .persist(|| shared.log.rollouts(filter.clone()))
        .await?;
    let mut rollouts: BTreeMap<GroupId, Vec<Rollout>> = BTreeMap::new();
    // The newest come first.
    for rollout in all.into_iter().rev().filter(|it| !it.held_out) {
        rollouts
            .entry(rollout.group.clone())
            .or_default()
            .push(rollout);
    }
    for (group, turns) in by_group {
        let mut rollouts = rollouts.remove(&group).unwrap_or_default();
        if !is_complete(&rollouts) {
            continue;
        }
        rollouts.retain(|it| it.outcome().is_some());
        if rollouts.len() < 2 {
            let small = turns
                .iter()
                .map(|(turn, _)| (turn.id, ExcludeReason::SmallGroup));
            found.spent.extend(small);
            continue;
        }
        let steps = steps(shared, &rollouts, turns).await?;
        found.groups.push(RolloutGroup { rollouts, steps });
    }
    let opened = |group: &RolloutGroup| group.rollouts.first().map(|it| it.id.clone());
    found.groups.sort_by_key(opened);
    Ok(found)
}

/// Returns whether as many rollouts of a group are closed as it has, and none is open.
fn is_complete(rollouts: &[Rollout]) -> bool {
    let wanted = rollouts.iter().map(|it| it.group_size).max();
    let n_closed = rollouts.iter().filter(|it| !it.is_open()).count();
    let is_full = wanted.is_some_and(|n| n_closed >= usize::try_from(n).unwrap_or(usize::MAX));
    is_full && n_closed == rollouts.len()
}

/// Returns the turns with their numbers and rewards, those of one rollout in a row.
async fn steps(
    shared: &Shared,
    rollouts: &[Rollout],
    turns: Vec<(Arc<Turn>, RolloutMark)>,
) -> Result<Vec<RolloutStep>, LogError> {
    let outcomes: BTreeMap<&RolloutId, f32> = rollouts
        .iter()
        .filter_map(|it| Some((&it.id, it.outcome()?)))
        .collect();
    let numbers = step_numbers(shared, rollouts, &turns).await?;
    let step = |(turn, mark): (Arc<Turn>, RolloutMark)| {
        let outcome = *outcomes.get(&mark.id)?;
        let reward = turn.verdict.as_ref().and_then(|it| it.reward);
        Some(RolloutStep {
            step: *numbers.get(&turn.id)?,
            reward: reward.unwrap_or(outcome),
            outcome,
            turn,
            mark,
        })
    };
    let mut steps: Vec<RolloutStep> = turns.into_iter().filter_map(step).collect();
    steps.sort_by_key(|it| (it.mark.attempt, it.mark.id.clone(), it.step));
    Ok(steps)
}

/// Returns the number of each turn among the steps of its rollout. The client's own errands are no steps.
async fn step_numbers(
    shared: &Shared,
    rollouts: &[Rollout],
    turns: &[(Arc<Turn>, RolloutMark)],
) -> Result<BTreeMap<TurnId, usize>, LogError> {
    let known: BTreeSet<TurnId> = turns.iter().map(|(turn, _)| turn.id).collect();
    let ids: Vec<RolloutId> = rollouts.iter().map(|it| it.id.clone()).collect();
    let of_rollouts = shared
        .persist(|| shared.log.rollout_turns(ids.clone()))
        .await?;
    let mut numbers = BTreeMap::new();
    for turns in of_rollouts.into_values() {
        let mut n = 0;
        for id in turns {
            let is_step = known.contains(&id) || {
                let turn = shared.persist(|| shared.log.get(id)).await?;
                turn.is_some_and(|it| it.meta.kind == TurnKind::Rollout)
            };
            if is_step {
                numbers.insert(id, n);
                n += 1;
            }
        }
    }
    Ok(numbers)
}
