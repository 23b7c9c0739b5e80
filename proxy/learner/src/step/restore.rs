//! A run put where a step starts, or found where it ended.

use metaclaw_trainer_api::{CheckpointName, RunId, wire::CreateRequest};

use super::{
    error::{Stage, StepError},
    plan::Plan,
    rate,
    run::{RunHandle, seen},
    runner::StepRunner,
};
use crate::lineage::{Known, ResumePoint, known};

// === impl StepRunner ===

impl StepRunner {
    /// A run that stands where a step starts, with no gradients.
    pub(crate) async fn put_at(
        &self,
        run: &mut RunHandle,
        point: &ResumePoint,
    ) -> Result<RunId, StepError> {
        let id = match (run.id.clone(), &point.checkpoint) {
            (Some(id), Some(_)) => id,
            // Only a new run has a fresh adapter.
            _ => self.create(run, point).await?,
        };
        if let Some(checkpoint) = &point.checkpoint {
            self.load(run, &id, checkpoint, Stage::Parent).await?;
        }
        Ok(id)
    }

    async fn create(&self, run: &mut RunHandle, point: &ResumePoint) -> Result<RunId, StepError> {
        if let Some(old) = run.id.take()
            && let Err(error) = self.backend.close_run(old.clone()).await
        {
            // It is gone already, or goes when the server wants its memory.
            tracing::debug!(run = %old, %error, "not closed");
        }
        let request = CreateRequest {
            rank: self.rl.lora_rank,
            lora_alpha: Some(self.rl.lora_alpha),
            seed: Some(self.seed(point)),
            targets: Some(self.rl.targets.0.clone()),
            ..CreateRequest::default()
        };
        let created = self.backend.create_run(request).await;
        let reply = seen(run, Stage::Server, created)?;
        run.n_params = rate::n_params(&reply.trainable_params);
        run.id = Some(reply.session_id.clone());
        Ok(reply.session_id)
    }

    pub(super) async fn load(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        checkpoint: &CheckpointName,
        stage: Stage,
    ) -> Result<(), StepError> {
        let loaded = self
            .backend
            .load_checkpoint(id.clone(), checkpoint.to_string())
            .await;
        seen(run, stage, loaded).map(|_| ())
    }

    /// The step's checkpoint, if an earlier attempt made it.
    pub(super) async fn find(
        &self,
        run: &mut RunHandle,
        plan: &Plan,
    ) -> Result<Option<Known>, StepError> {
        if !self.capabilities.manifests {
            return Ok(None);
        }
        let checkpoints = seen(run, Stage::Server, self.backend.checkpoints().await)?;
        let made =
            |known: &Known| known.name == plan.checkpoint && known.manifest.hash == plan.hash;
        Ok(known(checkpoints).into_iter().find(made))
    }
}
