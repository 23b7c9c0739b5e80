//! Inputs that all programs read: random ids from a seed, and folders of the model.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use metaclaw_fetch::writing;
use serde_json::{Value, json};

/// The context length of the model's copy with a longer context.
const LONG_CONTEXT: u64 = 16_384;

/// The model unchanged, and with a longer context.
#[derive(Debug)]
pub(super) struct BenchModels {
    pub(super) own: PathBuf,
    pub(super) long: PathBuf,
}

/// Draws ids; their values do not affect the time, and all programs get the same.
#[derive(Debug)]
pub(crate) struct Ids(u64);

// === impl Models ===

impl BenchModels {
    /// Makes the model with the longer context: links, and another `config.json`.
    pub(super) fn prepare(own: &Path, out: &Path) -> Result<Self> {
        let long = out.join("long-context");
        writing(fs::create_dir_all(&long), &long)?;
        for entry in fs::read_dir(own).with_context(|| format!("cannot list {}", own.display()))? {
            let (from, name) = entry.map(|it| (it.path(), it.file_name()))?;
            let link = long.join(name);
            if fs::symlink_metadata(&link).is_err() {
                writing(symlink(&from, &link), &link)?;
            }
        }
        let mut config: Value = serde_json::from_slice(&fs::read(own.join("config.json"))?)?;
        config["max_position_embeddings"] = LONG_CONTEXT.into();
        let file = long.join("config.json");
        writing(fs::remove_file(&file), &file)?;
        writing(fs::write(&file, config.to_string()), &file)?;
        Ok(Self {
            own: own.to_owned(),
            long,
        })
    }
}

// === impl Ids ===

impl Ids {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns `n` ids, none of them special.
    pub(crate) fn take(&mut self, n: usize) -> Vec<u64> {
        (0..n).map(|_| 1000 + self.next() % 45_000).collect()
    }

    pub(crate) fn lists(&mut self, n_lists: usize, n: usize) -> Vec<Vec<u64>> {
        (0..n_lists).map(|_| self.take(n)).collect()
    }

    /// SplitMix64 (<https://prng.di.unimi.it/splitmix64.c>).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// A sequence whose loss begins at `reply`'s first token.
pub(crate) fn sample(prompt: &[u64], reply: &[u64]) -> Value {
    let ids = [prompt, reply].concat();
    json!({"ids": ids, "loss_from": prompt.len().saturating_sub(1)})
}

/// One sample for each turn of a conversation. A turn has 40 tokens of a user and 80 of a reply, and repeats all turns
/// before it.
pub(super) fn session(ids: &mut Ids, n_system: usize, n_turns: usize) -> Vec<Value> {
    let mut history = ids.take(n_system);
    let turn = |_| {
        history.extend(ids.take(40));
        let reply = ids.take(80);
        let found = sample(&history, &reply);
        history.extend(reply);
        found
    };
    (0..n_turns).map(turn).collect()
}
