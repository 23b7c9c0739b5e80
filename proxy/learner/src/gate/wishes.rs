//! Finds the wishes for the gate's reference: the agent's standing wishes, or, if it has none, the hint that it was
//! trained on.

use std::collections::BTreeSet;

use metaclaw_chat::{Score, TurnId};
use metaclaw_turns::{LogError, Step, Turn, TurnFilter, TurnKind, TurnSummary};

use crate::{
    lineage::{Ancestry, Candidate, ResumePoint},
    shared::Shared,
};

/// The number of failed turns that must carry one hint before it counts as a wish, because a single hint may be a
/// correction.
const HINTED: usize = 2;
/// Failed turns are searched among this many of the newest: turns of earlier steps, and judged turns of the agent.
const LOOK_BACK: usize = 64;
/// The number of listed turns that are searched for judged ones.
const LISTED: usize = 400;

/// Returns the agent's standing wishes. If it has none, returns the hint that most failed turns carry, because the step
/// trains on that: the turns of this step; else those of earlier steps, because a batch of good verdicts alone
/// continues what was trained before; else the agent's last ones.
pub(crate) async fn wishes(
    shared: &Shared,
    candidate: &Candidate,
) -> Result<Vec<String>, LogError> {
    let agent = &candidate.agent;
    let standing = shared.library.as_ref().map(|library| {
        let in_force = library.lessons(agent, "").wish_ids;
        let wishes = library.wishes_to_teach(agent).into_iter();
        let wishes = wishes.filter(|wish| in_force.contains(&wish.id()));
        wishes.map(|wish| wish.text).collect::<Vec<String>>()
    });
    if let Some(standing) = standing.filter(|wishes| !wishes.is_empty()) {
        return Ok(standing);
    }
    let mut hint = hint_of(shared, &candidate.turns).await?;
    if hint.is_none() {
        hint = hint_of(shared, &taught_before(shared, candidate).await?).await?;
    }
    if hint.is_none() {
        hint = hint_of(shared, &last_judged(shared, candidate).await?).await?;
    }
    Ok(hint.into_iter().collect())
}

/// Returns the turns of the steps before a candidate, newest steps first.
async fn taught_before(shared: &Shared, candidate: &Candidate) -> Result<Vec<TurnId>, LogError> {
    let steps = shared
        .persist(|| shared.log.steps(&candidate.agent))
        .await?;
    let lineage = &candidate.point.lineage;
    let own = |step: &&Step| step.begun.lineage == *lineage && step.begun.n == candidate.n;
    let own = steps.iter().filter(own).max_by_key(|it| it.begun.attempt);
    let parent = own.and_then(|step| step.begun.parent.as_ref());
    let point = ResumePoint {
        checkpoint: parent.and_then(|parent| parent.parse().ok()),
        ..candidate.point.clone()
    };
    let ancestry = Ancestry::of(&steps, &point);
    let mut behind: Vec<&Step> = steps.iter().filter(|it| ancestry.has_step(it)).collect();
    behind.sort_by_key(|step| std::cmp::Reverse(step.taken_ms));
    let turns = behind.iter().flat_map(|step| &step.begun.turns);
    Ok(turns.take(LOOK_BACK).copied().collect())
}

async fn last_judged(shared: &Shared, candidate: &Candidate) -> Result<Vec<TurnId>, LogError> {
    let filter = TurnFilter {
        agent: Some(candidate.agent.clone()),
        limit: LISTED,
        ..TurnFilter::default()
    };
    let listed = shared.persist(|| shared.log.list(filter.clone())).await?;
    let is_judged = |turn: &TurnSummary| turn.kind == TurnKind::Main && turn.score.is_some();
    let judged = listed.into_iter().filter(is_judged);
    Ok(judged.map(|turn| turn.id).take(LOOK_BACK).collect())
}

/// Returns the hint that most of the failed turns among these carry.
async fn hint_of(shared: &Shared, turns: &[TurnId]) -> Result<Option<String>, LogError> {
    let (mut hints, mut n_failed) = (Vec::new(), 0);
    // A turn that was used twice counts once.
    for id in BTreeSet::from_iter(turns) {
        let Some(turn) = shared.persist(|| shared.log.get(*id)).await? else {
            continue;
        };
        let is_failed = |turn: &Turn| {
            let verdict = turn.verdict.as_ref();
            verdict.is_some_and(|verdict| verdict.score == Score::Bad)
        };
        if is_failed(&turn) {
            n_failed += 1;
            hints.extend(turn.verdict.and_then(|verdict| verdict.hint));
        }
    }
    Ok(shared_hint(&hints, n_failed))
}

/// Returns the hint that at least half of the failed turns carry, and at least two.
fn shared_hint(hints: &[String], n_failed: usize) -> Option<String> {
    let count = |hint: &String| hints.iter().filter(|it| *it == hint).count();
    let most = hints.iter().max_by_key(|hint| count(hint))?;
    let n = count(most);
    (n >= HINTED && 2 * n >= n_failed).then(|| most.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_a_wish_that_most_failed_turns_carry() {
        let shared = |hints: &[&str], n_failed| {
            let hints: Vec<String> = hints.iter().map(|&hint| hint.to_owned()).collect();
            shared_hint(&hints, n_failed)
        };
        let brief = Some("Be brief.".to_owned());
        assert_eq!(
            shared(&["Be brief.", "No, Tuesday.", "Be brief."], 4),
            brief
        );
        assert_eq!(shared(&["Be brief."], 1), None, "once may be a correction");
        assert_eq!(
            shared(&["Be brief.", "Be brief."], 5),
            None,
            "of two in five"
        );
        assert_eq!(shared(&[], 0), None);
    }
}
