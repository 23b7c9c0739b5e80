//! The lock of the checkpoint folder: one trainer for each.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// The lock file's name in the checkpoint folder. The file stays when the process ends; the lock does not.
const NAME: &str = ".lock";

/// The lock of a checkpoint folder; released on drop, or when the process ends in any way.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: File,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderLockError {
    /// Another trainer has it.
    #[error(
        "checkpoint folder {} is in use by process {holder}: end that one, or give another --checkpoint-dir",
        .folder.display()
    )]
    Held {
        folder: PathBuf,
        /// The holder's process id, or the text that could be read of it.
        holder: String,
    },
    /// The folder cannot be created or written.
    #[error("checkpoint folder {}: {source}", .folder.display())]
    Io {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
}

// === impl FolderLock ===

impl FolderLock {
    /// Creates the folder if necessary and locks it.
    ///
    /// # Errors
    /// [`FolderLockError`] names the folder, and the process that holds it.
    pub(crate) fn take(folder: &Path) -> Result<Self, FolderLockError> {
        let io_error = |source| FolderLockError::Io {
            folder: folder.to_owned(),
            source,
        };
        std::fs::create_dir_all(folder).map_err(io_error)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(folder.join(NAME)).map_err(io_error)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                // A holder that is just writing its id is shown as unknown.
                let _ = file.read_to_string(&mut holder);
                let holder = holder.trim();
                return Err(FolderLockError::Held {
                    folder: folder.to_owned(),
                    holder: if holder.is_empty() { "unknown" } else { holder }.to_owned(),
                });
            }
            Err(errno) => return Err(io_error(errno.into())),
        }
        write_pid(&mut file).map_err(io_error)?;
        Ok(Self { _file: file })
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_refused_and_told_the_pid() {
        let folder = tempfile::tempdir().unwrap();
        let first = FolderLock::take(folder.path()).unwrap();
        let error = FolderLock::take(folder.path()).unwrap_err();
        let holder = format!("in use by process {}", std::process::id());
        assert!(error.to_string().contains(&holder), "{error}");
        drop(first);
        assert!(FolderLock::take(folder.path()).is_ok());
    }

    #[test]
    fn a_folder_that_cannot_be_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = FolderLock::take(&file.join("below")).unwrap_err();
        assert!(error.to_string().contains("file/below"), "{error}");
    }
}
