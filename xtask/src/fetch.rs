//! Fetching parts of a remote file: HTTP ranges, kept in a sparse local copy that survives an interruption.

mod notes;
mod remote;
#[cfg(test)]
pub(crate) mod server;
mod spans;
mod sparse;

pub(crate) use self::sparse::SparseCopy;

/// Lower-case hexadecimal, as pip writes hashes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
