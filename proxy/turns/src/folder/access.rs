//! Whether this process may use the log's folder: its files, their format, and the lock that one process holds.
//!
//! All of it is checked before sled opens any file. sled would not say which file fails, and treats some unreadable files
//! as the end of the log. The database has its own lock, but some files are read and moved before it is opened.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
};

use metaclaw_chat::if_there;
use rustix::fs::Access;

use super::files::{entries, write};
use crate::{
    counter::Flushed,
    error::OpenError,
    store::{Store, StoreError},
};

/// The threads of sled, and ours.
const THREADS: usize = 9;

/// Checks every existing file of the log.
///
/// # Errors
/// Returns [`OpenError::NotUsable`], which names the first unusable file.
pub(super) fn check(dir: &Path, database: &Path) -> Result<(), OpenError> {
    threads().map_err(|error| not_usable(dir, error))?;
    folder(dir)?;
    for name in ["FORMAT", "flushed"] {
        file(&dir.join(name))?;
    }
    folder(database)?;
    for path in inside(database)? {
        let name = path.file_name().unwrap_or_default();
        if name == "blobs" {
            folder(&path)?;
            inside(&path)?.iter().try_for_each(|blob| file(blob))?;
        } else if name == "db" || name == "conf" {
            file(&path)?;
        }
    }
    Ok(())
}

/// Checks whether this process may start so many threads. sled waits forever for threads that it may not start.
fn threads() -> io::Result<()> {
    let start = |_| thread::Builder::new().spawn(thread::park);
    let threads: Vec<_> = (0..THREADS).map(start).collect();
    let mut started = Ok(());
    for thread in threads {
        match thread {
            Ok(thread) => {
                thread.thread().unpark();
                // The thread does not panic.
                thread.join().ok();
            }
            Err(error) => started = Err(error),
        }
    }
    started
}

fn inside(dir: &Path) -> Result<Vec<PathBuf>, OpenError> {
    entries(dir).map_err(|error| not_usable(dir, error))
}

fn folder(path: &Path) -> Result<(), OpenError> {
    let unusable = |error| not_usable(path, error);
    let about = if_there(fs::metadata(path)).map_err(unusable)?;
    match about.map(|about| about.is_dir()) {
        None => return Ok(()),
        Some(false) => return Err(unusable(io::ErrorKind::NotADirectory.into())),
        Some(true) => {}
    }
    let all = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::access(path, all).map_err(|error| unusable(error.into()))
}

fn file(path: &Path) -> Result<(), OpenError> {
    let open = || {
        if fs::metadata(path)?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        OpenOptions::new().read(true).write(true).open(path)
    };
    if_there(open())
        .map(drop)
        .map_err(|error| not_usable(path, error))
}

pub(super) fn not_usable(path: &Path, source: io::Error) -> OpenError {
    use io::ErrorKind as Kind;
    let is_limit = |code: rustix::io::Errno| source.raw_os_error() == Some(code.raw_os_error());
    let remedy = match source.kind() {
        Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => {
            let dir = path.parent().unwrap_or(path).to_owned();
            return OpenError::Full { dir };
        }
        Kind::PermissionDenied => whose(path),
        Kind::ReadOnlyFilesystem => "its file system is mounted read-only: mount it for writing".to_owned(),
        Kind::IsADirectory | Kind::NotADirectory | Kind::AlreadyExists => {
            "something else lies in its place: move that away".to_owned()
        }
        _ if is_limit(rustix::io::Errno::MFILE) || is_limit(rustix::io::Errno::NFILE) => {
            "no more files may be open: raise the limit (`ulimit -n`)".to_owned()
        }
        Kind::WouldBlock => {
            "no more threads may be started: raise the limit of processes (`ulimit -u`, or the container's)".to_owned()
        }
        _ => "see to that, then start again".to_owned(),
    };
    let path = path.to_owned();
    OpenError::NotUsable {
        path,
        source,
        remedy,
    }
}

fn whose(path: &Path) -> String {
    let us = rustix::process::geteuid().as_raw();
    let (shown, dir) = (path.display(), path.parent().unwrap_or(path).display());
    match fs::symlink_metadata(path).map(|about| (about.uid(), about.mode() & 0o777)) {
        Ok((owner, mode)) if owner == us => {
            format!("its mode is {mode:o}: `chmod u+rwX {shown}`")
        }
        Ok((owner, _)) => format!(
            "it belongs to user {owner}, and this process runs as user {us}: `sudo chown -R {us} {dir}`"
        ),
        Err(_) => format!("see who owns it: `ls -ld {dir}`"),
    }
}

