//! Checkpoints: all that training goes on from, and the caller's manifest.
//!
//! A checkpoint is an adapter folder (so it can be served as it is) with three files more:
//! `optimizer.safetensors`, `state.json`, and `manifest.json`, which is the caller's own and kept as given.
//! It is the point of truth of the learner's step transaction, so it appears whole or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tch::{Device, Kind, TchError, Tensor};

use crate::adapter::{self, AdapterError, BaseId, Fit, from_json, pretty};
use crate::folder;
use crate::lora::{Lora, LoraError};
use crate::optim::AdamState;
use crate::tensors;

/// What training goes on from.
#[derive(Debug)]
pub struct Snapshot {
    /// The parameters.
    pub lora: Lora,
    /// The optimiser.
    pub adam: AdamState,
    /// The seed that the run began with.
    pub seed: u64,
}

/// A checkpoint on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointInfo {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub path: PathBuf,
    /// Optimiser steps behind it.
    pub step: u64,
    /// The caller's manifest; null when none was given.
    pub manifest: Value,
    /// When it was saved, unix milliseconds.
    pub created_ms: u64,
}

impl Snapshot {
    /// A copy that shares no memory, so that another thread can save it while training goes on.
    ///
    /// # Errors
    /// For want of memory.
    pub fn try_copy(&self) -> Result<Self, TchError> {
        let copies = |tensors: &[Tensor]| -> Result<Vec<_>, TchError> {
            tensors.iter().map(Tensor::f_detach_copy).collect()
        };
        Ok(Self {
            lora: self.lora.try_map(Tensor::f_detach_copy)?,
            adam: AdamState {
                mean: copies(&self.adam.mean)?,
                square: copies(&self.adam.square)?,
                steps: self.adam.steps,
            },
            seed: self.seed,
        })
    }
}

/// `state.json`.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    format: u32,
    step: u64,
    seed: u64,
    created_ms: u64,
}

const OPTIMIZER: &str = "optimizer.safetensors";
const STATE: &str = "state.json";
const MANIFEST: &str = "manifest.json";
const FORMAT: u32 = 1;

impl Snapshot {
    /// The same on another device.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn to_device(self, device: Device) -> Result<Self, TchError> {
        let moved = |tensors: &[Tensor]| {
            let moved = tensors.iter().map(|tensor| tensor.f_to_device(device));
            moved.collect::<Result<Vec<_>, _>>()
        };
        let Self { lora, adam, seed } = self;
        Ok(Self {
            lora: lora.to_kind(Kind::Float, device)?,
            adam: AdamState {
                mean: moved(&adam.mean)?,
                square: moved(&adam.square)?,
                steps: adam.steps,
            },
            seed,
        })
    }
}

/// The folder of a checkpoint under a trainer's checkpoint folder.
///
/// # Errors
/// A name that is none.
pub fn folder_of(checkpoint_dir: &Path, name: &str) -> Result<PathBuf, AdapterError> {
    folder::check_name(name)?;
    Ok(checkpoint_dir.join("checkpoints").join(name))
}

/// Saves `<checkpoint_dir>/checkpoints/<name>`, whole or not at all, and returns that folder.
/// Gradients that wait for a step are not part of it.
///
/// # Errors
/// A name that is none, or the system's refusal.
pub fn save(
    checkpoint_dir: &Path,
    name: &str,
    base: &BaseId,
    snapshot: &Snapshot,
    manifest: &Value,
) -> Result<PathBuf, AdapterError> {
    let target = folder_of(checkpoint_dir, name)?;
    let Snapshot { lora, adam, seed } = snapshot;
    let state = State {
        format: FORMAT,
        step: adam.steps,
        seed: *seed,
        created_ms: now_ms(),
    };
    folder::replace::<AdapterError>(&target, |folder| {
        adapter::write(folder, lora, base, adam.steps)?;
        let names = lora.names();
        let of = |which: &'static str, tensors| moments(&names, which, tensors);
        let all = of("mean", &adam.mean).chain(of("square", &adam.square));
        tensors::write(&folder.join(OPTIMIZER), all)?;
        tensors::write_bytes(&folder.join(STATE), pretty(&state).as_bytes())?;
        tensors::write_bytes(&folder.join(MANIFEST), pretty(manifest).as_bytes())?;
        Ok(())
    })?;
    Ok(target)
}

