//! Adapters on disk: PEFT directories that vLLM, llama.cpp and transformers read too.
//!
//! Beside PEFT's two files stands `metaclaw.json`, which the others ignore: which base the adapter was
//! trained on, byte for byte, and after how many steps. Where other programs can use the adapter wrongly, a `README.md`
//! says how not to.

mod base;
mod config;
mod content;
mod error;
mod json;
mod origin;
mod readme;

use std::path::{Path, PathBuf};

use metaclaw_trainer_terms::AdapterName;

pub use self::base::{BaseId, BaseSpec};
pub use self::error::AdapterError;
pub(crate) use self::json::{from_json, pretty};
use self::origin::{FILE as ORIGIN, Origin};
use crate::folder::{self, Stamp};
use crate::lora::{Lora, LoraSpec};
use crate::tensors;

/// An adapter read from disk.
#[derive(Debug)]
pub struct LoadedAdapter {
    /// f32, on the CPU.
    pub lora: Lora,
    /// Optimiser steps that made the adapter; 0 if the adapter is not one of ours.
    pub step: u64,
    /// SHA-256 of what it holds, in hexadecimal digits: rank, alpha, and every parameter by name.
    pub sha256: String,
}

/// An adapter's description, read from its folder without reading the weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterSummary {
    /// Optimiser steps behind it.
    pub step: u64,
    /// SHA-256 of what it held when it was written, as [`LoadedAdapter::sha256`].
    pub sha256: Option<String>,
}

/// An adapter that was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedAdapter {
    pub folder: PathBuf,
    /// As [`LoadedAdapter::sha256`].
    pub sha256: String,
}

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";

/// The folder of an adapter under a trainer's checkpoint folder.
pub fn folder_of(checkpoint_dir: &Path, name: &AdapterName) -> PathBuf {
    folder::adapters(checkpoint_dir).join(name.as_str())
}

/// Saves an adapter as `<checkpoint_dir>/adapters/<name>`, whole or not at all.
///
/// One that is there with the same content is left as it is; one of that content in
/// `<checkpoint_dir>/checkpoints/<name>` lends its numbers by hard link.
///
/// # Shapes
/// Of `lora` those that [`Lora::init`] makes; f32, f16 or bf16, written as f32.
///
/// # Errors
/// The system's refusal.
pub fn save(
    checkpoint_dir: &Path,
    name: &AdapterName,
    lora: &Lora,
    base: &BaseId,
    step: u64,
) -> Result<SavedAdapter, AdapterError> {
    let target = folder_of(checkpoint_dir, name);
    let files = Files::of(lora, base, step)?;
    if !files.are_in(&target) {
        let twin = folder::checkpoints(checkpoint_dir).join(name.as_str());
        folder::replace(&target, |folder| files.write(folder, &twin))?;
    }
    Ok(SavedAdapter {
        folder: target,
        sha256: files.sha256,
    })
}

/// The folder `<checkpoint_dir>/adapters/<name>`, if an adapter is there.
///
/// # Errors
/// [`AdapterError::Unknown`].
pub fn existing(checkpoint_dir: &Path, name: &AdapterName) -> Result<PathBuf, AdapterError> {
    let folder = folder_of(checkpoint_dir, name);
    if folder.join(CONFIG).exists() {
        return Ok(folder);
    }
    Err(AdapterError::Unknown {
        name: name.clone(),
        folder: folder::adapters(checkpoint_dir),
    })
}

/// Loads the adapter `<checkpoint_dir>/adapters/<name>`.
///
/// # Shapes
/// As [`read`].
///
/// # Errors
/// As [`existing`] and [`read`].
pub fn load(
    checkpoint_dir: &Path,
    name: &AdapterName,
    base: &BaseSpec,
) -> Result<LoadedAdapter, AdapterError> {
    read(&existing(checkpoint_dir, name)?, base)
}

/// Tells an adapter that was changed or replaced from the one that was read.
pub fn stamp(folder: &Path) -> Stamp {
    Stamp::of(folder, &[CONFIG, TENSORS, ORIGIN])
}

