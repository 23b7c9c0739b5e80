//! Finds the place of each tensor in the safetensors files of a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};

use metaclaw_trainer_text::{ModelFileError, regular};
use safetensors::Dtype;
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use super::blob;
use super::error::LoadError;
use super::finite::has_non_finite;
use super::shapes::LM_HEAD;
use crate::tensors::parse;
use crate::weights::error::Result;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

struct TensorEntry {
    file: PathBuf,
    dtype: Dtype,
    shape: Vec<i64>,
    bytes: &'static [u8],
    map: &'static [u8],
}

pub(super) struct SafeFiles {
    dir: PathBuf,
    entries: BTreeMap<String, TensorEntry>,
}

impl SafeFiles {
    /// Opens the tensors of a folder. For a model that also takes images, opens those of its text part, by the names
    /// that they would have alone.
    pub(super) fn open(dir: &Path, is_part: bool) -> Result<Self> {
        let mut entries = BTreeMap::new();
        for file in files(dir)? {
            read(&file, &mut entries)?;
        }
        if is_part {
            let named = entries.into_iter();
            entries = named
                .filter_map(|(name, entry)| Some((name_in_part(name)?, entry)))
                .collect();
        }
        Ok(Self {
            dir: dir.to_owned(),
            entries,
        })
    }

    /// Checks that every expected tensor exists with its shape and finite numbers, and no other tensor: an unexpected
    /// bias or norm would mean that the forward pass leaves something out.
    pub(super) fn check(&self, expected: &[(String, Vec<i64>)], tied: bool) -> Result<()> {
        for (name, shape) in expected {
            let entry = self.entry(name)?;
            if entry.shape != *shape {
                let what = format!("the shape of {name}");
                let (value, allowed) = (&entry.shape, format!("{shape:?} by config.json"));
                return Err(entry.unsupported(what, format!("{value:?}"), allowed));
            }
            if has_non_finite(entry.bytes, entry.dtype) {
                return Err(entry.not_finite(name, "its file"));
            }
        }
        let known: BTreeSet<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
        // Heads that guess tokens after the next (`mtp.`) change no logit.
        let harmless = |name: &str| {
            name.ends_with(".rotary_emb.inv_freq")
                || name.starts_with("mtp.")
                || (tied && name == LM_HEAD)
        };
        let other =
            |(name, _): &(&String, &TensorEntry)| !known.contains(name.as_str()) && !harmless(name);
        match self.entries.iter().find(other) {
            None => Ok(()),
            Some((name, entry)) => {
                let allowed = "the tensors that config.json calls for";
                Err(entry.unsupported("tensor", name, allowed))
            }
        }
    }

    /// Returns tensors stacked along their first dimension: mapped in place if the file has them so (gate and up of
    /// Hugging Face's files), else a copy.
    pub(super) fn stacked(&self, names: &[String], kind: Kind, device: Device) -> Result<Tensor> {
        let entries = names.iter().map(|name| self.entry(name));
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        if let Some(joint) = joint(&entries) {
            return joint.tensor(names.first().map_or("", String::as_str), kind, device);
        }
        let parts = names.iter().map(|name| self.tensor(name, kind, device));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        Ok(Tensor::f_cat(&parts, 0)?)
    }

    pub(super) fn tensor(&self, name: &str, kind: Kind, device: Device) -> Result<Tensor> {
        self.entry(name)?.tensor(name, kind, device)
    }

    pub(super) fn stored(&self, name: &str) -> Result<(Dtype, &'static [u8])> {
        let entry = self.entry(name)?;
        Ok((entry.dtype, entry.bytes))
    }

    fn entry(&self, name: &str) -> Result<&TensorEntry> {
        let missing = || ModelFileError::damaged(&self.dir, format!("tensor {name} is missing"));
        Ok(self.entries.get(name).ok_or_else(missing)?)
    }
}

/// Returns the name in the text part of a tensor of a model of text and images, or `None` for a tensor of the image
/// part.
fn name_in_part(name: String) -> Option<String> {
    // These are the prefixes before and after transformers 4.52.
    const TEXT: [(&str, &str); 2] = [("language_model.", ""), ("model.language_model.", "model.")];
    const IMAGES: [&str; 3] = ["vision_tower.", "multi_modal_projector.", "visual."];
    for (theirs, ours) in TEXT {
        if let Some(rest) = name.strip_prefix(theirs) {
            return Some(format!("{ours}{rest}"));
        }
    }
    let module = name.strip_prefix("model.").unwrap_or(&name);
    let is_of_images = IMAGES.iter().any(|images| module.starts_with(images));
    (!is_of_images).then_some(name)
}