/// Loads `<checkpoint_dir>/checkpoints/<name>`.
///
/// # Errors
/// As [`adapter::read`], and a state or an optimiser file that is missing, damaged or does not fit.
pub fn load(checkpoint_dir: &Path, name: &str, fit: &Fit<'_>) -> Result<Snapshot, AdapterError> {
    let folder = folder_of(checkpoint_dir, name)?;
    if !folder.exists() {
        let folder = checkpoint_dir.join("checkpoints");
        return Err(AdapterError::NoCheckpoint {
            name: name.into(),
            folder,
        });
    }
    let state = read_state(&folder)?;
    let lora = adapter::read(&folder, fit)?.lora;
    let file = folder.join(OPTIMIZER);
    let mut tensors = tensors::read(&file)?;
    let fits = take(&mut tensors, &lora, "mean")
        .and_then(|mean| Ok((mean, take(&mut tensors, &lora, "square")?)));
    let (mean, square) = fits.map_err(|source| AdapterError::Tensors { file, source })?;
    let adam = AdamState {
        mean,
        square,
        steps: state.step,
    };
    Ok(Snapshot {
        lora,
        adam,
        seed: state.seed,
    })
}

/// All checkpoints, oldest first. One that cannot be read is logged and left out.
///
/// # Errors
/// When the folder is there and cannot be listed.
pub fn list(checkpoint_dir: &Path) -> Result<Vec<CheckpointInfo>, AdapterError> {
    let root = checkpoint_dir.join("checkpoints");
    if !root.exists() {
        return Ok(Vec::new());
    }
    let failed = |source| tensors::FileError::Read {
        file: root.clone(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(&root).map_err(failed)? {
        let name = entry
            .map_err(failed)?
            .file_name()
            .to_string_lossy()
            .into_owned();
        // Hidden names are folders that are being written, or were when the process was killed.
        if folder::check_name(&name).is_err() {
            continue;
        }
        match info(&root, name.clone()) {
            Ok(info) => found.push(info),
            Err(error) => tracing::warn!(checkpoint = name, %error, "not listed"),
        }
    }
    found.sort_by(|a, b| (a.created_ms, a.step, &a.name).cmp(&(b.created_ms, b.step, &b.name)));
    Ok(found)
}

fn info(root: &Path, name: String) -> Result<CheckpointInfo, AdapterError> {
    let path = root.join(&name);
    let State {
        step, created_ms, ..
    } = read_state(&path)?;
    let manifest = from_json(&path.join(MANIFEST))?;
    Ok(CheckpointInfo {
        name,
        path,
        step,
        manifest,
        created_ms,
    })
}

fn read_state(folder: &Path) -> Result<State, AdapterError> {
    let file = folder.join(STATE);
    let state: State = from_json(&file)?;
    if state.format == FORMAT {
        return Ok(state);
    }
    let (field, value, allowed) = ("format", state.format.to_string(), "1");
    Err(AdapterError::Field {
        file,
        field,
        value,
        allowed,
    })
}

/// The optimiser's tensors by name: `mean.<PEFT name>`, `square.<PEFT name>`.
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
    let one = |(name, param): (String, &Tensor)| {
        let name = format!("{which}.{name}");
        let Some(tensor) = tensors.remove(&name) else {
            return Err(LoraError::Missing { name });
        };
        let (found, wanted) = (tensor.size(), param.size());
        if found == wanted {
            return Ok(tensor);
        }
        Err(LoraError::Shape {
            name,
            found,
            wanted,
        })
    };
    lora.names()
        .into_iter()
        .zip(lora.params())
        .map(one)
        .collect()
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
