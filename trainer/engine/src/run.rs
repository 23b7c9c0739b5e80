//! Training runs: parameters, optimiser, and the gradients that wait for a step. Several at once.

mod norms;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tch::{TchError, Tensor};

use self::norms::RecentNorms;
use crate::adapter::{self, AdapterError, BaseId, Fit};
use crate::checkpoint::{self, Snapshot};
use crate::lora::{LayerDims, Lora, LoraError, LoraSpec};
use crate::model::Model;
use crate::optim::{AdamConfig, AdamState, StepError};
use crate::rng::SplitMix64;
use crate::train::TrainOut;

/// How a run begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunConfig {
    /// Rank, alpha, targets.
    pub lora: LoraSpec,
    /// Of the first values.
    pub seed: u64,
}

/// One run.
#[derive(Debug)]
pub struct Run {
    state: Snapshot,
    gradients: Vec<Tensor>,
    since_step: Tally,
    version: ParamsVersion,
    norms: RecentNorms,
}

/// Which parameters a job was begun with: gradients of others must not be added up with theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamsVersion(u64);

/// What was seen since the last step.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    loss: f64,
    n_tokens: usize,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepOut {
    /// Steps taken so far, this one included if it was taken.
    pub step: u64,
    /// 2-norm of the whole gradient before clipping.
    pub grad_norm: f64,
    /// Loss over targets with a loss, of all forward_backward calls since the step before.
    pub avg_loss: f64,
    /// Median of the norms of the gradients before; `None` while there are too few to judge by.
    pub median_norm: Option<f64>,
    /// Whether the gradient was so far out of line ([`AdamConfig::skip_over`]) that it was dropped.
    pub skipped: bool,
}

/// Gradients that came too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the run was stepped or reloaded while this forward_backward ran; its gradients were dropped"
)]
pub struct Stale;

/// Runs by id.
#[derive(Debug)]
pub struct Runs {
    open: BTreeMap<String, Run>,
    /// Ids by last use, the latest last.
    recent: Vec<String>,
    limit: usize,
    ids: SplitMix64,
}

/// No such run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "training run {id:?} is not open here: create one, then load a checkpoint to go on from it"
)]
pub struct UnknownRun {
    /// What was asked for.
    pub id: String,
}

// === impl Run ===

impl Run {
    /// A fresh run on a model.
    ///
    /// # Errors
    /// Rank, alpha or targets that do not fit it.
    pub fn new(model: &Model, config: &RunConfig) -> Result<Self, LoraError> {
        let dims = LayerDims::of(&model.family);
        let lora = Lora::init(
            config.lora.clone(),
            dims,
            model.family.n_layers,
            config.seed,
        )?;
        // Masters live where the base does.
        let lora = lora.to_kind(tch::Kind::Float, model.device)?;
        let adam = AdamState::new(&lora)?;
        Ok(Self::from(Snapshot {
            lora,
            adam,
            seed: config.seed,
        }))
    }

    /// The parameters as they are.
    pub fn lora(&self) -> &Lora {
        &self.state.lora
    }

    /// Steps taken.
    pub fn step(&self) -> u64 {
        self.state.adam.steps
    }

    /// To be kept with a job that begins now, for [`Run::accumulate_grads`].
    pub fn version(&self) -> ParamsVersion {
        self.version
    }

    /// Adds a finished job's gradients to those that wait.
    ///
    /// # Errors
    /// [`Stale`] when the parameters have changed since the job began; nothing is added.
    pub fn accumulate_grads(
        &mut self,
        begun: ParamsVersion,
        out: &mut TrainOut,
    ) -> Result<(), AbsorbError> {
        if begun != self.version {
            return Err(Stale.into());
        }
        let fresh = std::mem::take(&mut out.gradients);
        if self.gradients.is_empty() {
            self.gradients = fresh;
        } else {
            // In place: they are the run's own, and nobody has seen them.
            for (sum, grad) in self.gradients.iter_mut().zip(&fresh) {
                let _ = sum.f_add_(grad)?;
            }
        }
        self.since_step.loss += out.loss;
        self.since_step.n_tokens += out.n_loss_tokens;
        Ok(())
    }

