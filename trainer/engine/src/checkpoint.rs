//! Checkpoints: all that training goes on from, and the caller's manifest.
//!
//! A checkpoint is an adapter folder (so it can be served as it is) with three files more:
//! `optimizer.safetensors`, `state.json`, and `manifest.json`, which is the caller's own and kept as given.
//! It is the point of truth of the learner's step transaction, so it appears whole or not at all. The numbers of
//! its adapter and of the adapter of the same name and content are one file with two names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tch::{Device, Kind, TchError, Tensor};

use crate::adapter::{self, AdapterError, BaseId, BaseSpec, Files, from_json, pretty};
use crate::folder::{self, Stamp};
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
    /// As [`CheckpointInfo::line`].
    pub line: String,
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
    /// The run that the first of its line was saved from: a run that was loaded goes on in the line of its checkpoint.
    pub line: String,
    /// SHA-256 of its adapter's content.
    pub sha256: Option<String>,
    /// The caller's manifest; null when none was given.
    pub manifest: Value,
    /// When it was saved, unix milliseconds.
    pub created_ms: u64,
}

/// `state.json`.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    format: u32,
    step: u64,
    seed: u64,
    /// Empty in what was written before there was one.
    #[serde(default)]
    line: String,
    created_ms: u64,
}

const OPTIMIZER: &str = "optimizer.safetensors";
const STATE: &str = "state.json";
const MANIFEST: &str = "manifest.json";
const FORMAT: u32 = 1;

impl Snapshot {
    /// Handles of its own on the same numbers, on `device` and, if that is another, copied: parameters and state
    /// are never written in place, so another thread can save them while training goes on.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn to_device(&self, device: Device) -> Result<Self, TchError> {
        let moved = |tensors: &[Tensor]| {
            let moved = tensors.iter().map(|t| t.f_detach()?.f_to_device(device));
            moved.collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            lora: self.lora.to_kind(Kind::Float, device)?,
            adam: AdamState {
                mean: moved(&self.adam.mean)?,
                square: moved(&self.adam.square)?,
                steps: self.adam.steps,
            },
            seed: self.seed,
            line: self.line.clone(),
        })
    }
}

/// The folder of a checkpoint under a trainer's checkpoint folder.
///
/// # Errors
/// A name that leads elsewhere.
pub fn folder_of(checkpoint_dir: &Path, name: &str) -> Result<PathBuf, AdapterError> {
    Ok(folder::within(&checkpoint_dir.join("checkpoints"), name)?)
}

/// Saves `<checkpoint_dir>/checkpoints/<name>`, whole or not at all, and returns that folder.
/// Gradients that wait for a step are not part of it.
///
/// The numbers of `<checkpoint_dir>/adapters/<name>` are linked where they are the same.
///
/// # Errors
/// A name that leads elsewhere, or the system's refusal.
pub fn save(
    checkpoint_dir: &Path,
    name: &str,
    base: &BaseId,
    snapshot: &Snapshot,
    manifest: &Value,
) -> Result<PathBuf, AdapterError> {
    let target = folder_of(checkpoint_dir, name)?;
    let twin = adapter::folder_of(checkpoint_dir, name)?;
    let Snapshot { lora, adam, .. } = snapshot;
    let state = State {
        format: FORMAT,
        step: adam.steps,
        seed: snapshot.seed,
        line: snapshot.line.clone(),
        created_ms: now_ms(),
    };
    let files = Files::of(lora, base, adam.steps)?;
    folder::replace::<AdapterError>(&target, |folder| {
        files.write(folder, &twin)?;
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
/// As [`adapter::read`], a state or an optimiser file that is missing, damaged or does not fit, and an adapter that
/// is not the one that was saved.
pub fn load(checkpoint_dir: &Path, name: &str, base: &BaseSpec) -> Result<Snapshot, AdapterError> {
    let folder = folder_of(checkpoint_dir, name)?;
    if !folder.exists() {
        let folder = checkpoint_dir.join("checkpoints");
        return Err(AdapterError::NoCheckpoint {
            name: name.into(),
            folder,
        });
    }
    let state = read_state(&folder)?;
    let lora = read_lora(&folder, base)?;
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
        line: state.line,
    })
}

/// The adapter of a checkpoint; nobody has a reason to change one by hand, so another content is damage.
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

/// What is known of the checkpoints of a folder: each is read once, and again when it was replaced.
#[derive(Debug, Default)]
pub struct CheckpointIndex {
    known: BTreeMap<String, (Stamp, CheckpointInfo)>,
}

impl CheckpointIndex {
    /// All checkpoints, oldest first. One that cannot be read is logged and left out.
    ///
    /// # Errors
    /// When the folder is there and cannot be listed.
    pub fn list(&mut self, checkpoint_dir: &Path) -> Result<Vec<CheckpointInfo>, AdapterError> {
        let root = checkpoint_dir.join("checkpoints");
        let mut known = std::mem::take(&mut self.known);
        for name in names_in(&root)? {
            let stamp = Stamp::of(&root.join(&name), &[STATE]);
            let found = match known.remove(&name) {
                Some(found) if found.0 == stamp => Ok(found),
                Some(_) | None => info(&root, name.clone()).map(|info| (stamp, info)),
            };
            match found {
                Ok(found) => {
                    self.known.insert(name, found);
                }
                Err(error) => tracing::warn!(checkpoint = name, %error, "not listed"),
            }
        }
        let infos = self.known.values().map(|(_, info)| info.clone());
        let mut infos: Vec<_> = infos.collect();
        infos.sort_by(|a, b| (a.created_ms, a.step, &a.name).cmp(&(b.created_ms, b.step, &b.name)));
        Ok(infos)
    }
}

/// Names of the folders that can be checkpoints: hidden ones are being written, or were when a process was killed.
fn names_in(root: &Path) -> Result<Vec<String>, AdapterError> {
    if !root.exists() {
        return Ok(Vec::new());
    }
    let failed = |source| tensors::FileError::Read {
        file: root.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(root).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let name = name.to_string_lossy().into_owned();
        if folder::within(root, &name).is_ok() {
            names.push(name);
        }
    }
    Ok(names)
}

fn info(root: &Path, name: String) -> Result<CheckpointInfo, AdapterError> {
    let path = root.join(&name);
    let State {
        step,
        line,
        created_ms,
        ..
    } = read_state(&path)?;
    let manifest = from_json(&path.join(MANIFEST))?;
    Ok(CheckpointInfo {
        name,
        step,
        line,
        sha256: adapter::info(&path)?.sha256,
        manifest,
        created_ms,
        path,
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