// === impl TensorEntry ===

impl TensorEntry {
    fn tensor(&self, name: &str, kind: Kind, device: Device) -> Result<Tensor> {
        let stored = match self.dtype {
            Dtype::BF16 => Kind::BFloat16,
            Dtype::F16 => Kind::Half,
            Dtype::F32 => Kind::Float,
            other => {
                let what = format!("the dtype of {name}");
                return Err(self.unsupported(what, format!("{other:?}"), "BF16, F16, F32"));
            }
        };
        let tensor = match blob::view(self.bytes, &self.shape, stored) {
            Some(mapped) => mapped?,
            // Only a file with an odd header length is not aligned. It needs a copy.
            None => Tensor::f_from_data_size(self.bytes, &self.shape, stored)?,
        };
        // The tensor is converted on its device, because a GPU does it faster, and less is copied if the file's type is
        // smaller.
        let tensor = tensor.f_to_device(device)?.f_to_kind(kind)?;
        // f16 is the only dtype with a smaller range than a stored one.
        if kind == Kind::Half && stored != kind {
            let is_finite = tensor.f_isfinite()?.f_all()?.f_int64_value(&[])? == 1;
            if !is_finite {
                return Err(self.not_finite(name, "f16, whose largest number is 65504"));
            }
        }
        Ok(tensor)
    }

    fn not_finite(&self, name: &str, place: &str) -> LoadError {
        let detail = format!("tensor {name} holds NaN or infinity in {place}");
        ModelFileError::damaged(&self.file, detail).into()
    }

    fn unsupported(
        &self,
        what: impl Into<String>,
        value: impl Into<String>,
        allowed: impl Into<String>,
    ) -> LoadError {
        ModelFileError::unsupported(&self.file, what, value, allowed).into()
    }
}

fn joint(entries: &[&TensorEntry]) -> Option<TensorEntry> {
    let first = *entries.first()?;
    let offset = |entry: &TensorEntry| {
        (entry.bytes.as_ptr() as usize).checked_sub(first.map.as_ptr() as usize)
    };
    let start = offset(first)?;
    let (mut end, mut rows) = (start, 0);
    for entry in entries {
        let follows = entry.file == first.file && offset(entry)? == end;
        if !follows || entry.dtype != first.dtype || entry.shape.get(1..) != first.shape.get(1..) {
            return None;
        }
        end += entry.bytes.len();
        rows += entry.shape.first()?;
    }
    let mut shape = first.shape.clone();
    *shape.first_mut()? = rows;
    Some(TensorEntry {
        file: first.file.clone(),
        dtype: first.dtype,
        shape,
        bytes: first.map.get(start..end)?,
        map: first.map,
    })
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    if dir.join(SINGLE).exists() {
        return Ok(vec![dir.join(SINGLE)]);
    }
    let index = dir.join(INDEX);
    if !index.exists() {
        let path = dir.to_owned();
        return Err(LoadError::NoModel { path });
    }
    let damaged = |detail: &dyn Display| LoadError::from(ModelFileError::damaged(&index, detail));
    let read = regular(&index).and_then(std::fs::read_to_string);
    let text = read.map_err(ModelFileError::reading(&index))?;
    let json: Value = serde_json::from_str(&text).map_err(|error| damaged(&error))?;
    let names: BTreeSet<&str> = json
        .get("weight_map")
        .and_then(Value::as_object)
        .map(|map| map.values().filter_map(Value::as_str).collect())
        .ok_or_else(|| damaged(&"weight_map is missing"))?;
    names
        .into_iter()
        .map(|name| {
            // A file name in a downloaded index must not lead out of its folder.
            if name.contains(['/', '\\']) || name.starts_with('.') {
                let detail = format!("weight_map names {name:?}, allowed: plain file names");
                return Err(damaged(&detail));
            }
            Ok(dir.join(name))
        })
        .collect()
}

fn read(file: &Path, entries: &mut BTreeMap<String, TensorEntry>) -> Result<()> {
    let bytes = blob::map(file).map_err(ModelFileError::reading(file))?;
    let tensors = parse(bytes).map_err(|detail| ModelFileError::damaged(file, detail))?;
    for (name, view) in tensors.tensors() {
        let shape = view
            .shape()
            .iter()
            .map(|&n| i64::try_from(n).unwrap_or(i64::MAX))
            .collect();
        let entry = TensorEntry {
            file: file.to_owned(),
            dtype: view.dtype(),
            shape,
            bytes: view.data(),
            map: bytes,
        };
        entries.insert(name, entry);
    }
    Ok(())
}
