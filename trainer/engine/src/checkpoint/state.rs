//! `state.json`: how far a checkpoint is, and where it belongs.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::adapter::{AdapterError, from_json};

pub(super) const FILE: &str = "state.json";
pub(super) const MANIFEST: &str = "manifest.json";
/// The formats that can be read. Format 1 had other names for the optimiser's moments.
const FORMATS: std::ops::RangeInclusive<u32> = 1..=2;

/// `state.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    format: u32,
    pub(super) step: u64,
    pub(super) seed: u64,
    /// Empty in files that were written before this field existed.
    #[serde(default)]
    pub(super) line: String,
    pub(super) created_ms: u64,
}

// === impl State ===

impl State {
    pub(super) fn new(step: u64, seed: u64, line: &str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default().as_millis();
        Self {
            format: *FORMATS.end(),
            step,
            seed,
            line: line.to_owned(),
            created_ms: u64::try_from(since).unwrap_or(u64::MAX),
        }
    }

    /// The prefixes of parameter names in the optimiser's file: for the means of gradients, and for the means of their
    /// squares.
    pub(super) fn moments(&self) -> [&'static str; 2] {
        if self.format == 1 {
            ["mean", "square"]
        } else {
            ["exp_avg", "exp_avg_sq"]
        }
    }

    pub(super) fn read(folder: &Path) -> Result<Self, AdapterError> {
        let file = folder.join(FILE);
        let state: Self = from_json(&file)?;
        if FORMATS.contains(&state.format) {
            return Ok(state);
        }
        let (field, value, allowed) = ("format", state.format.to_string(), "1 or 2");
        Err(AdapterError::Field {
            file,
            field,
            value,
            allowed,
        })
    }
}
