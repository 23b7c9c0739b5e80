//! Reads and writes files of the library. They may be anybody's when read, and are written completely.
//!
//! The name of a home in a shared folder, which is also the name of its folder there.

use std::{
    fs::{self, File, Metadata},
    hash::{BuildHasher as _, RandomState},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::SystemTime,
};

use metaclaw_chat::{excerpt, if_there, regular, text_name};
use serde::{Serialize, de::DeserializeOwned};

/// A folder with this file is a skill.
pub(crate) const SKILL_FILE: &str = "SKILL.md";
pub(crate) const WISHES_FILE: &str = "WISHES.md";
pub(crate) const SHARED: &str = "_shared";

const EARLIER_DRAFTS: [&str; 3] = [".md.new", ".jsonl.new", ".json.new"];

/// The largest file of the library that is read. A larger one is no instruction.
pub(crate) const MAX_FILE: u64 = 256 * 1024;

pub(crate) const MAX_JOURNAL: u64 = 16 << 20;
/// The file of the lock. A name with a dot is no lesson.
const LOCK: &str = ".lock";

/// A file of lessons could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {}: {source}", path.display())]
pub struct JournalError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// A file counts as unchanged while these values are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    modified: Option<SystemTime>,
    pub(crate) length: u64,
}

// === impl FileStamp ===

impl FileStamp {
    pub(crate) fn new(file: &Metadata) -> Self {
        Self {
            modified: file.modified().ok(),
            length: file.len(),
        }
    }

    pub(crate) fn read(path: &Path) -> io::Result<Option<Self>> {
        if_there(fs::metadata(path).map(|file| Self::new(&file)))
    }
}

pub(crate) fn failed(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.into();
    |source| JournalError { path, source }
}

/// Waits until no other process or thread changes the lessons in a folder. Several proxies of one home folder (`--port`)
/// share it, and each change reads a file and writes it again. The lock is held while the returned file is open.
pub(crate) fn lock(dir: &Path) -> Result<File, JournalError> {
    let path = dir.join(LOCK);
    let locked = fs::create_dir_all(dir).and_then(|()| {
        let mut options = File::options();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        file.lock()?;
        Ok(file)
    });
    locked.map_err(failed(path))
}

/// Reads a file with one JSON value. A missing file has the default.
pub(crate) fn read_json<T: DeserializeOwned + Default>(path: &Path) -> Result<T, JournalError> {
    let read = if_there(read_text(path, MAX_JOURNAL)).and_then(|text| match text {
        Some(text) => Ok(serde_json::from_str(&text)?),
        None => Ok(T::default()),
    });
    read.map_err(failed(path))
}

pub(crate) fn write_json(
    path: &Path,
    value: &impl Serialize,
    write: fn(&Path, &str) -> io::Result<()>,
) -> Result<(), JournalError> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::from);
    let written = text.and_then(|text| write(path, &(text + "\n")));
    written.map_err(failed(path))
}

/// Reads a file with a line of JSON for each entry. A missing file has none. An invalid line is an error, because the
/// next change would write the file without it.
pub(crate) fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, JournalError> {
    let read = if_there(read_text(path, MAX_JOURNAL)).map_err(failed(path))?;
    let text = read.unwrap_or_default();
    let lines = (1..).zip(text.lines());
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            serde_json::from_str(line).map_err(|error| {
                let why = format!("line {number}: {error}");
                failed(path)(io::Error::new(io::ErrorKind::InvalidData, why))
            })
        })
        .collect()
}

pub(crate) fn write_lines<T: Serialize>(
    path: &Path,
    entries: &[T],
    write: fn(&Path, &str) -> io::Result<()>,
) -> Result<(), JournalError> {
    let mut text = String::new();
    for entry in entries {
        text += &serde_json::to_string(entry).map_err(|error| failed(path)(error.into()))?;
        text.push('\n');
    }
    write(path, &text).map_err(failed(path))
}

