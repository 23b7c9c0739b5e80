//! Checkpoints: all that training goes on from, and the caller's manifest.
//!
//! A checkpoint is an adapter folder (so it can be served as it is) with three files more:
//! `optimizer.safetensors`, `state.json`, and `manifest.json`, which is the caller's own and kept as given.
//! It is the point of truth of the learner's step transaction, so it appears whole or not at all. The numbers of
//! its adapter and of the adapter of the same name and content are one file with two names.

mod index;
mod state;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use metaclaw_trainer_terms::{AdapterName, CheckpointName};
use serde_json::Value;
use tch::Tensor;

pub use self::index::{CheckpointEntry, CheckpointIndex};
use self::state::{MANIFEST, State};
use crate::adapter::{self, AdapterError, BaseId, BaseSpec, Files, pretty};
use crate::folder;
use crate::lora::{self, Lora, LoraError};
use crate::optim::AdamState;
use crate::placement::Placement;
use crate::tensors;
use crate::torch::Result;

/// The state that training continues from.
#[derive(Debug)]
pub struct TrainingSnapshot {
    pub lora: Lora,
    pub adam: AdamState,
    /// The seed that the run began with.
    pub seed: u64,
    /// As [`CheckpointEntry::line`].
    pub line: String,
}

const OPTIMIZER: &str = "optimizer.safetensors";

impl TrainingSnapshot {
    /// Makes new handles on the same tensors. Parameters and state are never written in place, so another thread can
    /// save them while training continues.
    ///
    /// # Shapes
    /// As they are.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn handles(&self) -> Result<Self> {
        self.with(self.lora.handles()?)
    }

    /// The same snapshot with each parameter and its optimiser state on the device of its layer. Tensors that are
    /// already there are shared.
    ///
    /// # Shapes
    /// As they are, f32.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn placed(&self, placement: &Placement) -> Result<Self> {
        self.with(self.lora.placed(placement)?)
    }

    fn with(&self, lora: Lora) -> Result<Self> {
        let beside = |tensors: &[Tensor]| {
            let pairs = tensors.iter().zip(lora.params());
            let moved = pairs.map(|(t, param)| t.f_detach()?.f_to_device(param.device()));
            moved.collect::<Result<Vec<_>, _>>()
        };
        let adam = AdamState {
            exp_avg: beside(&self.adam.exp_avg)?,
            exp_avg_sq: beside(&self.adam.exp_avg_sq)?,
            steps: self.adam.steps,
        };
        let (seed, line) = (self.seed, self.line.clone());
        Ok(Self {
            lora,
            adam,
            seed,
            line,
        })
    }
}

/// The folder of a checkpoint under a trainer's checkpoint folder.
pub fn folder_of(checkpoint_dir: &Path, name: &CheckpointName) -> PathBuf {
    folder::checkpoints(checkpoint_dir).join(name.as_str())
}

/// Saves `<checkpoint_dir>/checkpoints/<name>`, whole or not at all, and returns that folder.
/// Gradients that wait for a step are not part of it.
///
/// The numbers of `<checkpoint_dir>/adapters/<name>` are linked where they are the same.
///
/// # Shapes
/// Of `snapshot`: parameters as [`Lora::init`] makes them and moments of their shapes; written as f32.
///
/// # Errors
/// The system's refusal.
pub fn save(
    checkpoint_dir: &Path,
    name: &CheckpointName,
    base: &BaseId,
    snapshot: &TrainingSnapshot,
    manifest: &Value,
) -> Result<PathBuf, AdapterError> {
    let target = folder_of(checkpoint_dir, name);
    let twin = adapter::folder_of(checkpoint_dir, &AdapterName::from(name));
    let TrainingSnapshot { lora, adam, .. } = snapshot;
    let state = State::new(adam.steps, snapshot.seed, &snapshot.line);
    let files = Files::of(lora, base, adam.steps)?;
    folder::replace::<AdapterError>(&target, |folder| {
        files.write(folder, &twin)?;
        let names = lora.names();
        let of = |which: &'static str, tensors| moments(&names, which, tensors);
        let [first, second] = state.moments();
        let all = of(first, &adam.exp_avg).chain(of(second, &adam.exp_avg_sq));
        tensors::write(&folder.join(OPTIMIZER), all)?;
        tensors::write_bytes(&folder.join(state::FILE), pretty(&state).as_bytes())?;
        tensors::write_bytes(&folder.join(MANIFEST), pretty(manifest).as_bytes())?;
        Ok(())
    })?;
    Ok(target)
}

