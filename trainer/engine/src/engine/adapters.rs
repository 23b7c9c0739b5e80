//! Adapters that are loaded for serving, by name; the least recently asked for goes first.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::SystemTime;

use crate::adapter::{self, AdapterError, Fit};
use crate::kv::WeightsKey;
use crate::lora::Lora;
use crate::model::Model;

/// An adapter as it is served. A reply holds its own handle, so it ends on what it began with.
#[derive(Debug)]
pub struct ServedAdapter {
    /// As it was asked for.
    pub name: String,
    /// Its weights, detached, with the scale in B; f32 whatever the base is: for one token a small
    /// product in bf16 costs six times as much on a CPU.
    pub lora: Lora,
    /// Optimiser steps behind it.
    pub step: u64,
    pub(crate) key: WeightsKey,
    stamp: Option<Stamp>,
}

/// Tells a folder that was replaced from the one that was read.
type Stamp = (SystemTime, u64);

/// Loaded adapters.
#[derive(Debug)]
pub struct AdapterCache {
    /// The most recently used last.
    loaded: VecDeque<Rc<ServedAdapter>>,
    limit: usize,
    last_key: WeightsKey,
}

impl AdapterCache {
    /// At most `limit` adapters stay loaded, besides those that live replies hold.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            loaded: VecDeque::new(),
            limit: limit.max(1),
            last_key: 0,
        }
    }

    /// The adapter `<checkpoint_dir>/adapters/<name>`, read when it is first asked for or was replaced.
    ///
    /// # Errors
    /// As [`adapter::load`].
    pub fn get(
        &mut self,
        name: &str,
        checkpoint_dir: &Path,
        fit: &Fit<'_>,
        model: &Model,
    ) -> Result<Rc<ServedAdapter>, AdapterError> {
        let stamp = stamp(&adapter::folder_of(checkpoint_dir, name)?);
        if let Some(at) = self.loaded.iter().position(|a| a.name == name)
            && let Some(found) = self.loaded.remove(at)
            && found.stamp == stamp
        {
            self.loaded.push_back(Rc::clone(&found));
            return Ok(found);
        }
        let read = adapter::load(checkpoint_dir, name, fit)?;
        self.last_key += 1;
        let served = Rc::new(ServedAdapter {
            name: name.to_owned(),
            lora: read.lora.for_serving(model.device)?,
            step: read.step,
            key: self.last_key,
            stamp,
        });
        self.loaded.push_back(Rc::clone(&served));
        while self.loaded.len() > self.limit {
            self.loaded.pop_front();
        }
        Ok(served)
    }

    /// Forgets an adapter; live replies keep theirs. False when it was not loaded.
    pub fn unload(&mut self, name: &str) -> bool {
        let before = self.loaded.len();
        self.loaded.retain(|adapter| adapter.name != name);
        self.loaded.len() < before
    }

    /// Names of the loaded adapters, the least recently used first.
    pub fn names(&self) -> Vec<String> {
        self.loaded
            .iter()
            .map(|adapter| adapter.name.clone())
            .collect()
    }
}

fn stamp(folder: &Path) -> Option<Stamp> {
    let tensors = fs::metadata(folder.join("adapter_model.safetensors")).ok()?;
    Some((tensors.modified().ok()?, tensors.len()))
}
