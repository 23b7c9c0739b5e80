//! Ensures that only one process uses the folder. The database has its own lock, but some files are read and moved
//! before it is opened.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use super::access::not_usable;
use crate::{error::OpenError, store::Store};

/// The lock of the folder, held until this is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "its lock goes with it")] File);

// === impl Lock ===

impl Lock {
    /// Takes the lock, and writes this process into the file `holder`.
    pub(super) fn acquire(dir: &Path, database: &Path) -> Result<Self, OpenError> {
        let path = dir.join("holder");
        let unusable = |error| not_usable(&path, error);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.mode(0o600).open(&path).map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(dir, &mut file)),
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        // An older metaclaw does not take this lock.
        if Store::is_held(database) {
            return Err(held(dir, &mut file));
        }
        let said = file.set_len(0).and_then(|()| file.rewind());
        let said = said.and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = said {
            // If the disk is full, the log reports that elsewhere.
            tracing::warn!(%error, "the turn log cannot say who holds it");
        }
        Ok(Self(file))
    }
}

fn held(dir: &Path, file: &mut File) -> OpenError {
    let mut holder = String::new();
    let read: io::Result<usize> = file.read_to_string(&mut holder);
    let holder = match (read, holder.trim()) {
        (Err(_), _) | (_, "") => "another process".to_owned(),
        (_, pid) => format!("process {pid}"),
    };
    OpenError::Held {
        dir: dir.to_owned(),
        holder,
    }
}
