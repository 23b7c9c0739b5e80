//! Settling the steps that an earlier process left open, before their agents train anything else.
//!
//! A checkpoint with the step's hash means that the step was made: its adapter goes before the gate, and is promoted with its
//! turns trained, or declined. Without one, or with one that cannot be used, it was not: its turns are free again, and the
//! next step starts from a checkpoint that the log knows. Each agent is settled apart.

use std::sync::Arc;

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_trainer_api::AdapterName;
use metaclaw_turns::{LogError, Step, StepOutcome};

use super::{
    context::{StepSite, TrainingContext, TrainingStep},
    transaction::{Made, give_up},
};
use crate::{
    error::TrainError,
    gate::GateReport,
    lineage::{Candidate, KnownCheckpoint},
    metrics::StepRecord,
    shared::Shared,
    trainer::StepFailure,
};

/// Failures to settle a step that may pass, before it counts as not made.
const MOST_FAILURES: usize = 5;

struct Recovery<'a> {
    site: StepSite<'a>,
    step: &'a Step,
}

/// Settles the open steps, each for itself; whether there are none left.
///
/// # Errors
/// [`TrainError::NoTrainer`] while the checkpoints cannot be asked.
pub(crate) async fn recover(context: &mut TrainingContext) -> Result<bool, TrainError> {
    let shared = Arc::clone(&context.shared);
    // An earlier process may have ended between an adapter that was declined and what follows.
    for agent in shared.agents().await? {
        give_up(&shared, &agent).await?;
    }
    let open = shared.persist(|| shared.log.open_steps()).await?;
    if open.is_empty() {
        return Ok(true);
    }
    let runner = context.runner().await?;
    // Answered only after whatever the earlier process had asked to be written.
    let checkpoints = runner.checkpoints().await;
    let checkpoints = checkpoints.map_err(|error| shared.no_trainer(&error))?;
    let checkpoints = checkpoints.unwrap_or_default();
    let mut all = true;
    for step in &open {
        let made = checkpoints.iter().find(|known| is_of(known, step));
        let site = context.site_with(runner.clone(), &step.begun.agent);
        all &= Recovery { site, step }.settle(made).await?;
    }
    Ok(all)
}

fn is_of(known: &KnownCheckpoint, step: &Step) -> bool {
    let (manifest, begun) = (&known.manifest, &step.begun);
    manifest.agent == begun.agent
        && manifest.lineage == begun.lineage
        && manifest.n == begun.n
        && manifest.hash == begun.hash
}

// === impl Recovery ===

impl Recovery<'_> {
    async fn settle(mut self, made: Option<&KnownCheckpoint>) -> Result<bool, LogError> {
        let agent = self.site.agent;
        let Some(made) = made else {
            let why = "interrupted before its checkpoint".to_owned();
            return self.release(why).await;
        };
        match self.adopt(made).await {
            Ok(candidate) => {
                let (site, adapter) = (self.site, candidate.adapter.clone());
                let state = Made(candidate);
                let step = TrainingStep { site, state }.test().await?;
                let (site, outcome) = step.conclude().await?;
                tracing::info!(%agent, %adapter, ?outcome, "a step that was interrupted is done");
                let recorder = &site.shared.recorder;
                recorder.record(StepRecord::recovered(made, now_ms())).await;
                Ok(true)
            }
            Err(failed) if self.may_wait(&failed) => {
                tracing::warn!(%agent, error = %failed, "a step that was interrupted cannot be settled yet");
                Ok(false)
            }
            Err(failed) => {
                self.site.state.set_unfit(made.name.clone());
                let why = format!("its checkpoint {} cannot be used: {failed}", made.name);
                self.release(why).await
            }
        }
    }

    fn may_wait(&mut self, failed: &StepFailure) -> bool {
        if failed.error.is_unreachable() {
            return true;
        }
        let n_unsettled = &mut self.site.state.n_unsettled;
        *n_unsettled += 1;
        failed.may_pass() && *n_unsettled < MOST_FAILURES
    }

    async fn release(self, why: String) -> Result<bool, LogError> {
        let begun = &self.step.begun;
        tracing::warn!(agent = %begun.agent, n = begun.n, why, "a step that was interrupted was not made: its turns are free again");
        let outcome = StepOutcome::Released { why };
        self.site.finish(begun.n, outcome).await?;
        Ok(true)
    }

    async fn adopt(&mut self, made: &KnownCheckpoint) -> Result<Candidate, StepFailure> {
        // An adapter has the name of its checkpoint.
        let adapter = AdapterName::from(&made.name);
        let candidate = Candidate::from_checkpoint(made, adapter);
        let (runner, state) = (&self.site.runner, &mut *self.site.state);
        let run = &mut state.run;
        let id = runner.put_at(run, &candidate.point).await?;
        let sha256 = runner.save_made(run, &id, made, &candidate.adapter).await?;
        run.at = Some(candidate.point.clone());
        state.stepped(candidate.point.clone(), made.manifest.shape.clone());
        Ok(Candidate {
            choice_ms: self.step.begun.choice_ms,
            sha256,
            ..candidate
        })
    }
}

/// Serves again what the log says was served.
///
/// # Errors
/// The log's.
pub(crate) async fn serve_again(shared: &Shared) -> Result<Vec<(AgentId, String)>, LogError> {
    tell_untold(shared).await?;
    let serving = shared.persist(|| shared.log.serving()).await?;
    for (agent, adapter) in &serving {
        match adapter.parse() {
            Ok(name) => (shared.on_swap)(agent, Some(&name)),
            Err(error) => {
                tracing::error!(%agent, %error, "the log names an adapter that cannot be one");
            }
        }
    }
    Ok(serving)
}

/// Tells the library which wishes each adapter does without being told: any of them may come to serve again.
async fn tell_untold(shared: &Shared) -> Result<(), LogError> {
    let Some(library) = &shared.library else {
        return Ok(());
    };
    for agent in shared.agents().await? {
        for step in shared.steps(&agent).await? {
            let Some(StepOutcome::Trained {
                adapter,
                gate: Some(gate),
                ..
            }) = step.outcome
            else {
                continue;
            };
            // What an older version wrote has none.
            if let Ok(GateReport { untold, .. }) = serde_json::from_value(gate) {
                library.set_untold(&adapter, untold);
            }
        }
    }
    Ok(())
}