/// The folder `<checkpoint_dir>/checkpoints/<name>`, if it is there.
///
/// # Errors
/// [`AdapterError::NoCheckpoint`].
pub fn existing(checkpoint_dir: &Path, name: &CheckpointName) -> Result<PathBuf, AdapterError> {
    let folder = folder_of(checkpoint_dir, name);
    if folder.exists() {
        return Ok(folder);
    }
    Err(AdapterError::NoCheckpoint {
        name: name.clone(),
        folder: folder::checkpoints(checkpoint_dir),
    })
}

/// Loads `<checkpoint_dir>/checkpoints/<name>`.
///
/// # Shapes
/// Parameters as [`Lora::init`] makes them and moments of their shapes; f32, on the CPU.
///
/// # Errors
/// As [`adapter::read`], a state or an optimiser file that is missing, damaged or does not fit, and an adapter that
/// is not the one that was saved.
pub fn load(
    checkpoint_dir: &Path,
    name: &CheckpointName,
    base: &BaseSpec,
) -> Result<TrainingSnapshot, AdapterError> {
    let folder = existing(checkpoint_dir, name)?;
    let state = State::read(&folder)?;
    let lora = read_lora(&folder, base)?;
    let file = folder.join(OPTIMIZER);
    let mut tensors = tensors::read(&file)?;
    let [first, second] = state.moments();
    let fits = take(&mut tensors, &lora, first)
        .and_then(|mean| Ok((mean, take(&mut tensors, &lora, second)?)));
    let (exp_avg, exp_avg_sq) = fits.map_err(|source| AdapterError::Tensors { file, source })?;
    let adam = AdamState {
        exp_avg,
        exp_avg_sq,
        steps: state.step,
    };
    Ok(TrainingSnapshot {
        lora,
        adam,
        seed: state.seed,
        line: state.line,
    })
}

/// Reads the adapter of a checkpoint. Checkpoints are not edited by hand, so a different fingerprint is damage.
fn read_lora(folder: &Path, base: &BaseSpec) -> Result<Lora, AdapterError> {
    let read = adapter::read(folder, base)?;
    match adapter::info(folder)?.sha256 {
        Some(wanted) if wanted != read.sha256 => Err(AdapterError::Content {
            folder: folder.into(),
            found: read.sha256,
            wanted,
        }),
        Some(_) | None => Ok(read.lora),
    }
}

/// The optimiser's tensors by name: `exp_avg.<PEFT name>`, `exp_avg_sq.<PEFT name>`.
fn moments<'a>(
    names: &'a [String],
    which: &'static str,
    tensors: &'a [Tensor],
) -> impl Iterator<Item = (String, &'a Tensor)> {
    let named = names.iter().zip(tensors);
    named.map(move |(name, tensor)| (format!("{which}.{name}"), tensor))
}

fn take(
    tensors: &mut BTreeMap<String, Tensor>,
    lora: &Lora,
    which: &'static str,
) -> Result<Vec<Tensor>, LoraError> {
    let pairs = lora.names().into_iter().zip(lora.params());
    let taken = pairs.map(|(name, param)| {
        let name = format!("{which}.{name}");
        lora::take(tensors, name, &param.size())
    });
    taken.collect()
}
