//! The log's folder: what lies in it, and what is done when it does not open.
//!
//! `sled/` is the database, `FORMAT` says that there is one and how it is written, `holder` names the
//! process that has it open, `flushed` counts transactions (`counter`), and `damaged-TIME/` and
//! `format-N-TIME/` are databases that were put out of the way: they are never deleted. `sled.new/` and `sled.old/`
//! are there while the database is written anew (`compact`).

mod aside;
mod compact;
mod files;

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use crate::{
    config::TurnsConfig,
    counter::FlushCounter,
    error::OpenError,
    folder::aside::Copied,
    health::{MovedAside, OpenOutcome},
    journal,
    mask::Mask,
    store::{Store, StoreError},
};

/// The format that this program writes and reads; docs/turn-log.md describes it. A log of an older one is
/// put out of the way.
const FORMAT: u32 = 4;

/// When a log is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// When the program starts. A damaged database is moved aside; one that is gone is said.
    First,
    /// When a running program has lost it. A damaged database is left alone, in case it is not damaged after
    /// all; one that is gone begins anew: turns wait.
    Again,
}

/// An open log, before anybody asks it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) counter: FlushCounter,
    /// What is masked in what is written.
    pub(crate) mask: Mask,
    /// Its file, and which it was when it was opened.
    file: PathBuf,
    inode: (u64, u64),
}

// === impl Opened ===

impl Opened {
    /// Whether the file is still where it was: what is written to one that was removed is lost.
    pub(crate) fn check_place(&self) -> Result<(), StoreError> {
        match inode(&self.file) {
            Ok(inode) if inode == self.inode => Ok(()),
            Ok(_) => Err(StoreError::Removed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StoreError::Removed),
            Err(error) => Err(StoreError::NotWritable(error)),
        }
    }
}

/// Writes an open log anew, so that what was forgotten is gone from the disk, and opens it again.
pub(crate) fn compact(
    dir: &Path,
    config: &TurnsConfig,
    opened: Opened,
) -> Result<Opened, OpenError> {
    let database = database(dir);
    let copied = compact::copy(dir, &opened.store, config.cache.0);
    copied.map_err(|error| open_error(dir, error))?;
    // Nobody may have it open while it is moved.
    drop(opened);
    Store::wait_until_free(&database);
    compact::swap(dir, &database).map_err(|error| not_writable(dir, error))?;
    open(dir, config, Opening::Again).map(|(opened, _)| opened)
}

/// Waits until the log in `dir`, which this process had open, is free for another.
pub(crate) fn wait_until_free(dir: &Path) {
    Store::wait_until_free(&database(dir));
}

/// Opens the log in `dir`, or makes one.
pub(crate) fn open(
    dir: &Path,
    config: &TurnsConfig,
    opening: Opening,
) -> Result<(Opened, OpenOutcome), OpenError> {
    // Before anything is touched: sled panics for it, which would look like damage.
    config.check()?;
    let mask = Mask::new(config.mask_secrets, &config.mask)?;
    make_dir(dir).map_err(|error| not_writable(dir, error))?;
    let settled = compact::settle(dir, &database(dir));
    settled.map_err(|error| not_writable(dir, error))?;
    let mut outcome = OpenOutcome {
        moved_aside: check_format(dir, opening)?,
        ..OpenOutcome::default()
    };
    let database = database(dir);
    let open = || Store::open(&database, config.cache.0);
    let copied = match opening {
        Opening::First => Copied::make(dir, &database),
        Opening::Again => None,
    };
    let store = match open() {
        Err(StoreError::Damaged(why)) if opening == Opening::First => {
            let why = format!("it was damaged: {why}");
            outcome.moved_aside = Some(aside::move_aside(dir, "damaged", why)?);
            open().map_err(|error| open_error(dir, error))?
        }
        opened => opened.map_err(|error| open_error(dir, error))?,
    };
    outcome.recovered = store.was_recovered();
    let count = journal::last_number(&store).map_err(|error| open_error(dir, error))?;
    let file_error = |error| not_writable(dir, error);
    let counter = FlushCounter::open(&dir.join("flushed"), count).map_err(file_error)?;
    outcome.n_lost = counter.n_lost;
    let copied = copied.filter(|_| counter.n_lost > 0);
    outcome.copied = copied.map(Copied::keep).transpose().map_err(file_error)?;
    say(&outcome);
    for (file, text) in [
        ("FORMAT", format!("{FORMAT}\n")),
        ("holder", format!("{}\n", std::process::id())),
    ] {
        write(&dir.join(file), &text).map_err(file_error)?;
    }
    let file = database.join("db");
    let inode = inode(&file).map_err(file_error)?;
    let opened = Opened {
        store,
        counter,
        mask,
        file,
        inode,
    };
    Ok((opened, outcome))
}

