//! Which checkpoints there are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use metaclaw_trainer_terms::CheckpointName;
use serde_json::Value;

use super::state::{self, MANIFEST, State};
use crate::adapter::{self, AdapterError, from_json};
use crate::folder::{self, Stamp};
use crate::tensors::FileError;

/// A checkpoint on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointEntry {
    pub name: CheckpointName,
    pub path: PathBuf,
    /// Optimiser steps behind it.
    pub step: u64,
    /// The run that saved the first checkpoint of the line. A run that loads a checkpoint continues its line.
    pub line: String,
    /// SHA-256 of its adapter's content.
    pub sha256: Option<String>,
    /// The caller's manifest; null when none was given.
    pub manifest: Value,
    /// When it was saved, unix milliseconds.
    pub created_ms: u64,
}

/// The index of the checkpoints in a folder. A checkpoint is read once, and again if it was replaced.
#[derive(Debug, Default)]
pub struct CheckpointIndex {
    known: BTreeMap<CheckpointName, (Stamp, CheckpointEntry)>,
}

impl CheckpointIndex {
    /// Lists all checkpoints, the oldest first. A checkpoint that cannot be read is logged and left out.
    ///
    /// # Errors
    /// When the folder is there and cannot be listed.
    pub fn list(&mut self, checkpoint_dir: &Path) -> Result<Vec<CheckpointEntry>, AdapterError> {
        let root = folder::checkpoints(checkpoint_dir);
        let mut known = std::mem::take(&mut self.known);
        for name in names_in(&root)? {
            let stamp = Stamp::of(&root.join(name.as_str()), &[state::FILE]);
            let found = match known.remove(&name) {
                Some(found) if found.0 == stamp => Ok(found),
                Some(_) | None => info(&root, name.clone()).map(|info| (stamp, info)),
            };
            match found {
                Ok(found) => {
                    self.known.insert(name, found);
                }
                Err(error) => tracing::warn!(checkpoint = %name, %error, "not listed"),
            }
        }
        let infos = self.known.values().map(|(_, info)| info.clone());
        let mut infos: Vec<_> = infos.collect();
        infos.sort_by(|a, b| (a.created_ms, a.step, &a.name).cmp(&(b.created_ms, b.step, &b.name)));
        Ok(infos)
    }
}

/// Names of the folders that can be checkpoints: hidden ones, whose names are none, are being written, or were when a
/// process was killed.
fn names_in(root: &Path) -> Result<Vec<CheckpointName>, AdapterError> {
    if !root.exists() {
        return Ok(Vec::new());
    }
    let failed = FileError::reading(root);
    let mut names = Vec::new();
    for entry in fs::read_dir(root).map_err(&failed)? {
        let name = entry.map_err(&failed)?.file_name();
        names.extend(name.to_str().and_then(|name| name.parse().ok()));
    }
    Ok(names)
}

fn info(root: &Path, name: CheckpointName) -> Result<CheckpointEntry, AdapterError> {
    let path = root.join(name.as_str());
    let State {
        step,
        line,
        created_ms,
        ..
    } = State::read(&path)?;
    let manifest = from_json(&path.join(MANIFEST))?;
    Ok(CheckpointEntry {
        name,
        step,
        line,
        sha256: adapter::info(&path)?.sha256,
        manifest,
        created_ms,
        path,
    })
}
