//! A plan becomes a candidate adapter.

use std::{sync::Arc, time::Duration};

use super::{
    context::TrainingContext,
    failure_policy::{Blame, FailurePolicy},
    micro_batches,
    plan::Plan,
    runner::StepRunner,
};
use crate::{
    lineage::{Candidate, Numbers},
    status::Phase,
};

/// Pause before a training server is tried again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Why there is no candidate.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) blame: Blame,
    /// What the server said.
    pub(crate) why: String,
}

/// Attempts until one gets through, or somebody is at fault. The checkpoint of a candidate is there.
pub(crate) async fn make(
    context: &mut TrainingContext,
    runner: &StepRunner,
    plan: &Plan,
    phase: &Phase,
) -> Result<(Candidate, Numbers), Refusal> {
    let status = Arc::clone(&context.shared);
    let status = &status.status;
    status.phase(phase.clone());
    let run = &mut context.agent(&plan.agent).run;
    run.save_asked = false;
    let most_tokens = run.most_tokens(runner.backend.deadline());
    let mut calls = micro_batches::cut(&plan.groups, most_tokens);
    let (mut trials, mut pause) = (FailurePolicy::default(), FIRST_PAUSE);
    loop {
        let failed = match trials.suspect() {
            None => match runner.attempt(run, plan, &calls).await {
                Ok(made) => return Ok((plan.candidate(made.sha256), made.numbers)),
                Err(failed) => failed,
            },
            Some(suspect) => match runner.control(run, plan, suspect.at_step).await {
                Ok(()) => {
                    let (turns, why) = (suspect.turns.clone(), suspect.why);
                    let blame = Blame::Sample { turns, why };
                    let why = suspect.said.clone();
                    return Err(Refusal { blame, why });
                }
                Err(failed) => failed,
            },
        };
        let why = failed.to_string();
        if let Some(blame) = trials.failed(&failed, plan, &mut calls) {
            return Err(Refusal { blame, why });
        }
        tracing::warn!(error = why, "the step is tried again");
        status.phase(Phase::WaitingForTrainer { why });
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        status.phase(phase.clone());
    }
}
