//! Folders that appear whole or not at all, under names that stay inside.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::tensors::FileError;

/// A name that would not be one folder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "name {name:?} is not allowed: 1 to {MAX} of A-Z a-z 0-9 _ . @ -, beginning with a letter, a digit or _"
)]
pub struct NameError {
    /// What was given.
    pub name: String,
}

/// Longest name, bytes.
const MAX: usize = 96;

/// Checks the name of an adapter or a checkpoint. Callers have parsed it; this room trusts nobody with a path.
///
/// # Errors
/// [`NameError`].
pub fn check_name(name: &str) -> Result<(), NameError> {
    let first = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    let rest = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_.@-".contains(&b));
    if first && rest && name.len() <= MAX {
        return Ok(());
    }
    Err(NameError { name: name.into() })
}

/// Makes `target` a folder with what `fill` writes into it: all of that, or what was there before.
///
/// The folder is filled beside its place under a hidden name, synced, and exchanged with an older one
/// of the same name in one system call. Files must be synced by `fill`.
///
/// # Errors
/// What `fill` returns, or the system's refusal.
pub fn replace<E: From<FileError>>(
    target: &Path,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let failed = |source| {
        E::from(FileError::Write {
            file: target.into(),
            source,
        })
    };
    let (parent, fresh) = beside(target).map_err(failed)?;
    let result = fill(&fresh).and_then(|()| {
        let placed = sync(&fresh).and_then(|()| place(&fresh, target));
        placed.and_then(|()| sync(&parent)).map_err(failed)
    });
    // After an exchange this is the old folder, after a failure the unfinished one.
    if fresh.exists()
        && let Err(error) = fs::remove_dir_all(&fresh)
    {
        tracing::warn!(folder = %fresh.display(), %error, "a left-over folder cannot be removed");
    }
    result
}

/// Removes what a killed process left half written in `parent`. Whoever calls this holds the folder alone.
pub fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        // Not there yet, or not readable: then the first save says so.
        return;
    };
    for entry in entries.flatten() {
        if !is_left_over(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let folder = entry.path();
        match fs::remove_dir_all(&folder) {
            Ok(()) => tracing::info!(folder = %folder.display(), "removed: half written"),
            Err(error) => {
                tracing::warn!(folder = %folder.display(), %error, "half written, cannot be removed");
            }
        }
    }
}

/// Whether a name is one that [`beside`] made in another process: `.<name>.<pid>-<count>`.
fn is_left_over(name: &str) -> bool {
    let Some((hidden, made)) = name.rsplit_once('.') else {
        return false;
    };
    let Some((pid, count)) = made.split_once('-') else {
        return false;
    };
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let ours = pid == std::process::id().to_string();
    hidden.starts_with('.') && hidden.len() > 1 && number(pid) && number(count) && !ours
}

/// The parent, made if need be, and a new empty folder in it.
fn beside(target: &Path) -> io::Result<(PathBuf, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let parent = target.parent().unwrap_or_else(|| Path::new(".")).to_owned();
    fs::create_dir_all(&parent)?;
    let name = target
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let fresh = parent.join(format!(".{name}.{}-{count}", std::process::id()));
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    fs::create_dir(&fresh)?;
    Ok((parent, fresh))
}

fn place(fresh: &Path, target: &Path) -> io::Result<()> {
    if !target.exists() {
        return fs::rename(fresh, target);
    }
    Ok(renameat_with(
        CWD,
        fresh,
        CWD,
        target,
        RenameFlags::EXCHANGE,
    )?)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensors::write_bytes;

    #[test]
    fn names_stay_in_their_folder() {
        for good in ["a", "run@12", "_default@3", "v1.2-x"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        let long = "x".repeat(97);
        for bad in [
            "",
            "..",
            ".hidden",
            "../up",
            "a/b",
            "a\\b",
            "-x",
            "ü",
            "a\0",
            long.as_str(),
        ] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_what_a_killed_process_left_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let ours = format!(".x.{}-0", std::process::id());
        let kept = ["x", "x.1-2", ".cache", ".x.a-1", ours.as_str()];
        for name in kept.iter().chain(&[".agent@3.4000000000-7"]) {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        sweep(dir.path());
        sweep(&dir.path().join("missing"));
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut kept = kept.map(str::to_owned);
        kept.sort();
        assert_eq!(left, kept);
    }

    #[test]
    fn a_failed_write_leaves_the_old_folder_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("deep").join("x");
        let write = |text: &'static str, fail: bool| {
            replace(&target, |folder| {
                write_bytes(&folder.join("file"), text.as_bytes())?;
                let refused = || FileError::Damaged {
                    file: folder.into(),
                    detail: "no".into(),
                };
                if fail { Err(refused()) } else { Ok(()) }
            })
        };
        write("one", false).unwrap();
        write("two", true).unwrap_err();
        let read = || fs::read_to_string(target.join("file")).unwrap();
        assert_eq!(read(), "one");
        write("three", false).unwrap();
        assert_eq!(read(), "three");
        let left: Vec<_> = fs::read_dir(dir.path().join("deep")).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
