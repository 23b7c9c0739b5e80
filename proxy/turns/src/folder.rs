//! The log's folder: its files, and what happens when the log cannot be opened.
//!
//! `sled/` is the database. `FORMAT` marks the folder and gives the format. `holder` names the process that has it
//! open. `flushed` counts transactions (`counter`). `clock` keeps readings of the clock (`clock`). `damaged-TIME/` are
//! databases that were moved aside, or copies of databases that lost data. `repaired-TIME/` are damaged parts that the
//! database works without. None of them is ever deleted. `sled.new/` and `sled.old/` exist while the database is written
//! anew (`compact`).

mod access;
mod aside;
mod compact;
mod files;
mod parts;
mod readable;
mod repair;

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use metaclaw_chat::{if_there, make_private};

pub(crate) use self::{access::OpenMode, files::write};
use self::{
    access::{Lock, not_usable, open_error},
    aside::CopiedDatabase,
    repair::{DatabasePlace, Repaired},
};
use crate::{
    config::TurnsConfig,
    counter::{FlushCounter, Flushed},
    error::OpenError,
    health::{MovedAside, OpenOutcome},
    journal,
    mask::Mask,
    store::{Store, StoreError, StoreResult},
};

#[derive(Debug)]
pub(crate) struct OpenedStore {
    pub(crate) store: Store,
    pub(crate) counter: FlushCounter,
    pub(crate) mask: Mask,
    /// The database file, and its inode when it was opened.
    file: PathBuf,
    inode: (u64, u64),
    _lock: Lock,
}

// === impl OpenedStore ===

impl OpenedStore {
    /// Checks that the file is still at its place, because writes to a removed file are lost.
    pub(crate) fn check_place(&self) -> StoreResult<()> {
        let inode = if_there(inode(&self.file)).map_err(StoreError::NotWritable)?;
        let is_there = inode == Some(self.inode);
        is_there.then_some(()).ok_or(StoreError::Removed)
    }
}

/// Writes an open log anew, so that deleted data is gone from the disk, and opens it again.
pub(crate) fn compact(
    dir: &Path,
    config: &TurnsConfig,
    opened: OpenedStore,
) -> Result<OpenedStore, OpenError> {
    let database = database(dir);
    compact::copy(dir, &opened.store, config.cache.0).map_err(|error| open_error(dir, error))?;
    // Nobody may have the database open while it is moved.
    drop(opened);
    Store::wait_until_free(&database);
    compact::swap(dir, &database).map_err(|error| not_usable(&database, error))?;
    open(dir, config, OpenMode::Again { damaged: false }).map(|(opened, _)| opened)
}

/// The folders of copies that are only read, and removed when they are closed.
pub(crate) const COPIES: [&str; 2] = ["copy-to-look", "copy-to-read"];

pub(crate) fn copy(from: &Path, dir: &Path) -> Result<(), OpenError> {
    let copy = || {
        if_there(fs::remove_dir_all(dir))?;
        make_private(dir)?;
        files::copy_all(from, &database(dir))
    };
    copy().map_err(|error| not_usable(dir, error))
}

/// Checks the files of the log in `dir` as each opener does, and copies it with the count that shows what it has lost.
pub(crate) fn copy_log(dir: &Path, to: &Path) -> Result<(), OpenError> {
    let database = compact::place(dir, &database(dir));
    access::check(dir, &database)?;
    access::check_format(dir, &database, OpenMode::Scratch)?;
    copy(&database, to)?;
    let copied = if_there(fs::copy(Flushed::path(dir), Flushed::path(to)));
    copied.map(drop).map_err(|error| not_usable(to, error))
}

/// Waits until another opener can use the log in `dir`, which this process had open.
pub(crate) fn wait_until_free(dir: &Path) {
    Store::wait_until_free(&database(dir));
}

pub(crate) fn open(
    dir: &Path,
    config: &TurnsConfig,
    opening: OpenMode,
) -> Result<(OpenedStore, OpenOutcome), OpenError> {
    // This is checked before any file is touched, because sled would panic, which would look like damage.
    config.check()?;
    let mask = Mask::new(config.mask_secrets, &config.mask)?;
    make_private(dir).map_err(|error| not_usable(dir, error))?;
    let database = database(dir);
    let lock = Lock::acquire(dir, &database)?;
    compact::settle(dir, &database).map_err(|error| not_usable(dir, error))?;
    // A process that was killed while it looked at a copy has left it.
    for copy in COPIES {
        if_there(fs::remove_dir_all(dir.join(copy))).map_err(|error| not_usable(dir, error))?;
    }
    access::check(dir, &database)?;
    access::check_format(dir, &database, opening)?;
    let at = DatabasePlace {
        dir,
        database: &database,
        cache: config.cache.0,
        opening,
    };
    let Repaired {
        store,
        moved_aside,
        parts,
        n_lost,
        n_gaps,
        copied,
    } = at.open()?;
    let count = journal::last_number(&store).map_err(|error| open_error(dir, error))?;
    let (flushed, file) = (Flushed::path(dir), database.join("db"));
    let counter =
        FlushCounter::open(&flushed, &file, count).map_err(|error| not_usable(&flushed, error))?;
    let of_loss = copied.filter(|_| n_lost > 0 || n_gaps > 0);
    let copied = of_loss.map(CopiedDatabase::keep).transpose();
    let outcome = OpenOutcome {
        recovered: store.was_recovered(),
        moved_aside,
        repaired: parts,
        n_lost,
        n_gaps,
        copied: copied.map_err(|error| not_usable(dir, error))?,
    };
    report(&outcome);
    access::mark_format(dir).map_err(|error| not_usable(&dir.join("FORMAT"), error))?;
    let inode = inode(&file).map_err(|error| not_usable(&file, error))?;
    let opened = OpenedStore {
        store,
        counter,
        mask,
        file,
        inode,
        _lock: lock,
    };
    Ok((opened, outcome))
}

fn report(outcome: &OpenOutcome) {
    if let Some(MovedAside { to, why }) = &outcome.moved_aside {
        let to = to.display();
        tracing::warn!(%why, %to, "the turn log was moved aside, and an empty one begins");
    }
    if let Some(parts) = &outcome.repaired {
        let to = parts.display();
        tracing::warn!(%to, "parts of the turn log's database were damaged and moved aside: it was read without them");
    }
    let copy = outcome
        .copied
        .as_ref()
        .map(|copy| copy.display().to_string());
    if outcome.n_lost > 0 {
        let why = "its file was cut or damaged, or the power failed";
        tracing::warn!(
            n_lost = outcome.n_lost,
            copy,
            "the turn log lost transactions: {why}"
        );
    }
    if outcome.n_gaps > 0 {
        let rest = "and keeps all else: as it was, it lies in the copy";
        tracing::warn!(
            n_gaps = outcome.n_gaps,
            copy,
            "the turn log lost what stood on damaged pages, {rest}"
        );
    }
}

fn database(dir: &Path) -> PathBuf {
    dir.join("sled")
}

fn inode(file: &Path) -> io::Result<(u64, u64)> {
    let about = fs::metadata(file)?;
    Ok((about.dev(), about.ino()))
}