    /// One AdamW step on the gradients that wait, which are then gone; or none, where they are far out of line.
    ///
    /// # Errors
    /// No gradients, a setting out of range (gradients are kept), a gradient that is not finite
    /// (gradients are dropped). Parameters are as before in every case.
    pub fn optim_step(&mut self, config: &AdamConfig) -> Result<StepOut, StepError> {
        let Snapshot { lora, adam, .. } = &self.state;
        let stepped = match adam.step(lora, &self.gradients, config) {
            Ok(stepped) => stepped,
            Err(error) => {
                if matches!(error, StepError::NotFinite { .. }) {
                    self.forget();
                }
                return Err(error);
            }
        };
        let (grad_norm, median_norm) = (stepped.grad_norm, self.norms.median());
        let skipped = self.norms.is_outlier(grad_norm, config.skip_over);
        self.norms.push(grad_norm);
        let Tally { loss, n_tokens } = self.since_step;
        if !skipped {
            self.state.lora = stepped.lora;
            self.state.adam = stepped.state;
            self.version.0 += 1;
        }
        self.forget();
        let avg_loss = if n_tokens == 0 {
            0.0
        } else {
            loss / n_tokens as f64
        };
        Ok(StepOut {
            step: self.step(),
            grad_norm,
            avg_loss,
            median_norm,
            skipped,
        })
    }

    /// Drops the gradients that wait.
    fn forget(&mut self) {
        self.gradients.clear();
        self.since_step = Tally::default();
    }

    /// A copy of all that training goes on from: writing takes a disk's time, which the engine's thread
    /// has not.
    ///
    /// # Errors
    /// For want of memory.
    pub fn snapshot(&self) -> Result<Snapshot, AdapterError> {
        Ok(self.state.try_copy()?)
    }

    /// Saves the adapter for serving.
    ///
    /// # Errors
    /// As [`adapter::save`].
    pub fn save_adapter(
        &self,
        checkpoint_dir: &Path,
        name: &str,
        base: &BaseId,
    ) -> Result<PathBuf, AdapterError> {
        adapter::save(checkpoint_dir, name, self.lora(), base, self.step())
    }

    /// Saves all that training goes on from.
    ///
    /// # Errors
    /// As [`checkpoint::save`].
    pub fn save_checkpoint(
        &self,
        checkpoint_dir: &Path,
        name: &str,
        base: &BaseId,
        manifest: &Value,
    ) -> Result<PathBuf, AdapterError> {
        checkpoint::save(checkpoint_dir, name, base, &self.state, manifest)
    }

    /// Goes on from a checkpoint; rank, alpha and targets become its own, waiting gradients are dropped.
    /// Returns the steps behind it.
    ///
    /// # Errors
    /// As [`checkpoint::load`]; the run is as it was.
    pub fn load_checkpoint(
        &mut self,
        checkpoint_dir: &Path,
        name: &str,
        fit: &Fit<'_>,
    ) -> Result<u64, AdapterError> {
        let device = self.lora().params().next().map(Tensor::device);
        let loaded = checkpoint::load(checkpoint_dir, name, fit)?;
        self.state = loaded.to_device(device.unwrap_or(tch::Device::Cpu))?;
        self.forget();
        self.norms = RecentNorms::default();
        self.version.0 += 1;
        Ok(self.step())
    }

    /// What a person reads: `4.88M / 139.40M`, parameters trained and in all.
    pub fn trainable_params(&self, n_base: usize) -> String {
        let millions = |n: usize| format!("{:.2}M", n as f64 / 1e6);
        let n = self.lora().n_params();
        format!("{} / {}", millions(n), millions(n_base + n))
    }
}

impl From<Snapshot> for Run {
    fn from(state: Snapshot) -> Self {
        Self {
            state,
            gradients: Vec::new(),
            since_step: Tally::default(),
            version: ParamsVersion(0),
            norms: RecentNorms::default(),
        }
    }
}

/// Why gradients were not added.
#[derive(Debug, thiserror::Error)]
pub enum AbsorbError {
    /// They came too late.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// libtorch refused.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

// === impl Runs ===

impl Runs {
    /// At most `limit` runs; opening one more closes the one that was not used for longest, and says so.
    pub fn new(limit: usize, seed: u64) -> Self {
        Self {
            open: BTreeMap::new(),
            recent: Vec::new(),
            limit: limit.max(1),
            ids: SplitMix64::new(seed),
        }
    }

    /// Opens a run and returns its id, 8 hexadecimal digits.
    pub fn open(&mut self, run: Run) -> String {
        while self.open.len() >= self.limit {
            let oldest = self.recent.remove(0);
            self.open.remove(&oldest);
            tracing::warn!(
                run = oldest,
                limit = self.limit,
                "closed: too many training runs"
            );
        }
        let id = loop {
            let id = format!("{:08x}", self.ids.next_u64() >> 32);
            if !self.open.contains_key(&id) {
                break id;
            }
        };
        self.open.insert(id.clone(), run);
        self.recent.push(id.clone());
        id
    }

    /// The run of an id.
    ///
    /// # Errors
    /// [`UnknownRun`].
    pub fn get(&mut self, id: &str) -> Result<&mut Run, UnknownRun> {
        let Some(run) = self.open.get_mut(id) else {
            return Err(UnknownRun { id: id.into() });
        };
        self.recent.retain(|other| other != id);
        self.recent.push(id.into());
        Ok(run)
    }
}

#[cfg(test)]
mod tests;
