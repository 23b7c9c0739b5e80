//! Opens the database, or what can be had of it.
//!
//! The order is from what costs nothing to what costs all, and nothing is changed before there is a copy: what was never finished
//! is removed; parts that are damaged, and can be done without, are moved aside; where sled still calls the database damaged, it
//! is opened without its snapshots; and only where that fails too, and a new database does open, is it moved aside as a whole.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use super::{
    access::{not_usable, open_error},
    aside::{self, Copied, PROBE},
    compact,
    opening::Opening,
    parts::Parts,
    readable,
};
use crate::{
    counter::Flushed,
    error::OpenError,
    health::MovedAside,
    journal, mend,
    store::{Store, StoreError, panic_text},
};

/// What was opened, and how.
pub(super) struct Repaired {
    pub(super) store: Store,
    /// The whole database, where an empty one began in its place.
    pub(super) moved_aside: Option<MovedAside>,
    /// Parts of it that were done without.
    pub(super) parts: Option<PathBuf>,
    /// How many transactions, turns and texts were flushed once and are gone.
    pub(super) n_lost: u64,
    /// Pages, or runs of them, that do not read.
    pub(super) n_gaps: u64,
    /// The database as it was.
    pub(super) copied: Option<Copied>,
}

/// Where a database is opened, and how.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) dir: &'a Path,
    pub(super) database: &'a Path,
    pub(super) cache: u64,
    pub(super) opening: Opening,
}

// === impl At ===

