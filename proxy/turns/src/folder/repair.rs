//! Opens the database, or its readable part.
//!
//! The steps go from the cheapest to the most expensive, and nothing is changed before there is a copy. First,
//! incomplete files are removed, and damaged parts that the database works without are moved aside. If sled still
//! reports damage, the database is opened without its snapshots. Only if that fails too, and a new database can be
//! opened, the whole database is moved aside.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use super::{
    access::{OpenMode, not_usable, open_error},
    aside::{self, CopiedDatabase, PROBE},
    compact,
    parts::DatabaseParts,
    readable,
};
use crate::{
    counter::Flushed,
    error::OpenError,
    health::MovedAside,
    journal, mend,
    store::{Store, StoreError, StoreResult, panic_text},
    values::TxnError,
};

pub(super) struct Repaired {
    pub(super) store: Store,
    pub(super) moved_aside: Option<MovedAside>,
    pub(super) parts: Option<PathBuf>,
    /// Number of transactions, turns and texts that were flushed once and are lost.
    pub(super) n_lost: u64,
    pub(super) n_gaps: u64,
    pub(super) copied: Option<CopiedDatabase>,
}

#[derive(Clone, Copy)]
pub(super) struct DatabasePlace<'a> {
    pub(super) dir: &'a Path,
    pub(super) database: &'a Path,
    pub(super) cache: u64,
    pub(super) opening: OpenMode,
}

// === impl DatabasePlace ===

