//! Reads and writes the JSON files beside the tensors.

use std::path::Path;

use serde::Serialize;

use crate::tensors::{self, FileError};

pub(crate) fn from_json<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, FileError> {
    let bytes = tensors::read_bytes(file)?;
    serde_json::from_slice(&bytes).map_err(|error| FileError::damaged(file, error))
}

/// JSON as PEFT writes it: indented by two.
pub(crate) fn pretty(value: &impl Serialize) -> String {
    // Our own structs and maps with text keys: nothing in them can fail to serialise.
    serde_json::to_string_pretty(value).unwrap_or_default()
}
