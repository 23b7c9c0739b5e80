//! A candidate before the gate: what it is compared with, and what is done while the trainer does not answer.

use std::{sync::Arc, time::Duration};

use metaclaw_chat::now_ms;
use metaclaw_skills::Wish;
use metaclaw_trainer_api::RunId;
use metaclaw_turns::LogError;

use super::{
    context::TrainingContext,
    error::{Stage, StepError},
    runner::StepRunner,
};
use crate::{
    gate::{self, GateReport, PreferencePair, pairs, wishes},
    lineage::Candidate,
    status::Phase,
};

/// Failures that may pass, before the candidate counts as one that cannot be tested.
const MOST_FAILURES: usize = 5;
/// Pause before the trainer is asked again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What an agent's owner expects.
struct Expected {
    wishes: Vec<String>,
    /// Those that are written down.
    standing: Vec<Wish>,
    pairs: Vec<PreferencePair>,
}

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
    let shared = Arc::clone(&context.shared);
    let library = shared.library.as_ref();
    let standing = library.map(|library| library.wishes_to_teach(&candidate.agent));
    let expected = Expected {
        wishes: wishes(&shared, candidate).await?,
        standing: standing.unwrap_or_default(),
        pairs: pairs(&shared, candidate, runner.base.as_deref()).await?,
    };
    let (mut n_failures, mut pause) = (0, FIRST_PAUSE);
    let phase = Phase::Testing {
        agent: candidate.agent.clone(),
        adapter: candidate.adapter.to_string(),
        since_ms: now_ms(),
    };
    loop {
        shared.status.phase(phase.clone());
        let failed = match attempt(context, runner, (candidate, &expected)).await {
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
    (candidate, expected): (&Candidate, &Expected),
) -> Result<GateReport, StepError> {
    let run = standing_run(context, runner, candidate).await?;
    let shared = Arc::clone(&context.shared);
    let asked = gate::Candidate {
        agent: &candidate.agent,
        adapter: candidate.adapter.as_str(),
        run: &run,
        base: runner.base.as_deref(),
        wishes: &expected.wishes,
        standing: &expected.standing,
        judge: &shared.judge,
        pairs: &expected.pairs,
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
async fn standing_run(
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
