//! Marks a folder as a log of a certain format.

use std::{fs, io, path::Path};

use metaclaw_chat::if_there;

use super::{
    access::not_usable,
    aside,
    files::write,
    opening::{FORMAT, OpenMode},
};
use crate::error::OpenError;

/// The name of the marker file.
const MARK: &str = "FORMAT";

/// Checks the marker. If it is missing or unreadable, the log is still usable: its tables show whether it is ours.
///
/// # Errors
/// Returns [`OpenError::Older`] or [`OpenError::Newer`], or [`OpenError::Vanished`] if there was a log before.
pub(super) fn check(dir: &Path, database: &Path, opening: OpenMode) -> Result<(), OpenError> {
    let mark = dir.join(MARK);
    let read = if_there(fs::read(&mark)).map_err(|error| not_usable(&mark, error))?;
    let Some(bytes) = read else { return Ok(()) };
    let found = String::from_utf8_lossy(&bytes).trim().to_owned();
    // Without this check, sled would create an empty database.
    let exists = database.join("db").is_file();
    let dir_of = || dir.to_owned();
    match (found.parse::<u32>(), exists) {
        (Ok(FORMAT), true) => Ok(()),
        // A kill happened between creating the file and writing it.
        (Err(_), false) if found.is_empty() => Ok(()),
        (Err(_), true) => {
            tracing::warn!("the file FORMAT of the turn log does not read: it is written anew");
            Ok(())
        }
        (Ok(FORMAT), false) if matches!(opening, OpenMode::Again { .. }) => {
            let place = dir.display();
            tracing::error!(%place, "the turn log was removed while it was open: an empty one begins");
            aside::remove_count(dir).map_err(|error| not_usable(&dir.join("flushed"), error))
        }
        (Ok(0..=FORMAT) | Err(_), false) => Err(OpenError::Vanished { dir: dir_of() }),
        (Ok(0..FORMAT), true) => Err(OpenError::Older {
            dir: dir_of(),
            found,
            known: FORMAT,
        }),
        (Ok(_), _) => Err(OpenError::Newer {
            dir: dir_of(),
            found,
            known: FORMAT,
        }),
    }
}

/// Marks the folder, unless it has this marker already.
pub(super) fn mark(dir: &Path) -> io::Result<()> {
    let (path, text) = (dir.join(MARK), format!("{FORMAT}\n"));
    if fs::read(&path).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(());
    }
    write(&path, &text)
}
