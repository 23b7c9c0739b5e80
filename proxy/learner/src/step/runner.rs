//! The trainer's half of a step: from checkpoint n-1 to checkpoint n, exactly once.
//!
//! No call is repeated on its own. After anything that leaves doubt the whole attempt begins again: the
//! run is put back to checkpoint n-1, which drops gradients, and the checkpoints are asked whether n is
//! there with this step's hash. Putting the run back comes first, because the trainer does one thing
//! after another: once that is answered, nothing of an earlier attempt can still be under way.

use std::sync::Arc;

use metaclaw_trainer_api::{
    AdapterName, BackendError, CheckpointName, LossConfig, LossFn, RunId, TrainingBackend,
    wire::{AdamSettings, Capabilities, CreateRequest, ForwardBackwardRequest, OptimStepRequest},
};
use metaclaw_turns::{Choice, Step};

use crate::{
    config::RlConfig,
    error::TrainError,
    lineage::{Head, Known, Numbers, Shape, known},
    plan::Plan,
    rate,
};

/// The training run of one agent, and what it holds.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    run: Option<RunId>,
    /// The head that the run stands at; none after anything that leaves doubt.
    at: Option<Head>,
    /// All parameters of the model, as the trainer said.
    n_params: Option<f64>,
}

/// Why an attempt did not get through.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// Nobody there, or no telling what was done: look again.
    #[error("{0}")]
    Again(BackendError),
    /// The server will not do it, however often it is asked.
    #[error("{error}")]
    Refused {
        /// Whether it is the samples that it refuses.
        samples: bool,
        error: BackendError,
    },
}

/// The trainer, and how steps are made with it.
#[derive(Debug, Clone)]
pub(crate) struct Bench {
    pub(crate) backend: Arc<dyn TrainingBackend>,
    pub(crate) rl: RlConfig,
    /// What it can do. Where checkpoints keep no manifests (a fork's server), every attempt begins at
    /// checkpoint n-1 again and overwrites n.
    pub(crate) capabilities: Capabilities,
}

// === impl Desk ===

impl Desk {
    /// Notes what a failed call leaves behind.
    fn failed(&mut self, error: &BackendError) {
        self.at = None;
        if error.is_unreachable() || error.is_unknown_run() {
            // Whoever answers next may be another process.
            self.run = None;
        }
    }
}

// === impl Bench ===

impl Bench {
    /// One attempt at a step, up to its saved adapter.
    ///
    /// # Cancel safety
    /// A dropped attempt leaves `desk` in doubt, as a lost answer does.
    pub(crate) async fn attempt(&self, desk: &mut Desk, plan: &Plan) -> Result<Numbers, Trouble> {
        let numbers = self.attempt_inner(desk, plan).await?;
        desk.at = Some(plan.after());
        Ok(numbers)
    }

    async fn attempt_inner(&self, desk: &mut Desk, plan: &Plan) -> Result<Numbers, Trouble> {
        let standing = desk.at.take().is_some_and(|at| at == plan.head);
        let run = match desk.run.clone().filter(|_| standing) {
            Some(run) => run,
            None => self.put_at(desk, &plan.head).await?,
        };
        // A run that never left the head cannot have made the step.
        if !standing && let Some(made) = self.find(desk, plan).await? {
            self.load(desk, &run, &plan.checkpoint).await?;
            self.save_adapter(desk, &run, &plan.adapter).await?;
            return Ok(made.manifest.numbers);
        }
        let numbers = self.train(desk, &run, plan).await?;
        let manifest = serde_json::to_value(plan.manifest(numbers)).unwrap_or_default();
        let saved = self
            .backend
            .save_checkpoint(run.clone(), plan.checkpoint.clone(), manifest)
            .await;
        seen(desk, saved)?;
        self.save_adapter(desk, &run, &plan.adapter).await?;
        Ok(numbers)
    }

    /// A run that stands at `head`, with no gradients.
    pub(crate) async fn put_at(&self, desk: &mut Desk, head: &Head) -> Result<RunId, Trouble> {
        let run = match (desk.run.clone(), &head.checkpoint) {
            (Some(run), Some(_)) => run,
            // Only a new run has a fresh adapter.
            _ => self.create(desk, head).await?,
        };
        if let Some(checkpoint) = &head.checkpoint {
            self.load(desk, &run, checkpoint).await?;
        }
        Ok(run)
    }

