//! What more than one of us does with files.

use std::io;

/// That something is not there is what was wanted.
pub(super) fn absent(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}
