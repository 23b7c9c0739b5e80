//! Files of a model folder, which a person downloads or writes.

use std::{io, path::Path};

/// Returns the path if a regular file is there. A pipe may never begin or end, and a device may be endless.
///
/// # Errors
/// If there is no file, or one of another kind.
pub fn regular(path: &Path) -> io::Result<&Path> {
    if path.metadata()?.is_file() {
        return Ok(path);
    }
    let why = "it is no regular file";
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}
