//! A candidate before the gate: what it is compared with, and what is done while the trainer does not answer.

use std::{sync::Arc, time::Duration};

use metaclaw_chat::{AgentId, Score, TurnId, now_ms};
use metaclaw_trainer_api::RunId;
use metaclaw_turns::LogError;

use super::{
    candidate::Candidate,
    context::TrainingContext,
    error::{Stage, StepError},
    runner::StepRunner,
};
use crate::{
    gate::{self, GateReport},
    shared::Shared,
    status::Phase,
};

/// Failures that may pass, before the candidate counts as one that cannot be tested.
const MOST_FAILURES: usize = 5;
/// Pause before the trainer is asked again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Turns of a step that must carry one hint before that counts as a wish: what is said once may be a correction.
const HINTED: usize = 2;

/// Tests a candidate; or why that could not be done.
pub(super) async fn test(
    context: &mut TrainingContext,
    runner: &StepRunner,
    candidate: &Candidate,
) -> Result<Result<GateReport, String>, LogError> {
    if let Some(why) = runner.try_adapter(candidate).await {
        return Ok(Ok(GateReport::unfit(why)));
    }
    if !context.gate.is_on() {
        return Ok(Ok(GateReport::default()));
    }
    if !runner.capabilities.forward {
        let why =
            "the training server scores no replies, so that nothing can be tested (gate.enabled)";
        return Ok(Err(why.to_owned()));
    }
    let wishes = wishes(&context.shared, &candidate.agent, &candidate.turns).await?;
    let shared = Arc::clone(&context.shared);
    let (mut n_failures, mut pause) = (0, FIRST_PAUSE);
    let phase = Phase::Testing {
        agent: candidate.agent.clone(),
        adapter: candidate.adapter.to_string(),
        since_ms: now_ms(),
    };
    loop {
        shared.status.phase(phase.clone());
        let failed = match attempt(context, runner, (candidate, &wishes)).await {
            Ok(report) => return Ok(Ok(report)),
            Err(failed) => failed,
        };
        let why = failed.to_string();
        if failed.error.is_of_weights() {
            return Ok(Ok(GateReport::unfit(why)));
        }
        n_failures += usize::from(!failed.error.is_unreachable());
        if !failed.may_pass() || n_failures >= MOST_FAILURES {
            return Ok(Err(why));
        }
        tracing::warn!(agent = %candidate.agent, error = why, "the new adapter is tested again");
        shared.status.phase(Phase::WaitingForTrainer { why });
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn attempt(
    context: &mut TrainingContext,
    runner: &StepRunner,
    (candidate, wishes): (&Candidate, &[String]),
) -> Result<GateReport, StepError> {
    let run = standing(context, runner, candidate).await?;
    let asked = gate::Candidate {
        adapter: candidate.adapter.as_str(),
        run: &run,
        base: runner.base.as_deref(),
        wishes,
        steps: candidate.point.steps,
    };
    let tested = context.gate.test(asked).await;
    tested.map_err(|error| {
        context.agent(&candidate.agent).run.failed(&error);
        let error = Box::new(error);
        StepError {
            stage: Stage::Server,
            error,
        }
    })
}

/// The agent's run, which stands at the candidate's checkpoint: as the step left it, or put there again.
async fn standing(
    context: &mut TrainingContext,
    runner: &StepRunner,
    candidate: &Candidate,
) -> Result<RunId, StepError> {
    let state = context.agent(&candidate.agent);
    let at = state.run.at.as_ref().and_then(|at| at.checkpoint.as_ref());
    if let Some(id) = &state.run.id
        && at == Some(&candidate.checkpoint)
    {
        return Ok(id.clone());
    }
    let point = candidate.point.clone();
    let id = runner.put_at(&mut state.run, &point).await?;
    state.run.at = Some(point);
    Ok(id)
}

/// What the agent's replies are to be like: its standing wishes; where it has none, the hint that most of the step's failed
/// turns carry, for that is what the step teaches.
async fn wishes(
    shared: &Shared,
    agent: &AgentId,
    turns: &[TurnId],
) -> Result<Vec<String>, LogError> {
    let standing = shared.library.as_ref().map(|library| {
        let in_force = library.lessons(agent, "").wish_ids;
        let wishes = library.wishes(agent).into_iter();
        let wishes = wishes.filter(|wish| in_force.contains(&wish.id()));
        wishes.map(|wish| wish.text).collect::<Vec<String>>()
    });
    if let Some(standing) = standing.filter(|wishes| !wishes.is_empty()) {
        return Ok(standing);
    }
    let (mut hints, mut n_failed) = (Vec::new(), 0);
    for id in turns {
        let turn = shared.persist(|| shared.log.get(*id)).await?;
        let verdict = turn.and_then(|turn| turn.verdict);
        let Some(verdict) = verdict.filter(|verdict| verdict.score == Score::Bad) else {
            continue;
        };
        n_failed += 1;
        hints.extend(verdict.hint);
    }
    Ok(shared_hint(&hints, n_failed).into_iter().collect())
}

/// The hint that at least half of the failed turns carry, and at least two.
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
