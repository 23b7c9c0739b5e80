//! Fetching parts of a remote file: HTTP ranges, kept in a sparse local copy that survives an interruption.

mod remote;
mod spans;
mod sparse;

pub(crate) use self::sparse::SparseCopy;