    async fn create(&self, desk: &mut Desk, head: &Head) -> Result<RunId, Trouble> {
        if let Some(old) = desk.run.take()
            && let Err(error) = self.backend.close_run(old.clone()).await
        {
            // It is gone already, or goes when the server wants its memory.
            tracing::debug!(run = %old, %error, "not closed");
        }
        let request = CreateRequest {
            rank: self.rl.lora_rank,
            lora_alpha: Some(self.rl.lora_alpha),
            seed: Some(head.seed()),
            targets: Some(self.rl.targets.0.clone()),
            ..CreateRequest::default()
        };
        let reply = seen(desk, self.backend.create_run(request).await)?;
        desk.n_params = rate::n_params(&reply.trainable_params);
        desk.run = Some(reply.session_id.clone());
        Ok(reply.session_id)
    }

    async fn load(
        &self,
        desk: &mut Desk,
        run: &RunId,
        checkpoint: &CheckpointName,
    ) -> Result<(), Trouble> {
        let loaded = self
            .backend
            .load_checkpoint(run.clone(), checkpoint.to_string())
            .await;
        seen(desk, loaded).map(|_| ())
    }

    /// The step's checkpoint, if an earlier attempt made it.
    async fn find(&self, desk: &mut Desk, plan: &Plan) -> Result<Option<Known>, Trouble> {
        if !self.capabilities.manifests {
            return Ok(None);
        }
        let checkpoints = seen(desk, self.backend.checkpoints().await)?;
        let made =
            |known: &Known| known.name == plan.checkpoint && known.manifest.hash == plan.hash;
        Ok(known(checkpoints).into_iter().find(made))
    }

    /// The gradients of every group, added up, and one step along them.
    async fn train(&self, desk: &mut Desk, run: &RunId, plan: &Plan) -> Result<Numbers, Trouble> {
        let mut loss = 0.0;
        for group in &plan.groups {
            let request = ForwardBackwardRequest {
                session_id: run.clone(),
                datums: group.datums.clone(),
                loss_fn: group.loss,
                loss_fn_config: LossConfig::new(),
            };
            let done = self.backend.forward_backward(request).await;
            loss += seen(desk, done).map_err(Trouble::of_samples)?.loss;
        }
        let learning_rate = plan.rate(&self.rl, desk.n_params);
        let request = OptimStepRequest {
            session_id: run.clone(),
            learning_rate,
            adam: self.adam(),
        };
        let stepped = seen(desk, self.backend.optim_step(request).await);
        let stepped = stepped.map_err(Trouble::of_gradient)?;
        if stepped.skipped {
            // The checkpoint is made all the same: these samples are used up, the weights stay.
            tracing::warn!(
                grad_norm = stepped.grad_norm,
                median = stepped.median_grad_norm,
                "the trainer skipped a step whose gradient is out of line"
            );
        }
        Ok(Numbers {
            loss,
            grad_norm: stepped.grad_norm,
            learning_rate,
        })
    }

    fn adam(&self) -> AdamSettings {
        AdamSettings {
            beta1: Some(self.rl.beta1),
            beta2: Some(self.rl.beta2),
            eps: Some(self.rl.eps),
            weight_decay: Some(self.rl.weight_decay),
            grad_clip_norm: Some(self.rl.clip_norm),
            skip_over: None,
        }
    }

    /// Saves the adapter of a run that stands at its checkpoint. One that is there may be another attempt's: the
    /// server knows by its content, and writes nothing where it is the same.
    pub(crate) async fn save_adapter(
        &self,
        desk: &mut Desk,
        run: &RunId,
        name: &AdapterName,
    ) -> Result<(), Trouble> {
        let saved = self.backend.save_adapter(run.clone(), name.clone()).await;
        seen(desk, saved).map(|_| ())
    }

    /// Has an adapter in memory before requests are sent to it. Without that, the first of them waits for it.
    pub(crate) async fn preload(&self, name: &AdapterName) {
        // A fork's server loads what it saves.
        if !self.capabilities.manifests {
            return;
        }
        if let Err(error) = self.backend.load_adapter(name.clone()).await {
            tracing::warn!(adapter = %name, %error, "not loaded before it serves");
        }
    }

    /// Has old checkpoints deleted, but for those that are needed. What is not deleted now is the next time.
    pub(crate) async fn prune(&self, needed: Vec<CheckpointName>) {
        // A fork's server deletes nothing.
        if !self.capabilities.manifests {
            return;
        }
        match self.backend.prune(needed).await {
            Ok(deleted) if deleted.is_empty() => {}
            Ok(deleted) => tracing::info!(n = deleted.len(), "old checkpoints deleted"),
            Err(error) => tracing::warn!(%error, "old checkpoints were not deleted"),
        }
    }

