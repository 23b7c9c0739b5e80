//! Writing, with errors that say what to do when a disk is full.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use indicatif::DecimalBytes;

/// What helps where a disk is too small.
const ELSEWHERE: &str = "or name a folder on another disk (METACLAW_CACHE for what is fetched, METACLAW_HOME for what is installed)";

/// Adds what to do when a disk is full to an error in writing.
///
/// # Errors
/// That of `result`, in words.
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

/// Whether `stamp` says exactly `text`: the work that it stands for is done and was done for the same thing.
pub fn is_stamped(stamp: &Path, text: &str) -> bool {
    fs::read_to_string(stamp).is_ok_and(|found| found == text)
}

/// Refuses to begin what the disk has no room for. A system that does not say how much is free is believed to have enough.
///
/// # Errors
/// How many bytes `what` needs in `folder`, how many are free, and what to do.
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

/// Bytes that are free where the folder is, or is to be; none where the system does not say.
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
