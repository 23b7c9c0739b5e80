//! Settling the steps that an earlier process left open, before anything else is trained.
//!
//! A checkpoint with the step's hash means that the step was made: its turns are trained and its
//! adapter is served. Without one it was not: its turns are free again, and the weights are those of
//! checkpoint n-1, since nothing without a checkpoint is ever loaded.

use metaclaw_chat::AgentId;
use metaclaw_turns::{Step, StepOutcome};

use crate::{
    context::TrainingContext,
    error::TrainError,
    lineage::{Head, Known, names},
    shared::Shared,
    step::{Bench, Trouble},
};

/// The settling of one step that was left open.
struct Recovery<'a> {
    context: &'a mut TrainingContext,
    bench: &'a Bench,
    step: &'a Step,
}

/// Settles every open step, once.
///
/// # Errors
/// [`TrainError::NoTrainer`] while the checkpoints cannot be asked: then nothing was changed for the rest.
pub(crate) async fn recover(context: &mut TrainingContext) -> Result<(), TrainError> {
    let shared = &context.shared;
    let open = shared.persist(|| shared.log.open_steps()).await?;
    if open.is_empty() {
        return Ok(());
    }
    let bench = &context.bench().await?;
    for step in &open {
        let recovery = Recovery {
            context,
            bench,
            step,
        };
        recovery.settle().await?;
    }
    Ok(())
}

impl Recovery<'_> {
    async fn settle(mut self) -> Result<(), TrainError> {
        let step = self.step;
        let outcome = match self.made().await {
            Ok(Some(known)) => self.adopt(&known).await?,
            Ok(None) => StepOutcome::Released {
                why: "interrupted before its checkpoint".to_owned(),
            },
            Err(trouble) => return Err(self.context.no_trainer(&trouble)),
        };
        tracing::info!(agent = %step.begun.agent, n = step.begun.n, ?outcome, "settled a step that was interrupted");
        let is_served = self.context.finish(&step.begun, outcome).await?;
        if is_served
            && let Ok((adapter, _)) = names(&step.begun.agent, &step.begun.lineage, step.begun.n)
        {
            self.bench.preload(&adapter).await;
            (self.context.shared.on_swap)(&step.begun.agent, &adapter);
        }
        Ok(())
    }

    /// The step's checkpoint, if there is one.
    async fn made(&mut self) -> Result<Option<Known>, Trouble> {
        let (bench, step) = (self.bench, self.step);
        if !bench.capabilities.manifests {
            return Ok(None);
        }
        // Answered only after whatever the earlier process had asked for.
        let desk = &mut self.context.agent(&step.begun.agent).desk;
        bench.barrier(desk, &before(step)).await?;
        let checkpoints = bench.checkpoints().await?;
        let is_it = |known: &Known| {
            known.manifest.agent == step.begun.agent
                && known.manifest.lineage == step.begun.lineage
                && known.manifest.n == step.begun.n
                && known.manifest.hash == step.begun.hash
        };
        Ok(checkpoints.into_iter().find(is_it))
    }

    /// Sees that the checkpoint's adapter can be served.
    async fn adopt(&mut self, known: &Known) -> Result<StepOutcome, TrainError> {
        let step = self.step;
        let (adapter, checkpoint) = names(&step.begun.agent, &step.begun.lineage, step.begun.n)
            .map_err(|error| TrainError::NotTaken {
                why: error.to_string(),
            })?;
        let head = Head {
            lineage: step.begun.lineage.clone(),
            n: step.begun.n,
            checkpoint: Some(checkpoint.clone()),
            choice_ms: None,
        };
        let state = self.context.agent(&step.begun.agent);
        match self.bench.adopt(&mut state.desk, &head, &adapter).await {
            Ok(()) => state.stepped(head, known.manifest.shape.clone()),
            Err(trouble) => return Err(self.context.no_trainer(&trouble)),
        }
        Ok(StepOutcome::Trained {
            adapter: adapter.to_string(),
            checkpoint: checkpoint.to_string(),
        })
    }
}

/// Where the step began.
fn before(step: &Step) -> Head {
    let checkpoint = step
        .begun
        .parent
        .as_ref()
        .and_then(|name| name.parse().ok());
    Head {
        lineage: step.begun.lineage.clone(),
        n: step.begun.n.saturating_sub(1),
        checkpoint,
        choice_ms: step.begun.choice_ms,
    }
}

/// Serves again what the log says was served.
///
/// # Errors
/// The log's.
pub(crate) async fn serve_again(
    shared: &Shared,
) -> Result<Vec<(AgentId, String)>, metaclaw_turns::LogError> {
    let serving = shared.persist(|| shared.log.serving()).await?;
    for (agent, adapter) in &serving {
        match adapter.parse() {
            Ok(name) => (shared.on_swap)(agent, &name),
            Err(error) => {
                tracing::error!(%agent, %error, "the log names an adapter that cannot be one");
            }
        }
    }
    Ok(serving)
}
