//! Training runs: parameters, optimiser, and the gradients that wait for a step.

mod norms;

use metaclaw_trainer_terms::CheckpointName;
use tch::{TchError, Tensor};

use self::norms::RecentNorms;
use crate::adapter::AdapterError;
use crate::checkpoint::TrainingSnapshot;
use crate::lora::{BaseDims, Lora, LoraError, LoraSpec};
use crate::model::Model;
use crate::optim::{AdamConfig, AdamState, OptimError};
use crate::placement::Placement;
use crate::train::TrainOut;

/// How a run begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunConfig {
    pub lora: LoraSpec,
    /// The seed of the initial values.
    pub seed: u64,
}

#[derive(Debug)]
pub struct OpenRun {
    state: TrainingSnapshot,
    placement: Placement,
    gradients: Vec<Tensor>,
    since_step: Tally,
    version: ParamsVersion,
    norms: RecentNorms,
    /// The checkpoint that it was last saved as or loaded from: whoever trains it may go back there.
    checkpoint: Option<CheckpointName>,
}

/// The parameters that a job began with. Gradients of other parameters must not be added to its own. The default
/// belongs to no run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ParamsVersion(u64);

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    loss: f64,
    n_tokens: usize,
}

/// The result of a step.
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

// === impl OpenRun ===

impl OpenRun {
    /// A fresh run on a model.
    ///
    /// # Errors
    /// Rank, alpha or targets that do not fit it.
    pub fn new(model: &Model, config: &RunConfig) -> Result<Self, LoraError> {
        let dims = BaseDims::of(&model.config);
        let RunConfig { lora, seed } = config.clone();
        let targets = lora.targets.of_model(&dims);
        let spec = LoraSpec { targets, ..lora };
        let lora = Lora::init(spec, dims, model.config.n_layers, seed)?;
        // Masters live where the base does.
        let lora = lora.placed(&model.placement)?;
        let adam = AdamState::new(&lora)?;
        let state = TrainingSnapshot {
            lora,
            adam,
            seed: config.seed,
            line: String::new(),
        };
        Ok(Self {
            placement: model.placement.clone(),
            ..Self::from(state)
        })
    }

    /// Bytes that it takes: parameters, both moments, and gradients, all f32.
    pub fn bytes(&self) -> usize {
        4 * size_of::<f32>() * self.lora().n_params()
    }

    /// The parameters as they are.
    ///
    /// # Shapes
    /// As [`Lora::init`] makes them; f32, each where the base's layer is.
    pub fn lora(&self) -> &Lora {
        &self.state.lora
    }

    pub fn step(&self) -> u64 {
        self.state.adam.steps
    }

    /// To be kept with a job that begins now, for [`OpenRun::accumulate_grads`].
    pub fn version(&self) -> ParamsVersion {
        self.version
    }

    /// Adds a finished job's gradients to those that wait.
    ///
    /// # Shapes
    /// Of `out` one gradient a parameter, of its shape, f32, in [`Lora::params`]' order.
    ///
    /// # Errors
    /// [`Stale`] when the parameters have changed since the job began; nothing is added.
    pub fn accumulate_grads(
        &mut self,
        begun: ParamsVersion,
        out: &mut TrainOut,
    ) -> Result<(), AccumulateError> {
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
    pub fn optim_step(&mut self, config: &AdamConfig) -> Result<StepOut, OptimError> {
        let TrainingSnapshot { lora, adam, .. } = &self.state;
        let stepped = match adam.step(lora, &self.gradients, config) {
            Ok(stepped) => stepped,
            Err(error) => {
                if matches!(error, OptimError::NotFinite { .. }) {
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

    fn forget(&mut self) {
        self.gradients.clear();
        self.since_step = Tally::default();
    }

    /// Handles on all that training goes on from, for another thread to save: nothing is copied on this one.
    ///
    /// # Shapes
    /// As [`AdamState`] and [`Lora`] have them; f32.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn snapshot(&self) -> Result<TrainingSnapshot, AdapterError> {
        Ok(self.state.handles()?)
    }

    /// Goes on from a snapshot of the checkpoint `name`; rank, alpha and targets become its own, waiting gradients
    /// are dropped. Returns the steps behind it.
    ///
    /// # Shapes
    /// As [`OpenRun::snapshot`] gives them; those of its own rank and targets take the place of the run's.
    ///
    /// # Errors
    /// What libtorch refuses; the run is as it was.
    pub fn restore(
        &mut self,
        name: CheckpointName,
        snapshot: &TrainingSnapshot,
    ) -> Result<u64, AdapterError> {
        self.state = snapshot.placed(&self.placement)?;
        self.forget();
        self.norms = RecentNorms::default();
        self.version.0 += 1;
        self.saved_as(name);
        Ok(self.step())
    }

    /// Records the checkpoint that the run was last saved as or loaded from.
    pub fn saved_as(&mut self, name: CheckpointName) {
        self.checkpoint = Some(name);
    }

    /// The checkpoint that it was last saved as or loaded from.
    pub fn checkpoint(&self) -> Option<&CheckpointName> {
        self.checkpoint.as_ref()
    }

    /// Begins the line of checkpoints `id`, unless it goes on in another.
    pub(crate) fn begin_line(&mut self, id: &str) {
        if self.state.line.is_empty() {
            id.clone_into(&mut self.state.line);
        }
    }

    /// What a person reads: `4.88M / 139.40M`, parameters trained and in all.
    pub fn trainable_params(&self, n_base: usize) -> String {
        let millions = |n: usize| format!("{:.2}M", n as f64 / 1e6);
        let n = self.lora().n_params();
        format!("{} / {}", millions(n), millions(n_base + n))
    }
}

impl From<TrainingSnapshot> for OpenRun {
    fn from(state: TrainingSnapshot) -> Self {
        Self {
            state,
            placement: Placement::on(tch::Device::Cpu),
            gradients: Vec::new(),
            since_step: Tally::default(),
            version: ParamsVersion(0),
            norms: RecentNorms::default(),
            checkpoint: None,
        }
    }
}

/// Why gradients were not added.
#[derive(Debug, thiserror::Error)]
pub enum AccumulateError {
    /// They came too late.
    #[error(transparent)]
    Stale(#[from] Stale),
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

#[cfg(test)]
mod tests;