/// Returns the text of a regular file of at most `max` bytes. A pipe, which may never end or begin, and a link to a
/// device, whose length says nothing, are refused.
///
/// # Errors
///
/// Returns an error in words if it is not such a file, is too long, or is not UTF-8.
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    let mut text = String::new();
    // The file may have grown since its length was read.
    let file = File::open(regular(path)?)?;
    file.take(max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max {
        let why = format!("it has more than {max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(text)
}

/// Replaces a file in one rename, so that a reader sees either the old or the new one completely. Makes its folder.
pub(crate) fn write_text(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    put(path, text.as_bytes(), 0o666)
}

/// Writes a file that only its owner can read: first a draft beside it, then a rename, so that a reader or a kill finds
/// the complete old or new file.
///
/// # Errors
/// When the file cannot be written.
pub fn write_private<B: AsRef<[u8]> + ?Sized>(path: &Path, bytes: &B) -> io::Result<()> {
    // If `path` is a link, as for dotfiles in a repository, the target is replaced, not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    put(&path, bytes.as_ref(), 0o600)
}

fn put(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    killed::step()?;
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(mode);
    let mut file = options.open(&draft)?;
    // The lock says that the draft is in use. On a file system without locks, drafts are not removed.
    file.try_lock().ok();
    killed::step()?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    killed::step()?;
    if let Err(error) = written.and_then(|()| fs::rename(&draft, path)) {
        // The first error is returned.
        fs::remove_file(draft).ok();
        return Err(error);
    }
    killed::step()
}

/// Removes the drafts of files that were not complete at a kill from a folder and the folders in it: those that no
/// process has locked. Returns their number.
///
/// # Errors
/// When a folder cannot be read, or a draft not removed.
pub fn remove_drafts(dir: &Path, depth: usize) -> io::Result<usize> {
    let mut n_removed = 0;
    for entry in if_there(fs::read_dir(dir))?.into_iter().flatten() {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() && depth > 0 {
            n_removed += remove_drafts(&path, depth - 1)?;
        } else if kind.is_file() && is_draft(&path) {
            // Its writer may finish it meanwhile.
            let unlocked = if_there(File::open(&path))?.filter(|draft| draft.try_lock().is_ok());
            if unlocked.is_some() && if_there(fs::remove_file(&path))?.is_some() {
                n_removed += 1;
            }
        }
    }
    Ok(n_removed)
}

/// Returns whether a file is called `.NAME.PID.tmp`, or as earlier versions called drafts.
fn is_draft(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_ours = || {
        let (_, pid) = name
            .strip_prefix('.')?
            .strip_suffix(".tmp")?
            .rsplit_once('.')?;
        pid.parse::<u32>().ok()
    };
    is_ours().is_some() || EARLIER_DRAFTS.iter().any(|end| name.ends_with(end))
}

/// Lets a test end the writing of files at any of its steps, as a kill does.
pub(crate) mod killed {
    use std::io;

    #[cfg(test)]
    std::thread_local! {
        /// The steps that are still made.
        static LEFT: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
    }

    #[cfg(test)]
    pub(crate) fn after(n_steps: usize) {
        LEFT.set(n_steps);
    }

    #[cfg_attr(
        not(test),
        expect(clippy::unnecessary_wraps, reason = "it fails in tests")
    )]
    pub(super) fn step() -> io::Result<()> {
        #[cfg(test)]
        {
            let left = LEFT.get().checked_sub(1);
            LEFT.set(left.unwrap_or_default());
            left.ok_or_else(|| io::Error::other("killed"))?;
        }
        Ok(())
    }
}

/// The longest name, in bytes.
const MAX_WRITER: usize = 64;
/// The part of the machine's name in it, in bytes.
const MAX_MACHINE: usize = 40;

/// One home among those that share skills: `laptop-3f2a9c01`.
///
/// It has 1 to 64 characters of `a-z 0-9 -`, and begins with a letter or a digit. So it contains no path separator.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriterId(Arc<str>);

/// A text is not the name of a home.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{value:?} is no name of a home: 1 to {MAX_WRITER} of a-z 0-9 -, beginning with a letter or a digit"
)]
pub struct WriterIdError {
    /// The beginning of the text.
    pub value: String,
}

// === impl WriterId ===