    /// Puts a run at a checkpoint that is there and sees that its adapter is.
    pub(crate) async fn adopt(
        &self,
        desk: &mut Desk,
        head: &Head,
        name: &AdapterName,
    ) -> Result<(), Trouble> {
        let run = self.put_at(desk, head).await?;
        self.save_adapter(desk, &run, name).await?;
        desk.at = Some(head.clone());
        Ok(())
    }

    /// Whether the step's checkpoint is certainly not there, nor on its way.
    pub(crate) async fn has_not(&self, desk: &mut Desk, plan: &Plan) -> bool {
        let put_back = self.put_at(desk, &plan.head).await;
        put_back.is_ok() && matches!(self.find(desk, plan).await, Ok(None))
    }

    /// Waits for whatever was asked before: a new run, which stands at nothing yet.
    pub(crate) async fn barrier(&self, desk: &mut Desk, head: &Head) -> Result<(), Trouble> {
        self.create(desk, head).await.map(|_| ())
    }

    /// Whether the server has what a batch needs.
    pub(crate) fn has(&self, losses: &[LossFn]) -> Result<(), TrainError> {
        let lacks = losses
            .iter()
            .find(|loss| !self.capabilities.losses.contains(loss));
        lacks.map_or(Ok(()), |loss| {
            Err(TrainError::NoLoss {
                loss: loss.as_str(),
                method: self.rl.method.to_string(),
            })
        })
    }

    /// Where an agent's lineage stands.
    pub(crate) async fn head(&self, steps: &[Step], shape: &Shape) -> Result<Head, Trouble> {
        if !self.capabilities.manifests {
            return Ok(Head::by_log(steps));
        }
        Ok(Head::resume(steps, &self.checkpoints().await?, shape))
    }

    /// Where an agent's next lineage starts, as its owner chose.
    pub(crate) async fn chosen(&self, choice: &Choice, shape: &Shape) -> Result<Head, Trouble> {
        let known = if self.capabilities.manifests {
            Some(self.checkpoints().await?)
        } else {
            None
        };
        Ok(Head::chosen(choice, known.as_deref(), shape))
    }

    /// The server's checkpoints that are ours.
    pub(crate) async fn checkpoints(&self) -> Result<Vec<Known>, Trouble> {
        let checkpoints = self.backend.checkpoints().await;
        Ok(known(seen(&mut Desk::default(), checkpoints)?))
    }
}

/// The result of a call; a failure leaves the run in doubt.
fn seen<T>(desk: &mut Desk, result: Result<T, BackendError>) -> Result<T, Trouble> {
    result.map_err(|error| {
        desk.failed(&error);
        Trouble::of(error)
    })
}

// === impl Trouble ===

impl Trouble {
    fn of(error: BackendError) -> Self {
        let busy = matches!(error.status(), Some(409 | 425 | 429));
        if busy || error.is_unreachable() || error.is_ambiguous() || error.is_unknown_run() {
            Self::Again(error)
        } else {
            Self::Refused {
                samples: false,
                error,
            }
        }
    }

    /// The same for the call that takes the step: a gradient that is not finite is so each time.
    fn of_gradient(self) -> Self {
        match self {
            Self::Refused { error, .. } if error.is_not_finite() => Self::Refused {
                samples: true,
                error,
            },
            other => other,
        }
    }

    /// The same for the call that carries the samples.
    fn of_samples(self) -> Self {
        match self {
            Self::Refused { error, .. } if matches!(error.status(), Some(400 | 413 | 422)) => {
                Self::Refused {
                    samples: true,
                    error,
                }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_whose_gradient_is_not_finite_are_not_tried_for_ever() {
        let refused = |code: &str| {
            let error = BackendError::Status {
                call: "optim_step",
                url: "http://t".to_owned(),
                status: 400,
                code: Some(code.to_owned()),
                message: "no".to_owned(),
            };
            match Trouble::of(error).of_gradient() {
                Trouble::Refused { samples, .. } => samples,
                Trouble::Again(_) => panic!("a 400 is an answer"),
            }
        };
        assert!(refused("gradient_not_finite"));
        assert!(!refused("no_gradients"));
    }
}
