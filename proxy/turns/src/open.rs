//! The log's folder: what lies in it, and what is done when it does not open.
//!
//! `sled/` is the database, `FORMAT` says that there is one and how it is written, `holder` names the
//! process that has it open, `flushed` counts transactions (`witness`), and `damaged-TIME/` are
//! databases that were put out of the way.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    codec::Codec,
    config::TurnsConfig,
    error::OpenError,
    health::{MovedAside, OpenOutcome},
    store::{Store, StoreError},
    txn::Reader,
    witness::{Witness, WitnessError},
};

/// The format that this program writes; docs/turn-log.md describes it. It goes on with a log of an
/// older one, which is of this one from then on.
const FORMAT: u32 = 3;

/// What to do with a database that is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDamage {
    /// Move it aside, begin an empty one, and say so: when the program starts.
    MoveAside,
    /// Fail: when a running program opens it again.
    Fail,
}

/// An open log, before anybody asks it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) reader: Reader,
    pub(crate) witness: Witness,
}

/// Waits until the log in `dir`, which this process had open, is free for another.
pub(crate) fn wait_until_free(dir: &Path) {
    Store::wait_until_free(&database(dir));
}

fn database(dir: &Path) -> PathBuf {
    dir.join("sled")
}

/// Opens the log in `dir`, or makes one.
pub(crate) fn open(
    dir: &Path,
    config: &TurnsConfig,
    on_damage: OnDamage,
) -> Result<(Opened, OpenOutcome), OpenError> {
    make_dir(dir).map_err(|error| not_writable(dir, error))?;
    let is_known = check_format(dir)?;
    let database = database(dir);
    if is_known && !Store::exists(&database) {
        return Err(OpenError::Vanished {
            dir: dir.to_owned(),
        });
    }
    let open = || Store::open(&database, config.cache.0);
    let mut outcome = OpenOutcome::default();
    let store = match open() {
        Err(StoreError::Damaged(why)) if on_damage == OnDamage::MoveAside => {
            outcome.moved_aside = Some(move_aside(dir, &database, why)?);
            open().map_err(|error| open_error(dir, error))?
        }
        opened => opened.map_err(|error| open_error(dir, error))?,
    };
    outcome.recovered = store.was_recovered();
    if outcome.moved_aside.is_some() {
        // It counts the transactions of the other.
        fs::remove_file(dir.join("flushed"))
            .or_else(absent)
            .map_err(|error| not_writable(dir, error))?;
    }
    let witness = Witness::open(&dir.join("flushed"), &store).map_err(|error| match error {
        WitnessError::Store(error) => open_error(dir, error),
        WitnessError::File(error) => not_writable(dir, error),
    })?;
    outcome.n_lost = witness.n_lost;
    say(&outcome);
    for (file, text) in [
        ("FORMAT", format!("{FORMAT}\n")),
        ("holder", format!("{}\n", std::process::id())),
    ] {
        write(&dir.join(file), &text).map_err(|error| not_writable(dir, error))?;
    }
    let codec = Codec::new().map_err(|error| OpenError::Other {
        dir: dir.to_owned(),
        why: error.to_string(),
    })?;
    let opened = Opened {
        reader: Reader { store, codec },
        witness,
    };
    Ok((opened, outcome))
}

/// What went wrong before, in the program's own log.
fn say(outcome: &OpenOutcome) {
    if let Some(moved) = &outcome.moved_aside {
        let (why, to) = (&moved.why, moved.to.display());
        tracing::warn!(%why, %to, "the turn log was damaged: it was moved aside, an empty one begins");
    }
    if outcome.n_lost > 0 {
        let n_lost = outcome.n_lost;
        tracing::warn!(
            n_lost,
            "the turn log lost its last transactions: its file was cut, or the power failed"
        );
    }
}

fn absent(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
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

/// Whether the folder is marked as a log, of a format that is known here.
fn check_format(dir: &Path) -> Result<bool, OpenError> {
    let found = match fs::read_to_string(dir.join("FORMAT")) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(not_writable(dir, error)),
    };
    match found.trim() {
        // A kill between making the file and writing it.
        "" => Ok(false),
        text if text.parse().is_ok_and(|it| (1..=FORMAT).contains(&it)) => Ok(true),
        text => Err(OpenError::Format {
            dir: dir.to_owned(),
            found: text.to_owned(),
            known: FORMAT,
        }),
    }
}

fn move_aside(dir: &Path, database: &Path, why: String) -> Result<MovedAside, OpenError> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let to = dir.join(format!("damaged-{}", now.as_millis()));
    match fs::rename(database, &to) {
        Ok(()) => Ok(MovedAside { to, why }),
        Err(source) => Err(OpenError::Damaged {
            dir: dir.to_owned(),
            why,
            source,
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
        error @ (StoreError::Damaged(_) | StoreError::Changed { .. } | StoreError::Other(_)) => {
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