pub(super) fn open_error(dir: &Path, error: StoreError) -> OpenError {
    let dir = dir.to_owned();
    match error {
        StoreError::Held => OpenError::Held {
            dir,
            holder: "another process".to_owned(),
        },
        StoreError::Full => OpenError::Full { dir },
        StoreError::NotWritable(source) => not_usable(&dir.join("sled"), source),
        StoreError::Foreign(names) => OpenError::Older {
            found: format!("of the tables {names}"),
            dir,
            known: FORMAT,
        },
        error @ (StoreError::Damaged(_) | StoreError::Removed | StoreError::Other(_)) => {
            OpenError::Other {
                dir,
                why: error.to_string(),
            }
        }
    }
}

/// The format that this program writes and reads. README.md describes it.
pub(super) const FORMAT: u32 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// At the start of the program. A damaged database is moved aside. A missing one is reported.
    First,
    /// A copy, which is removed when it is closed. If it is damaged as a whole, this is reported.
    Scratch,
    /// After a running program has lost it. A damaged database is not changed, because it may not be damaged. If it is
    /// missing, a new one is created, because turns are waiting.
    Again { damaged: bool },
}

/// The lock of the folder, held until this is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "its lock goes with it")] File);

// === impl Lock ===

impl Lock {
    pub(super) fn acquire(dir: &Path, database: &Path) -> Result<Self, OpenError> {
        let path = dir.join("holder");
        let unusable = |error| not_usable(&path, error);
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let mut file = options.open(&path).map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(dir, &mut file)),
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        // An older metaclaw does not take this lock.
        if Store::is_held(database) {
            return Err(held(dir, &mut file));
        }
        let emptied = file.set_len(0).and_then(|()| file.rewind());
        if let Err(error) = emptied.and_then(|()| writeln!(file, "{}", std::process::id())) {
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

const MARK: &str = "FORMAT";

/// Checks the marker. If it is missing or unreadable, the log is still usable: its tables show whether it is ours.
///
/// # Errors
/// Returns [`OpenError::Older`] or [`OpenError::Newer`], or [`OpenError::Vanished`] if there was a log before.
pub(super) fn check_format(
    dir: &Path,
    database: &Path,
    opening: OpenMode,
) -> Result<(), OpenError> {
    let mark = dir.join(MARK);
    let read = if_there(fs::read(&mark)).map_err(|error| not_usable(&mark, error))?;
    let Some(bytes) = read else { return Ok(()) };
    let found = String::from_utf8_lossy(&bytes).trim().to_owned();
    // Without this check, sled would create an empty database.
    let exists = database.join("db").is_file();
    let dir_of = || dir.to_owned();
    match (found.parse::<u32>(), exists) {
        (Ok(FORMAT), true) => Ok(()),
        // A kill happened between creating the file and writing it.
        (Err(_), false) if found.is_empty() => Ok(()),
        (Err(_), true) => {
            tracing::warn!("the file FORMAT of the turn log does not read: it is written anew");
            Ok(())
        }
        (Ok(FORMAT), false) if matches!(opening, OpenMode::Again { .. }) => {
            let place = dir.display();
            tracing::error!(%place, "the turn log was removed while it was open: an empty one begins");
            Flushed::remove(dir).map_err(|error| not_usable(&dir.join("flushed"), error))
        }
        (Ok(0..=FORMAT) | Err(_), false) => Err(OpenError::Vanished { dir: dir_of() }),
        (Ok(0..FORMAT), true) => Err(OpenError::Older {
            dir: dir_of(),
            found,
            known: FORMAT,
        }),
        (Ok(_), _) => Err(OpenError::Newer {
            dir: dir_of(),
            found,
            known: FORMAT,
        }),
    }
}

pub(super) fn mark_format(dir: &Path) -> io::Result<()> {
    let (path, text) = (dir.join(MARK), format!("{FORMAT}\n"));
    if fs::read(&path).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(());
    }
    write(&path, &text)
}
