//! Reads and writes files of the library. They may be anybody's when read, and are written completely.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use metaclaw_chat::regular;

/// A folder with this file is a skill.
pub(crate) const SKILL_FILE: &str = "SKILL.md";
pub(crate) const WISHES_FILE: &str = "WISHES.md";
/// The folder of skills and wishes for all agents.
pub(crate) const SHARED: &str = "_shared";

/// The ends of the names of drafts.
const DRAFTS: [&str; 3] = [".md.new", ".jsonl.new", ".json.new"];

/// The largest file of the library that is read. A larger one is no instruction.
pub(crate) const MAX_FILE: u64 = 256 * 1024;

/// The largest journal of lessons that is read.
pub(crate) const MAX_JOURNAL: u64 = 16 << 20;

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

/// Replaces a file in one rename, so that a reader sees either the old or the new one completely.
pub(crate) fn write_text(path: &Path, text: &str) -> io::Result<()> {
    put(path, text, |draft| File::create(draft))
}

/// Replaces a file that only its owner can read in one rename, and makes its folder.
///
/// # Errors
/// When the folder or the file cannot be written.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    put(path, text, |draft| {
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(draft)?;
        // An incomplete file from before may have another mode.
        file.set_permissions(Permissions::from_mode(0o600))?;
        Ok(file)
    })
}

fn put(path: &Path, text: &str, create: impl FnOnce(&Path) -> io::Result<File>) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = Path::new(&draft);
    killed::step()?;
    let mut file = create(draft)?;
    killed::step()?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    killed::step()?;
    fs::rename(draft, path)?;
    killed::step()
}

/// Removes the drafts of files that were not complete at a kill from a folder and the folders in it. Returns their
/// number.
pub(crate) fn remove_drafts(dir: &Path, depth: usize) -> io::Result<usize> {
    let mut n_removed = 0;
    for entry in fs::read_dir(dir)? {
        let (path, kind) = entry.and_then(|it| Ok((it.path(), it.file_type()?)))?;
        if kind.is_dir() && depth > 0 {
            n_removed += remove_drafts(&path, depth - 1)?;
        } else if kind.is_file()
            && DRAFTS
                .iter()
                .any(|end| path.to_string_lossy().ends_with(end))
        {
            fs::remove_file(&path)?;
            n_removed += 1;
        }
    }
    Ok(n_removed)
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
}