/// What went wrong before, in the program's own log.
fn say(outcome: &OpenOutcome) {
    if let Some(MovedAside { to, why }) = &outcome.moved_aside {
        let to = to.display();
        tracing::warn!(%why, %to, "the turn log was moved aside, and an empty one begins");
    }
    if outcome.n_lost > 0 {
        let n_lost = outcome.n_lost;
        let copy = match &outcome.copied {
            Some(copy) => copy.display().to_string(),
            None => "none: its file was too long to be copied at each start".to_owned(),
        };
        tracing::warn!(
            n_lost,
            %copy,
            "the turn log lost its last transactions: its file was cut or damaged, or the power failed"
        );
    }
}

fn database(dir: &Path) -> PathBuf {
    dir.join("sled")
}

/// Device and number of a file.
fn inode(file: &Path) -> io::Result<(u64, u64)> {
    let about = fs::metadata(file)?;
    Ok((about.dev(), about.ino()))
}

/// Conversations are nobody else's business: the folder is the owner's alone.
fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    use io::Write as _;
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())
}

/// Looks at how the folder is marked; where a log of an older format was moved to.
fn check_format(dir: &Path, opening: Opening) -> Result<Option<MovedAside>, OpenError> {
    let found = match fs::read_to_string(dir.join("FORMAT")) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(not_writable(dir, error)),
    };
    // sled would make an empty database where there is none.
    let exists = database(dir).join("db").is_file();
    match (found.trim(), found.trim().parse()) {
        // A kill between making the file and writing it.
        ("", _) => Ok(None),
        (_, Ok(FORMAT)) if exists => Ok(None),
        (_, Ok(FORMAT)) if opening == Opening::Again => {
            let place = dir.display();
            tracing::error!(%place, "the turn log was removed while it was open: an empty one begins");
            aside::remove_count(dir).map_err(|error| not_writable(dir, error))?;
            Ok(None)
        }
        (_, Ok(1..=FORMAT)) if !exists => Err(OpenError::Vanished {
            dir: dir.to_owned(),
        }),
        (_, Ok(old @ 1..FORMAT)) => {
            let why = format!("it has format {old}, this program keeps format {FORMAT}");
            aside::move_aside(dir, &format!("format-{old}"), why).map(Some)
        }
        (text, _) => Err(OpenError::Format {
            dir: dir.to_owned(),
            found: text.to_owned(),
            known: FORMAT,
        }),
    }
}

fn open_error(dir: &Path, error: StoreError) -> OpenError {
    let dir = dir.to_owned();
    match error {
        StoreError::Held => {
            let holder = fs::read_to_string(dir.join("holder")).unwrap_or_default();
            let holder = match holder.trim() {
                "" => "another process".to_owned(),
                pid => format!("process {pid}"),
            };
            OpenError::Held { dir, holder }
        }
        StoreError::Full => OpenError::Full { dir },
        StoreError::NotWritable(source) => OpenError::NotWritable { dir, source },
        error @ (StoreError::Damaged(_) | StoreError::Removed | StoreError::Other(_)) => {
            OpenError::Other {
                dir,
                why: error.to_string(),
            }
        }
    }
}

fn not_writable(dir: &Path, source: io::Error) -> OpenError {
    let dir = dir.to_owned();
    match source.kind() {
        io::ErrorKind::StorageFull => OpenError::Full { dir },
        _ => OpenError::NotWritable { dir, source },
    }
}
