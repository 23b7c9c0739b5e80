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
    shared::Shared,
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
    let shared = Arc::clone(&context.shared);
    match tried(&shared, runner, candidate).await {
        Ok(None) => {}
        Ok(Some(unfit)) => return Ok(Ok(GateReport::unfit(unfit))),
        Err(why) => return Ok(Err(why)),
    }
    if !context.gate.is_on() {
        return Ok(Ok(GateReport::default()));
    }
    if !runner.capabilities.forward {
        let why =
            "the training server scores no replies, so that nothing can be tested (gate.enabled)";
        return Ok(Err(why.to_owned()));
    }
    let library = shared.library.as_ref();
    let standing = library.map(|library| library.wishes_to_teach(&candidate.agent));
    let expected = Expected {
        wishes: wishes(&shared, candidate).await?,
        standing: standing.unwrap_or_default(),
        pairs: pairs(&shared, candidate, runner.base.as_deref()).await?,
    };
    let mut patience = Patience::default();
    loop {
        shared.status.phase(testing(candidate));
        let failed = match attempt(context, runner, (candidate, &expected)).await {
            Ok(report) => return Ok(Ok(report)),
            Err(failed) => failed,
        };
        if failed.error.is_of_weights() {
            return Ok(Ok(GateReport::unfit(failed.to_string())));
        }
        let is_away = failed.error.is_unreachable();
        if let Err(why) = patience.wait(&shared, candidate, (&failed, is_away)).await {
            return Ok(Err(why));
        }
    }
}

/// Has a candidate tried where it is to answer; why it is not fit to serve, if it is not. While nobody can say, because the
/// server that answers chats is away, what served before goes on.
///
/// # Errors
/// Why it could not be tried.
async fn tried(
    shared: &Shared,
    runner: &StepRunner,
    candidate: &Candidate,
) -> Result<Option<String>, String> {
    let mut patience = Patience::default();
    loop {
        shared.status.phase(testing(candidate));
        let error = match runner.try_adapter(candidate).await {
            Ok(unfit) => return Ok(unfit),
            Err(error) => error,
        };
        let is_away = error.is_unreachable() || error.status() == Some(503);
        let failed = StepError {
            stage: Stage::Server,
            error: Box::new(error),
        };
        patience.wait(shared, candidate, (&failed, is_away)).await?;
    }
}

fn testing(candidate: &Candidate) -> Phase {
    Phase::Testing {
        agent: candidate.agent.clone(),
        adapter: candidate.adapter.to_string(),
        since_ms: now_ms(),
    }
}

/// How often a trainer was asked in vain.
struct Patience {
    n_failures: usize,
    pause: Duration,
}

// === impl Patience ===

impl Default for Patience {
    fn default() -> Self {
        Self {
            n_failures: 0,
            pause: FIRST_PAUSE,
        }
    }
}

impl Patience {
    /// Waits before the next try. A trainer that is away is waited for without an end.
    ///
    /// # Errors
    /// Why there is to be no other try.
    async fn wait(
        &mut self,
        shared: &Shared,
        candidate: &Candidate,
        (failed, is_away): (&StepError, bool),
    ) -> Result<(), String> {
        let why = failed.to_string();
        self.n_failures += usize::from(!is_away);
        if !failed.may_pass() || self.n_failures >= MOST_FAILURES {
            return Err(why);
        }
        tracing::warn!(agent = %candidate.agent, error = why, "the new adapter is tested again");
        shared.status.phase(Phase::WaitingForTrainer { why });
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
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
