//! The folders of adapters and checkpoints. Each appears whole or not at all.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::tensors::FileError;

/// The folder of a trainer's adapters. Each adapter has a subfolder of its name.
pub fn adapters(checkpoint_dir: &Path) -> PathBuf {
    checkpoint_dir.join("adapters")
}

/// The folder of a trainer's checkpoints. Each checkpoint has a subfolder of its name.
pub fn checkpoints(checkpoint_dir: &Path) -> PathBuf {
    checkpoint_dir.join("checkpoints")
}

/// Tells files that were changed or replaced from those that were read.
///
/// By the time of the last change to the file itself, which nobody can set, and not by the time that it claims to be of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp(Vec<Option<(u64, i64, i64, u64)>>);

impl Stamp {
    /// The stamp of `files` in `folder` now. Missing files count too.
    pub fn of(folder: &Path, files: &[&str]) -> Self {
        let stamp = |name: &&str| {
            let file = fs::metadata(folder.join(name)).ok()?;
            Some((file.ino(), file.ctime(), file.ctime_nsec(), file.len()))
        };
        Self(files.iter().map(stamp).collect())
    }
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
    let failed = |error| E::from(FileError::writing(target)(error));
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

/// Removes `target` whole. Readers never see half of it under its name.
///
/// # Errors
/// The system's refusal; [`io::ErrorKind::NotFound`] where there is none.
pub fn remove(target: &Path) -> Result<(), FileError> {
    let removed = || {
        let (parent, fresh) = beside(target)?;
        // An empty folder gives way to a rename.
        if let Err(error) = fs::rename(target, &fresh) {
            fs::remove_dir(&fresh)?;
            return Err(error);
        }
        sync(&parent)?;
        fs::remove_dir_all(&fresh)
    };
    removed().map_err(FileError::writing(target))
}

/// Removes half-written folders that a killed process left in `parent`. The caller must hold the folder's lock.
pub fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        // The folder is missing or unreadable. The first save reports that.
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

/// Whether [`beside`] made the name in another process: `.<name>.<pid>-<count>`.
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

fn beside(target: &Path) -> io::Result<(PathBuf, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let parent = target.parent().unwrap_or_else(|| Path::new(".")).to_owned();
    if !parent.exists() {
        fs::create_dir_all(&parent)?;
        if let Some(above) = parent.parent().filter(|above| above.is_dir()) {
            sync(above)?;
        }
    }
    let file_name = target.file_name().unwrap_or_default();
    let name = file_name.to_string_lossy().into_owned();
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
    let flags = RenameFlags::EXCHANGE;
    Ok(renameat_with(CWD, fresh, CWD, target, flags)?)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensors::write_bytes;

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