impl WriterId {
    pub(crate) fn of_machine(machine: &str) -> Self {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let kept: String = machine.chars().filter(|c| legal(*c)).collect();
        let lower = kept.to_ascii_lowercase();
        let trimmed = lower.trim_matches('-');
        let machine = match trimmed.get(..MAX_MACHINE).unwrap_or(trimmed) {
            "" => "home",
            machine => machine,
        };
        // The standard library seeds this hasher from the operating system's random numbers.
        let random = RandomState::new().hash_one(machine) >> 32;
        Self(Arc::from(format!("{machine}-{random:08x}")))
    }
}

impl FromStr for WriterId {
    type Err = WriterIdError;

    fn from_str(value: &str) -> Result<Self, WriterIdError> {
        let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let legal = |c: char| is_letter(c) || c == '-';
        if value.starts_with(is_letter) && value.len() <= MAX_WRITER && value.chars().all(legal) {
            Ok(Self(Arc::from(value)))
        } else {
            Err(WriterIdError {
                value: excerpt(value).into_owned(),
            })
        }
    }
}

text_name!(WriterId);

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 7 of the security tests: a file may contain more than its length says, and may have no end.
    #[test]
    fn no_more_is_read_than_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for (text, said) in [
            (&b"12345678"[..], None),
            (b"123456789", Some("it has more than 8 bytes")),
            // If the reader continued, the bytes would not be text.
            (b"123456789\xff", Some("it has more than 8 bytes")),
        ] {
            fs::write(&path, text).unwrap();
            let read = read_text(&path, 8).map_err(|error| error.to_string());
            assert_eq!(read.err().as_deref(), said);
        }
    }

    #[test]
    fn drafts_are_removed_unless_a_process_writes_them() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let own = format!(".note.json.{}.tmp", std::process::id());
        // A killed process may have had any id, also ours.
        let gone = [
            ".note.json.9007.tmp",
            ".a b.1.tmp",
            "main/.x.md.7.tmp",
            "lessons.jsonl.new",
            &own,
        ];
        let kept = [
            "note.json",
            ".note.json",
            ".note.tmp",
            "note.1.tmp",
            ".note.one.tmp",
            "main/deep/.x.1.tmp",
        ];
        let written = ".spend.json.4.tmp";
        fs::create_dir_all(at("main/deep")).unwrap();
        for name in gone.iter().chain(&kept).chain([&written]) {
            fs::write(at(name), "words").unwrap();
        }
        let writer = File::open(at(written)).unwrap();
        writer.try_lock().unwrap();
        assert_eq!(remove_drafts(dir.path(), 1).unwrap(), gone.len());
        assert!(gone.iter().all(|name| !at(name).exists()));
        assert!(kept.iter().all(|name| at(name).exists()) && at(written).exists());
        drop(writer);
        assert_eq!(remove_drafts(dir.path(), 1).unwrap(), 1);
        assert_eq!(remove_drafts(&at("nowhere"), 1).unwrap(), 0);
    }

    #[test]
    fn what_a_killed_writer_leaves_is_a_draft() {
        for n_steps in 0..4 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("note.json");
            write_private(&path, b"old").unwrap();
            killed::after(n_steps);
            let ended = write_private(&path, b"new words");
            killed::after(usize::MAX);
            assert!(ended.is_err());
            let is_draft = usize::from((1..3).contains(&n_steps));
            assert_eq!(remove_drafts(dir.path(), 0).unwrap(), is_draft, "{n_steps}");
            let now = if n_steps < 3 { "old" } else { "new words" };
            assert_eq!(fs::read_to_string(&path).unwrap(), now);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_new_name_is_valid_and_of_its_own() {
        for machine in ["Anna's Laptop", "", "--", "工作", &"x".repeat(100)] {
            let (one, other) = (WriterId::of_machine(machine), WriterId::of_machine(machine));
            assert_ne!(one, other);
            assert_eq!(one.as_str().parse(), Ok(one));
        }
        for wrong in ["", "-a", "..", "a/b", "A", ".git", "a b", &"x".repeat(65)] {
            assert!(wrong.parse::<WriterId>().is_err(), "{wrong}");
        }
    }
}
