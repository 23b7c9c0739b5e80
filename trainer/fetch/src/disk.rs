//! Writes files, with errors that say what to do when a disk is full.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use indicatif::DecimalBytes;

const ELSEWHERE: &str = "or name a folder on another disk (METACLAW_CACHE for what is fetched, METACLAW_HOME for what is installed)";

/// Adds advice to an error of writing if the disk is full.
///
/// # Errors
/// Returns the error of `result` with that advice.
pub fn writing<T>(result: io::Result<T>, path: &Path) -> Result<T> {
    result.map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                format!("; free some space, {ELSEWHERE}")
            }
            ErrorKind::PermissionDenied => format!("; make it writable, {ELSEWHERE}"),
            _ => String::new(),
        };
        anyhow!("cannot write {}: {error}{advice}", path.display())
    })
}

/// Returns whether the file `stamp` contains exactly `text`: the work that it stands for is done, and for the same
/// input.
pub fn is_stamped(stamp: &Path, text: &str) -> bool {
    fs::read_to_string(stamp).is_ok_and(|found| found == text)
}

/// Refuses to begin if the disk has too little free space. If the system does not report the free space, it is assumed
/// to be enough.
///
/// # Errors
/// The error gives the bytes that `what` needs in `folder`, the bytes that are free, and what to do.
pub fn room_for(what: &str, needed: u64, folder: &Path) -> Result<()> {
    let Some(free) = n_free(folder) else {
        return Ok(());
    };
    ensure!(
        needed <= free,
        "{what} needs {} in {}, where {} are free: free {} more, {ELSEWHERE}",
        DecimalBytes(needed),
        folder.display(),
        DecimalBytes(free),
        DecimalBytes(needed - free)
    );
    Ok(())
}

/// Returns the free bytes of the disk on which the folder is or will be, or `None` if the system does not report them.
fn n_free(folder: &Path) -> Option<u64> {
    let there = folder.ancestors().find(|path| path.exists())?;
    let found = rustix::fs::statvfs(there).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_larger_than_the_disk_is_refused_before_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let to_be = folder.path().join("not/there/yet");
        room_for("a file", 1, &to_be).unwrap();
        let error = room_for("a file", u64::MAX, &to_be).unwrap_err();
        let error = error.to_string();
        for part in ["a file needs 18.45 EB", "are free: free ", "METACLAW_HOME"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_full_disk_is_told_with_what_to_do() {
        let full = io::Error::from(ErrorKind::StorageFull);
        let error = writing(Err::<(), _>(full), Path::new("/a/b")).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("/a/b") && error.contains("free some space"),
            "{error}"
        );
    }
}
