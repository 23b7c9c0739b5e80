//! Files with a line of JSON for each entry. Only the user who runs the proxy can read them.

use std::{io, path::Path};

use metaclaw_skills::{read_text, write_private};
use serde::{Serialize, de::DeserializeOwned};

use crate::error::MemoryError;

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// Reads the lines of a file. A missing file has none. An invalid line is an error, because the next change would write
/// the file without it.
pub(crate) fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, MemoryError> {
    let text = match read_text(path, MAX_FILE) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(MemoryError::file(path)(error)),
    };
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let read = lines.map(|(number, line)| {
        serde_json::from_str(line).map_err(|error| {
            let why = format!("line {}: {error}", number + 1);
            MemoryError::file(path)(io::Error::new(io::ErrorKind::InvalidData, why))
        })
    });
    read.collect()
}

/// Replaces the content of a file.
pub(crate) fn write_lines<T: Serialize>(path: &Path, all: &[T]) -> Result<(), MemoryError> {
    let mut text = String::new();
    for it in all {
        let line =
            serde_json::to_string(it).map_err(|error| MemoryError::file(path)(error.into()))?;
        text.push_str(&line);
        text.push('\n');
    }
    write_private(path, &text).map_err(MemoryError::file(path))
}
