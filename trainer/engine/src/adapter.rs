//! Adapters on disk: PEFT directories that vLLM, llama.cpp and transformers read too.
//!
//! Beside PEFT's two files stands `metaclaw.json`, which the others ignore: which base the adapter was
//! trained on, byte for byte, and after how many steps.

mod config;
mod error;
mod json;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::error::AdapterError;
pub(crate) use self::json::{from_json, pretty};
use crate::folder::{self, NameError};
use crate::lora::{LayerDims, Lora};
use crate::tensors;

/// The base model that an adapter belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseId {
    /// As a person would call it.
    #[serde(rename = "base_name")]
    pub name: String,
    /// A hash of its weights.
    #[serde(rename = "base_fingerprint")]
    pub fingerprint: String,
}

/// What a model needs an adapter to fit.
#[derive(Debug, Clone)]
pub struct Fit<'a> {
    /// The model.
    pub base: &'a BaseId,
    /// Its widths.
    pub dims: LayerDims,
    /// Its depth.
    pub n_layers: usize,
}

/// An adapter read from disk.
#[derive(Debug)]
pub struct LoadedAdapter {
    /// f32, on the CPU.
    pub lora: Lora,
    /// Optimiser steps behind it; 0 where it is not one of ours.
    pub step: u64,
}

/// `metaclaw.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Origin {
    format: u32,
    #[serde(flatten)]
    base: BaseId,
    step: u64,
}

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";
const ORIGIN: &str = "metaclaw.json";
const FORMAT: u32 = 1;

/// The folder of an adapter under a trainer's checkpoint folder.
///
/// # Errors
/// A name that is none.
pub fn folder_of(checkpoint_dir: &Path, name: &str) -> Result<PathBuf, NameError> {
    folder::check_name(name)?;
    Ok(checkpoint_dir.join("adapters").join(name))
}

/// Saves an adapter as `<checkpoint_dir>/adapters/<name>`, whole or not at all, and returns that folder.
///
/// # Errors
/// A name that is none, or the system's refusal.
pub fn save(
    checkpoint_dir: &Path,
    name: &str,
    lora: &Lora,
    base: &BaseId,
    step: u64,
) -> Result<PathBuf, AdapterError> {
    let target = folder_of(checkpoint_dir, name)?;
    folder::replace(&target, |folder| write(folder, lora, base, step))?;
    Ok(target)
}

/// Loads the adapter `<checkpoint_dir>/adapters/<name>`.
///
/// # Errors
/// As [`read`], and [`AdapterError::Unknown`].
pub fn load(
    checkpoint_dir: &Path,
    name: &str,
    fit: &Fit<'_>,
) -> Result<LoadedAdapter, AdapterError> {
    let folder = folder_of(checkpoint_dir, name)?;
    if !folder.join(CONFIG).exists() {
        let folder = checkpoint_dir.join("adapters");
        return Err(AdapterError::Unknown {
            name: name.into(),
            folder,
        });
    }
    read(&folder, fit)
}

/// Writes the files of an adapter into an existing folder.
///
/// # Errors
/// The system's refusal.
pub fn write(folder: &Path, lora: &Lora, base: &BaseId, step: u64) -> Result<(), AdapterError> {
    let config = config::to_json(&lora.spec, &base.name);
    tensors::write_bytes(&folder.join(CONFIG), pretty(&config).as_bytes())?;
    tensors::write(
        &folder.join(TENSORS),
        lora.names().into_iter().zip(lora.params()),
    )?;
    let origin = Origin {
        format: FORMAT,
        base: base.clone(),
        step,
    };
    tensors::write_bytes(&folder.join(ORIGIN), pretty(&origin).as_bytes())?;
    Ok(())
}

/// Reads the files of an adapter and checks that it fits.
///
/// Of another base: refused by `metaclaw.json` where it is there, else by the last part of
/// `base_model_name_or_path`, which is all that PEFT keeps.
///
/// # Errors
/// [`AdapterError`] naming the file, and the field or tensor.
pub fn read(folder: &Path, fit: &Fit<'_>) -> Result<LoadedAdapter, AdapterError> {
    let file = folder.join(CONFIG);
    let config = config::Config::read(&file)?;
    let origin = read_origin(folder)?;
    let step = origin.as_ref().map_or(0, |origin| origin.step);
    check_base(folder, fit.base, origin, config.base_name())?;
    let spec = config.spec()?;
    let file = folder.join(TENSORS);
    let tensors = tensors::read(&file)?;
    let lora = Lora::from_named(spec, fit.dims, fit.n_layers, tensors);
    let lora = lora.map_err(|source| AdapterError::Tensors { file, source })?;
    Ok(LoadedAdapter { lora, step })
}

fn read_origin(folder: &Path) -> Result<Option<Origin>, AdapterError> {
    let file = folder.join(ORIGIN);
    if !file.exists() {
        return Ok(None);
    }
    let origin: Origin = from_json(&file)?;
    if origin.format == FORMAT {
        return Ok(Some(origin));
    }
    let (field, value, allowed) = ("format", origin.format.to_string(), "1");
    Err(AdapterError::Field {
        file,
        field,
        value,
        allowed,
    })
}

fn check_base(
    folder: &Path,
    ours: &BaseId,
    origin: Option<Origin>,
    peft_name: Option<&str>,
) -> Result<(), AdapterError> {
    let last = |name: &str| {
        name.trim_end_matches('/')
            .rsplit('/')
            .next()
            .map(str::to_lowercase)
    };
    let (same, theirs) = match (origin, peft_name) {
        (Some(Origin { base, .. }), _) => {
            let short = |id: &BaseId| id.fingerprint.chars().take(12).collect::<String>();
            let same = base.fingerprint == ours.fingerprint;
            (same, format!("{} ({})", base.name, short(&base)))
        }
        (None, Some(name)) => (last(name) == last(&ours.name), name.to_owned()),
        (None, None) => (false, "an unnamed base".to_owned()),
    };
    if same {
        return Ok(());
    }
    let short = ours.fingerprint.chars().take(12).collect::<String>();
    let ours = format!("{} ({short})", ours.name);
    Err(AdapterError::Base {
        folder: folder.into(),
        theirs,
        ours,
    })
}

#[cfg(test)]
mod tests;
