//! The trainer as it is now: what it can do, what it keeps, and what it answers of an adapter.

use std::sync::Arc;

use metaclaw_trainer_api::{
    AdapterName, BackendError, CheckpointName, LossFn, TrainingBackend,
    wire::{Capabilities, SampleRequest},
};

use super::candidate::Candidate;
use crate::{
    config::{RlConfig, TargetForm},
    error::TrainError,
    lineage::{Known, Made, Replayed, ResumePoint, known},
};

/// What a server answers about an adapter that it will never serve.
const UNFIT: [&str; 4] = [
    "weights_not_finite",
    "adapter_damaged",
    "adapter_refused",
    "model_not_found",
];

/// The trainer, and how steps are made with it.
#[derive(Debug, Clone)]
pub(crate) struct StepRunner {
    pub(crate) backend: Arc<dyn TrainingBackend>,
    pub(crate) rl: RlConfig,
    /// The fingerprint of its base model, where it tells.
    pub(crate) base: Option<String>,
    /// What it can do. Where checkpoints keep no manifests (a fork's server), every attempt begins at
    /// checkpoint n-1 again and overwrites n.
    pub(crate) capabilities: Capabilities,
    /// The replay that it makes steps of, if it does.
    pub(crate) replay: Option<Replayed>,
}

// === impl StepRunner ===

impl StepRunner {
    /// Has a candidate in memory before requests are sent to it, and asks it for a token; why it is not fit to serve,
    /// if it is not. Where the server does not answer, it serves all the same: the first request waits for it.
    pub(crate) async fn try_adapter(&self, candidate: &Candidate) -> Option<String> {
        // A fork's server loads what it saves.
        if !self.capabilities.manifests {
            return None;
        }
        let name = &candidate.adapter;
        let error = match self.backend.load_adapter(name.clone()).await {
            Ok(loaded) => {
                let saved = candidate.sha256.as_ref();
                if let Some(saved) = saved.filter(|saved| **saved != loaded.sha256) {
                    let is = loaded.sha256;
                    return Some(format!("it is {is}, and {saved} was saved under its name"));
                }
                self.backend.sample(one_token(name)).await.err()?
            }
            Err(error) => error,
        };
        if error.code().is_some_and(|code| UNFIT.contains(&code)) {
            return Some(error.to_string());
        }
        tracing::warn!(adapter = %name, %error, "not loaded before it serves");
        None
    }

    /// The seed of the first weights of a lineage.
    pub(crate) fn seed(&self, point: &ResumePoint) -> u64 {
        let chosen = self.replay.as_ref().and_then(|replay| replay.seed);
        chosen.unwrap_or_else(|| point.seed())
    }

    /// With what a step from here is made.
    pub(crate) fn made(&self, point: &ResumePoint) -> Made {
        Made::here(self.seed(point), &self.rl, self.replay.clone())
    }

    /// Has old checkpoints deleted, but for those that are needed. What is not deleted now is the next time.
    pub(crate) async fn prune(&self, needed: Vec<CheckpointName>) {
        // A fork's server deletes nothing, and a replay does not know what serves.
        if !self.capabilities.manifests || self.replay.is_some() {
            return;
        }
        match self.backend.prune(needed).await {
            Ok(deleted) if deleted.is_empty() => {}
            Ok(deleted) => tracing::info!(n = deleted.len(), "old checkpoints deleted"),
            Err(error) => tracing::warn!(%error, "old checkpoints were not deleted"),
        }
    }

    /// Whether the server has what a batch needs.
    pub(crate) fn has(&self, losses: &[LossFn]) -> Result<(), TrainError> {
        if self.rl.target == TargetForm::TopK && !self.capabilities.matrix_targets {
            let why = "the training server takes one target a token: set rl.target to one_hot";
            return Err(TrainError::NotTaken {
                why: why.to_owned(),
            });
        }
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

    /// The server's checkpoints that are ours; none where it cannot list them.
    pub(crate) async fn checkpoints(&self) -> Result<Option<Vec<Known>>, BackendError> {
        if !self.capabilities.manifests {
            return Ok(None);
        }
        Ok(Some(known(self.backend.checkpoints().await?)))
    }
}

/// The shortest use of an adapter that there is.
fn one_token(adapter: &AdapterName) -> SampleRequest {
    SampleRequest {
        tokens: vec![0],
        num_samples: 1,
        temperature: 0.0,
        max_tokens: 1,
        top_k: 0,
        top_p: 1.0,
        stop: None,
        model: Some(adapter.to_string()),
        seed: None,
    }
}