impl At<'_> {
    /// Opens the database. If something of it is gone, what is left is written into a new one.
    pub(super) fn open(self) -> Result<Repaired, OpenError> {
        let flushed = Flushed::read(&Flushed::path(self.dir));
        let length = fs::metadata(self.database.join("db")).map_or(0, |about| about.len());
        let mut repaired = self.open_whole()?;
        if repaired.moved_aside.is_some() {
            return Ok(repaired);
        }
        self.count(&mut repaired, flushed.count, length < flushed.length)
            .map_err(|error| open_error(self.dir, error))?;
        // sled may have restored the tables as they were at different times. A new turn would then refer to what is gone.
        if repaired.n_gaps > 0 || repaired.n_lost > 0 {
            return self.salvage(repaired);
        }
        Ok(repaired)
    }

    /// Counts what is gone. `n_flushed`: how many transactions were flushed. `is_short`: whether the file is shorter than it was.
    fn count(
        self,
        repaired: &mut Repaired,
        n_flushed: u64,
        is_short: bool,
    ) -> Result<(), StoreError> {
        let store = &repaired.store;
        repaired.n_lost = n_flushed.saturating_sub(journal::last_number(store)?);
        // A log that was read from its beginning, or was cut, may lack something in the middle.
        let may_lack = repaired.parts.is_some() || is_short;
        if may_lack || self.opening == (Opening::Again { damaged: true }) {
            repaired.n_gaps = store.n_gaps()?;
        }
        // A table with a gap cannot be read for this count, and the gap alone says that something is gone.
        if may_lack && repaired.n_gaps == 0 {
            repaired.n_lost += mend::n_missing(store)?;
        }
        Ok(())
    }

    /// Takes what can be read into a new database. The old one stays as a copy of it.
    fn salvage(self, repaired: Repaired) -> Result<Repaired, OpenError> {
        let copied = compact::copy_readable(self.dir, &repaired.store, self.cache);
        copied.map_err(|error| open_error(self.dir, error))?;
        drop(repaired.store);
        Store::wait_until_free(self.database);
        let unusable = |error| not_usable(self.database, error);
        let kept = Copied::named(self.dir);
        compact::swap_and_keep(self.dir, self.database, kept.path()).map_err(unusable)?;
        let store = Store::open(self.database, self.cache);
        Ok(Repaired {
            store: store.map_err(|error| open_error(self.dir, error))?,
            // As it was before anything was done to it, if there is a copy of that.
            copied: repaired.copied.or(Some(kept)),
            ..repaired
        })
    }

    fn open_whole(self) -> Result<Repaired, OpenError> {
        aside::remove_leftovers(self.dir)?;
        let mut parts = Parts::look(self.database)?;
        if parts.read_from() > self.read(parts.read_from())? {
            // It is of a later log than this one: a backup of the log was put in its place.
            parts.give_up_snapshots();
            self.read(0)?;
        }
        let copied = if parts.may_cost() {
            Some(self.copy("a snapshot or a blob of it is")?)
        } else if self.opening == Opening::First {
            Copied::of_short(self.dir, self.database)
        } else {
            None
        };
        let moved = self.settle(&mut parts)?;
        let why = match self.try_open() {
            Ok(store) => return Ok(Repaired::of(store, moved, copied)),
            Err(StoreError::Damaged(why)) => why,
            Err(error) => return Err(open_error(self.dir, error)),
        };
        self.probe(&why)?;
        if !parts.has_snapshot() {
            return self.begin(why, copied);
        }
        self.open_without_snapshots(why, copied)
    }

    /// Where a snapshot is whole by its checksum, and may not be of this log.
    fn open_without_snapshots(
        self,
        why: String,
        copied: Option<Copied>,
    ) -> Result<Repaired, OpenError> {
        let copied = match copied {
            Some(copied) => {
                // sled may have written over what it did not find in the snapshot.
                let restored = copied.restore(self.database);
                restored.map_err(|error| not_usable(self.database, error))?;
                copied
            }
            None => self.copy(&why)?,
        };
        let mut parts = Parts::look(self.database)?;
        parts.give_up_snapshots();
        self.read(0)?;
        let moved = self.settle(&mut parts)?;
        match self.try_open() {
            Ok(store) => Ok(Repaired::of(store, moved, Some(copied))),
            Err(StoreError::Damaged(_)) => self.begin(why, Some(copied)),
            Err(error) => Err(open_error(self.dir, error)),
        }
    }

    /// Opens it, and reads what every opening needs: sled finds only then that a snapshot leads it astray.
    fn try_open(self) -> Result<Store, StoreError> {
        // What failed before may hold it for a moment.
        Store::wait_until_free(self.database);
        let store = Store::open(self.database, self.cache)?;
        let read = catch_unwind(AssertUnwindSafe(|| journal::last_number(&store)));
        read.unwrap_or_else(|panic| Err(StoreError::Damaged(panic_text(&*panic))))?;
        Ok(store)
    }

    /// Reads what sled is going to; up to where the log goes.
    fn read(self, from: u64) -> Result<u64, OpenError> {
        let db = self.database.join("db");
        readable::check(&db, from).map_err(|error| not_usable(&db, error))
    }

    fn copy(self, why: &str) -> Result<Copied, OpenError> {
        Copied::before_repair(self.dir, self.database, why)
    }

    fn settle(self, parts: &mut Parts) -> Result<Option<PathBuf>, OpenError> {
        let settled = parts.settle(self.dir, self.database);
        settled.map_err(|error| not_usable(self.database, error))
    }

    /// Whether a database opens here at all: where none does, ours need not be damaged.
    fn probe(self, why: &str) -> Result<(), OpenError> {
        let place = self.dir.join(PROBE);
        let opened = Store::open(&place, self.cache);
        let opened = opened.and_then(|store| store.flush());
        fs::remove_dir_all(&place).ok();
        opened.map_err(|error| match open_error(self.dir, error) {
            full @ OpenError::Full { .. } => full,
            error => OpenError::Environment {
                dir: self.dir.to_owned(),
                why: why.to_owned(),
                probe: error.to_string(),
            },
        })
    }

    /// Moves the database aside as it was, and begins an empty one; not in the middle of a run.
    fn begin(self, why: String, copied: Option<Copied>) -> Result<Repaired, OpenError> {
        let unusable = |error| not_usable(self.database, error);
        if self.opening != Opening::First {
            let back = copied.map(|copied| copied.put_back(self.database));
            back.transpose().map_err(unusable)?;
            return Err(open_error(self.dir, StoreError::Damaged(why)));
        }
        if let Some(copied) = copied {
            // What sled made of it meanwhile is worth less than what it was.
            copied.put_back(self.database).map_err(unusable)?;
        }
        let why = format!("it was damaged: {why}");
        let moved = aside::move_aside(self.dir, self.database, why)?;
        let store = Store::open(self.database, self.cache);
        let store = store.map_err(|error| open_error(self.dir, error))?;
        Ok(Repaired {
            moved_aside: Some(moved),
            ..Repaired::of(store, None, None)
        })
    }
}

// === impl Repaired ===

impl Repaired {
    fn of(store: Store, parts: Option<PathBuf>, copied: Option<Copied>) -> Self {
        Self {
            store,
            moved_aside: None,
            parts,
            n_lost: 0,
            n_gaps: 0,
            copied,
        }
    }
}
