//! The trainer's half of a step: from checkpoint n-1 to checkpoint n, exactly once.
//!
//! No call is repeated on its own. After anything that leaves doubt the whole attempt begins again: the
//! run is put back to checkpoint n-1, which drops gradients, and the checkpoints are asked whether n is
//! there with this step's hash. Putting the run back comes first, because the trainer does one thing
//! after another: once that is answered, nothing of an earlier attempt can still be under way.

use metaclaw_trainer_api::{AdapterName, BackendError, RunId};

use super::{
    error::{Stage, StepError},
    micro_batches::MicroBatch,
    plan::Plan,
    run::{RunHandle, seen},
    runner::StepRunner,
};
use crate::lineage::{Known, Numbers};

/// What an attempt came to.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) numbers: Numbers,
    /// Of the adapter's content, where the server says.
    pub(crate) sha256: Option<String>,
}

// === impl StepRunner ===

impl StepRunner {
    /// One attempt at a step, up to its saved adapter.
    ///
    /// # Cancel safety
    /// A dropped attempt leaves `run` in doubt, as a lost answer does.
    pub(crate) async fn attempt(
        &self,
        run: &mut RunHandle,
        plan: &Plan,
        calls: &[MicroBatch],
    ) -> Result<Made, StepError> {
        let standing = run.at.take().is_some_and(|at| at == plan.point);
        let id = match run.id.clone().filter(|_| standing) {
            Some(id) => id,
            None => self.put_at(run, &plan.point).await?,
        };
        // A run that never left its start cannot have made the step.
        if !standing && let Some(made) = self.find(run, plan).await? {
            self.load(run, &id, &made.name, Stage::Save).await?;
            let sha256 = self.save_made(run, &id, &made, &plan.adapter).await?;
            run.at = Some(plan.after());
            let numbers = made.manifest.numbers;
            return Ok(Made { numbers, sha256 });
        }
        let numbers = self.all_epochs(run, &id, plan, calls).await?;
        let manifest = plan.manifest(numbers.clone(), self.made(&plan.point));
        let manifest = serde_json::to_value(manifest).unwrap_or_default();
        run.save_asked = true;
        let saved = self
            .backend
            .save_checkpoint(id.clone(), plan.checkpoint.clone(), manifest)
            .await;
        seen(run, Stage::Save, saved)?;
        let sha256 = self.save_adapter(run, &id, &plan.adapter).await?;
        run.at = Some(plan.after());
        Ok(Made { numbers, sha256 })
    }

    /// Saves the adapter of a run that stands at a checkpoint that a step made, and sees that its content is the
    /// checkpoint's, whatever was there under its name.
    pub(crate) async fn save_made(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        made: &Known,
        name: &AdapterName,
    ) -> Result<Option<String>, StepError> {
        let saved = self.save_adapter(run, id, name).await?;
        match (&saved, &made.sha256) {
            (Some(saved), Some(wanted)) if saved != wanted => {
                let error = BackendError::Unreadable {
                    call: "weights/save",
                    url: name.to_string(),
                    why: format!("it saved {saved}, its checkpoint has {wanted}"),
                };
                seen(run, Stage::Save, Err(error))
            }
            _ => Ok(saved),
        }
    }

    /// Saves the adapter of a run that stands at its checkpoint; the hash of what was saved.
    async fn save_adapter(
        &self,
        run: &mut RunHandle,
        id: &RunId,
        name: &AdapterName,
    ) -> Result<Option<String>, StepError> {
        let saved = self.backend.save_adapter(id.clone(), name.clone()).await;
        Ok(seen(run, Stage::Save, saved)?.sha256)
    }
}
