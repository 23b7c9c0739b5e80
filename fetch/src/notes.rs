//! The list beside a sparse copy: of what file it is, and which of its bytes are there.
//!
//! Its first line gives the sha256 and the length of the whole, each further line one range. It is only ever
//! appended to, after the bytes were written. What a kill leaves of a line says less than the line would have: the
//! first digits of a number are a smaller number.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::disk::writing;
use crate::spans::Spans;

/// The list, open for appending.
#[derive(Debug)]
pub(crate) struct Notes {
    path: PathBuf,
    file: File,
    sha256: String,
    /// Length of the whole, once known.
    pub(crate) length: Option<u64>,
    pub(crate) have: Spans,
}

impl Notes {
    /// Opens the list of the copy at `copy`. It begins empty where there is none, or it is of other content than
    /// `sha256`, or the copy itself is not of the length that it says.
    pub(crate) fn open(copy: &Path, sha256: &str) -> Result<Self> {
        let mut path = copy.as_os_str().to_owned();
        path.push(".have");
        let path = PathBuf::from(path);
        let kept = read(&path, sha256)
            .filter(|(length, _)| fs::metadata(copy).is_ok_and(|meta| meta.len() == *length));
        let file = writing(
            OpenOptions::new().append(true).create(true).open(&path),
            &path,
        )?;
        if kept.is_none() {
            writing(file.set_len(0), &path)?;
        } else {
            // Ends a torn line, so that the next note does not become part of it.
            writing((&file).write_all(b"\n"), &path)?;
        }
        let (length, have) = kept.unzip();
        Ok(Self {
            path,
            file,
            sha256: sha256.to_owned(),
            length,
            have: have.unwrap_or_default(),
        })
    }

    /// Notes how long the whole is.
    pub(crate) fn begin(&mut self, length: u64) -> Result<()> {
        self.length = Some(length);
        let line = format!("{} {length}\n", self.sha256);
        writing(self.file.write_all(line.as_bytes()), &self.path)
    }

    /// Notes that these bytes are in the copy.
    pub(crate) fn add(&mut self, range: Range<u64>) -> Result<()> {
        let line = format!("{} {}\n", range.start, range.end);
        self.have.add(range);
        writing(self.file.write_all(line.as_bytes()), &self.path)
    }

    /// Removes the list from the disk.
    pub(crate) fn remove(&self) {
        // One that stays is of a copy that is gone: the next run sees that.
        let _ = fs::remove_file(&self.path);
    }
}

fn read(path: &Path, sha256: &str) -> Option<(u64, Spans)> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    let (of, length) = lines.next()?.split_once(' ')?;
    if of != sha256 {
        return None;
    }
    let mut have = Spans::default();
    for line in lines {
        let range = line
            .split_once(' ')
            .and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
        have.add(range.unwrap_or_default());
    }
    Some((length.parse().ok()?, have))
}