/// Describes the adapter in a folder.
///
/// # Errors
/// A `metaclaw.json` that is damaged.
pub fn info(folder: &Path) -> Result<AdapterSummary, AdapterError> {
    let origin = Origin::read(folder)?;
    Ok(AdapterSummary {
        step: origin.as_ref().map_or(0, |origin| origin.step),
        sha256: origin.and_then(|origin| origin.sha256),
    })
}

pub(crate) struct Files<'a> {
    lora: &'a Lora,
    config: String,
    origin: Origin,
    readme: Option<String>,
    pub(crate) sha256: String,
}

impl<'a> Files<'a> {
    pub(crate) fn of(lora: &'a Lora, base: &BaseId, step: u64) -> Result<Self, AdapterError> {
        let sha256 = content::sha256(lora)?;
        Ok(Self {
            lora,
            config: pretty(&config::to_json(lora, &base.name)),
            origin: Origin::new(base, step, &sha256),
            readme: readme::text(lora, &base.name),
            sha256,
        })
    }

    fn are_in(&self, folder: &Path) -> bool {
        let config = tensors::read_bytes(&folder.join(CONFIG));
        config.is_ok_and(|config| config == self.config.as_bytes())
            && Origin::read(folder).is_ok_and(|origin| origin.as_ref() == Some(&self.origin))
            && folder.join(TENSORS).is_file()
    }

    /// Writes them into an existing folder; the numbers are those of `twin` where it says that they are the same.
    ///
    /// # Errors
    /// The system's refusal.
    pub(crate) fn write(&self, folder: &Path, twin: &Path) -> Result<(), AdapterError> {
        tensors::write_bytes(&folder.join(CONFIG), self.config.as_bytes())?;
        let file = folder.join(TENSORS);
        // A hard link may be refused: another file system, one without links, too many links. Then the file is copied.
        let linked = self.are_in(twin) && std::fs::hard_link(twin.join(TENSORS), &file).is_ok();
        if !linked {
            let names = self.lora.names().into_iter();
            tensors::write(&file, names.zip(self.lora.params()))?;
        }
        if let Some(readme) = &self.readme {
            tensors::write_bytes(&folder.join(readme::FILE), readme.as_bytes())?;
        }
        let origin = pretty(&self.origin);
        Ok(tensors::write_bytes(
            &folder.join(ORIGIN),
            origin.as_bytes(),
        )?)
    }
}

/// Bytes that the adapter in `folder` takes in memory, f32; nothing but its configuration is read.
///
/// # Errors
/// A configuration that is missing, damaged, or asks for what this base or engine does not do.
pub fn bytes(folder: &Path, base: &BaseSpec) -> Result<usize, AdapterError> {
    let (spec, _) = read_spec(folder, base)?;
    let n_params = spec.targets.n_params(spec.rank, &base.dims, base.n_layers);
    Ok(n_params.saturating_mul(size_of::<f32>()))
}

/// Reads the files of an adapter and checks that it fits.
///
/// Of another base: refused by `metaclaw.json` where it is there, else by the last part of
/// `base_model_name_or_path`, which is all that PEFT keeps.
///
/// # Shapes
/// Those that [`Lora::init`] makes; f32, on the CPU.
///
/// # Errors
/// [`AdapterError`] naming the file, and the field or tensor.
pub fn read(folder: &Path, base: &BaseSpec) -> Result<LoadedAdapter, AdapterError> {
    let (spec, step) = read_spec(folder, base)?;
    let file = folder.join(TENSORS);
    let tensors = tensors::read(&file)?;
    let lora = Lora::from_named(spec, base.dims, base.n_layers, tensors);
    let lora = lora.map_err(|source| AdapterError::Tensors { file, source })?;
    let sha256 = content::sha256(&lora)?;
    Ok(LoadedAdapter { lora, step, sha256 })
}

fn read_spec(folder: &Path, base: &BaseSpec) -> Result<(LoraSpec, u64), AdapterError> {
    let file = folder.join(CONFIG);
    let config = config::AdapterConfigFile::read(&file)?;
    let origin = Origin::read(folder)?;
    let step = origin.as_ref().map_or(0, |origin| origin.step);
    origin::check_base(folder, &base.id, origin, config.base_name())?;
    let spec = config.spec()?.checked(&base.dims);
    let spec = spec.map_err(|source| AdapterError::Tensors { file, source })?;
    Ok((spec, step))
}

#[cfg(test)]
mod tests;
