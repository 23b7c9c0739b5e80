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
