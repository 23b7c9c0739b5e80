//! The database written anew: what was removed is gone from the disk then.
//!
//! sled writes over what was removed only when it needs the room. So all that is there is copied into a new database,
//! which takes the old one's place. The copy is whole before the first rename; [`settle`] finishes what a kill cut short.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::files::absent;
use crate::{
    mend,
    store::{Store, StoreError},
};

/// The new database, while it is written.
fn fresh(dir: &Path) -> PathBuf {
    dir.join("sled.new")
}

/// The old one, until it is removed.
fn old(dir: &Path) -> PathBuf {
    dir.join("sled.old")
}

/// Copies all that a store has into a new database beside it.
pub(super) fn copy(dir: &Path, store: &Store, cache: u64) -> Result<(), StoreError> {
    copy_by(dir, cache, |new| store.copy_to(new))
}

/// Copies what can be read of a store into a new database beside it, and mends there what has lost something.
pub(super) fn copy_readable(dir: &Path, store: &Store, cache: u64) -> Result<(), StoreError> {
    copy_by(dir, cache, |new| {
        store.copy_readable_to(new)?;
        mend::mend(new)
    })
}

fn copy_by(
    dir: &Path,
    cache: u64,
    copy: impl FnOnce(&Store) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let to = fresh(dir);
    fs::remove_dir_all(&to).or_else(absent)?;
    let new = Store::open(&to, cache)?;
    copy(&new)?;
    new.flush()?;
    drop(new);
    Store::wait_until_free(&to);
    Ok(sync(&to)?)
}

/// Puts a folder on the disk: the old one goes next, and the power may go too.
fn sync(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            sync(&path)?;
        } else {
            fs::File::open(path)?.sync_all()?;
        }
    }
    fs::File::open(dir)?.sync_all()
}

/// Puts the copy in the place of the database, which nobody has open.
pub(super) fn swap(dir: &Path, database: &Path) -> io::Result<()> {
    fs::rename(database, old(dir))?;
    fs::rename(fresh(dir), database)?;
    fs::remove_dir_all(old(dir))
}

/// The same, and keeps the old one under another name.
pub(super) fn swap_and_keep(dir: &Path, database: &Path, kept: &Path) -> io::Result<()> {
    fs::rename(database, old(dir))?;
    fs::rename(fresh(dir), database)?;
    fs::rename(old(dir), kept)
}

/// Finishes a swap that was cut short, and removes a copy that was.
pub(super) fn settle(dir: &Path, database: &Path) -> io::Result<()> {
    if !database.try_exists()? && old(dir).try_exists()? {
        // The copy was whole before the first rename; one that is gone was somebody's doing.
        match fs::rename(fresh(dir), database) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return fs::rename(old(dir), database);
            }
            renamed => renamed?,
        }
    }
    fs::remove_dir_all(old(dir)).or_else(absent)?;
    fs::remove_dir_all(fresh(dir)).or_else(absent)
}
