//! Writes the database anew, so that deleted data is gone from the disk.
//!
//! sled overwrites deleted data only when it needs the room. Therefore all existing data is copied into a new database,
//! which replaces the old one. The copy is complete before the first rename. [`settle`] finishes a swap that a kill
//! interrupted.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use metaclaw_chat::if_there;

use crate::{
    mend,
    store::{Store, StoreResult},
};

fn fresh(dir: &Path) -> PathBuf {
    dir.join("sled.new")
}

fn old(dir: &Path) -> PathBuf {
    dir.join("sled.old")
}

pub(super) fn copy(dir: &Path, store: &Store, cache: u64) -> StoreResult<()> {
    copy_by(dir, cache, |new| store.copy_to(new))
}

pub(super) fn copy_readable(dir: &Path, store: &Store, cache: u64) -> StoreResult<()> {
    copy_by(dir, cache, |new| {
        store.copy_readable_to(new)?;
        mend::mend(new)
    })
}

fn copy_by(
    dir: &Path,
    cache: u64,
    copy: impl FnOnce(&Store) -> StoreResult<()>,
) -> StoreResult<()> {
    let to = fresh(dir);
    if_there(fs::remove_dir_all(&to))?;
    let new = Store::open(&to, cache)?;
    copy(&new)?;
    new.flush()?;
    drop(new);
    Store::wait_until_free(&to);
    Ok(sync(&to)?)
}

/// Syncs a folder to the disk, because the old one is removed next and a power cut may follow.
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

/// Puts the copy at the place of the database, which nobody has open.
pub(super) fn swap(dir: &Path, database: &Path) -> io::Result<()> {
    fs::rename(database, old(dir))?;
    fs::rename(fresh(dir), database)?;
    fs::remove_dir_all(old(dir))
}

pub(super) fn swap_and_keep(dir: &Path, database: &Path, kept: &Path) -> io::Result<()> {
    fs::rename(database, old(dir))?;
    fs::rename(fresh(dir), database)?;
    fs::rename(old(dir), kept)
}

/// Returns where the database is while a swap may be interrupted. [`settle`] moves it to its place.
pub(super) fn place(dir: &Path, database: &Path) -> PathBuf {
    let places = [database.to_owned(), fresh(dir), old(dir)];
    let is_swapping = !database.exists() && old(dir).exists();
    let mut there = places.into_iter().filter(|place| place.exists());
    let place = if is_swapping { there.next() } else { None };
    place.unwrap_or_else(|| database.to_owned())
}

/// Finishes an interrupted swap, and removes an incomplete copy.
pub(super) fn settle(dir: &Path, database: &Path) -> io::Result<()> {
    if !database.try_exists()? && old(dir).try_exists()? {
        // The copy was complete before the first rename. If it is gone, somebody removed it.
        if if_there(fs::rename(fresh(dir), database))?.is_none() {
            return fs::rename(old(dir), database);
        }
    }
    if_there(fs::remove_dir_all(old(dir)))?;
    if_there(fs::remove_dir_all(fresh(dir))).map(drop)
}