impl DatabasePlace<'_> {
    /// Opens the database. If a part of it is lost, the rest is written into a new one.
    pub(super) fn open(self) -> Result<Repaired, OpenError> {
        let flushed = Flushed::read(&Flushed::path(self.dir));
        let length = fs::metadata(self.database.join("db")).map_or(0, |about| about.len());
        let mut repaired = self.open_whole()?;
        if repaired.moved_aside.is_some() {
            return Ok(repaired);
        }
        self.count(&mut repaired, flushed.count, length < flushed.length)
            .map_err(|error| open_error(self.dir, error))?;
        // sled may have restored the tables as of different times. A new turn could then refer to lost data.
        if repaired.n_gaps > 0 || repaired.n_lost > 0 {
            return self.salvage(repaired);
        }
        Ok(repaired)
    }

    /// Counts lost data. `n_flushed` is the number of flushed transactions. `is_short` says whether the file is shorter
    /// than before.
    fn count(self, repaired: &mut Repaired, n_flushed: u64, is_short: bool) -> StoreResult<()> {
        let store = &repaired.store;
        repaired.n_lost = n_flushed.saturating_sub(journal::last_number(store)?);
        // A log that was read from its beginning, or was truncated, may have lost data in the middle.
        let may_lack = repaired.parts.is_some() || is_short;
        if may_lack || self.opening == (OpenMode::Again { damaged: true }) {
            repaired.n_gaps = store.n_gaps()?;
        }
        // A table with a gap cannot be read for this count, and the gap itself already shows the loss.
        if may_lack && repaired.n_gaps == 0 {
            repaired.n_lost += mend::count_missing(store).map_err(TxnError::into_store)?;
        }
        Ok(())
    }

    /// Copies all readable data into a new database. The old one is kept as a copy.
    fn salvage(self, repaired: Repaired) -> Result<Repaired, OpenError> {
        compact::copy_readable(self.dir, &repaired.store, self.cache)
            .map_err(|error| open_error(self.dir, error))?;
        drop(repaired.store);
        Store::wait_until_free(self.database);
        let unusable = |error| not_usable(self.database, error);
        let kept = CopiedDatabase::named(self.dir);
        compact::swap_and_keep(self.dir, self.database, kept.path()).map_err(unusable)?;
        Ok(Repaired {
            store: self.open_store()?,
            // This is the copy from before any change, if there is one.
            copied: repaired.copied.or(Some(kept)),
            ..repaired
        })
    }

    fn open_whole(self) -> Result<Repaired, OpenError> {
        aside::remove_leftovers(self.dir)?;
        let mut parts = DatabaseParts::check(self.database)?;
        if parts.read_from() > self.read(parts.read_from())? {
            // The snapshot is of a later log than this one: somebody restored a backup of the log.
            parts.give_up_snapshots();
            self.read(0)?;
        }
        let copied = if parts.may_cost() {
            Some(self.copy("a snapshot or a blob of it is")?)
        } else if self.opening == OpenMode::First {
            CopiedDatabase::of_short(self.dir, self.database)
        } else {
            None
        };
        let moved = self.settle(&mut parts)?;
        let why = match self.try_open() {
            Ok(store) => return Ok(Repaired::new(store, moved, copied)),
            Err(StoreError::Damaged(why)) => why,
            Err(error) => return Err(open_error(self.dir, error)),
        };
        self.probe(&why)?;
        if parts.snapshots.is_empty() {
            return self.begin(why, copied);
        }
        self.open_without_snapshots(why, copied)
    }

    /// Opens the database without its snapshots, because a snapshot with a valid checksum may belong to another log.
    fn open_without_snapshots(
        self,
        why: String,
        copied: Option<CopiedDatabase>,
    ) -> Result<Repaired, OpenError> {
        let copied = match copied {
            Some(copied) => {
                // sled may have overwritten data that the snapshot did not mention.
                let restored = copied.restore(self.database);
                restored.map_err(|error| not_usable(self.database, error))?;
                copied
            }
            None => self.copy(&why)?,
        };
        let mut parts = DatabaseParts::check(self.database)?;
        parts.give_up_snapshots();
        self.read(0)?;
        let moved = self.settle(&mut parts)?;
        match self.try_open() {
            Ok(store) => Ok(Repaired::new(store, moved, Some(copied))),
            Err(StoreError::Damaged(_)) => self.begin(why, Some(copied)),
            Err(error) => Err(open_error(self.dir, error)),
        }
    }

    fn open_store(self) -> Result<Store, OpenError> {
        Store::open(self.database, self.cache).map_err(|error| open_error(self.dir, error))
    }

    /// Opens it, and reads what every opening needs. Only then sled finds out that a snapshot is wrong.
    fn try_open(self) -> StoreResult<Store> {
        // The failed attempt may hold the database for a moment.
        Store::wait_until_free(self.database);
        let store = Store::open(self.database, self.cache)?;
        let read = catch_unwind(AssertUnwindSafe(|| journal::last_number(&store)));
        read.unwrap_or_else(|panic| Err(StoreError::Damaged(panic_text(&*panic))))?;
        Ok(store)
    }

    fn read(self, from: u64) -> Result<u64, OpenError> {
        let db = self.database.join("db");
        readable::check(&db, from).map_err(|error| not_usable(&db, error))
    }

    fn copy(self, why: &str) -> Result<CopiedDatabase, OpenError> {
        CopiedDatabase::before_repair(self.dir, self.database, why)
    }

    fn settle(self, parts: &mut DatabaseParts) -> Result<Option<PathBuf>, OpenError> {
        let settled = parts.settle(self.dir, self.database);
        settled.map_err(|error| not_usable(self.database, error))
    }

    /// Checks whether a database can be opened here at all. If not, ours may not be damaged.
    fn probe(self, why: &str) -> Result<(), OpenError> {
        let place = self.dir.join(PROBE);
        let opened = Store::open(&place, self.cache).and_then(|store| store.flush());
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

    /// Moves the database aside unchanged, and begins an empty one. This does not happen while the program runs.
    fn begin(self, why: String, copied: Option<CopiedDatabase>) -> Result<Repaired, OpenError> {
        let unusable = |error| not_usable(self.database, error);
        if self.opening != OpenMode::First {
            let back = copied.map(|copied| copied.put_back(self.database));
            back.transpose().map_err(unusable)?;
            return Err(open_error(self.dir, StoreError::Damaged(why)));
        }
        if let Some(copied) = copied {
            // The unchanged copy is worth more than what sled has made of it.
            copied.put_back(self.database).map_err(unusable)?;
        }
        let why = format!("it was damaged: {why}");
        let moved = aside::move_aside(self.dir, self.database, why)?;
        Ok(Repaired {
            moved_aside: Some(moved),
            ..Repaired::new(self.open_store()?, None, None)
        })
    }
}

// === impl Repaired ===

impl Repaired {
    fn new(store: Store, parts: Option<PathBuf>, copied: Option<CopiedDatabase>) -> Self {
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
