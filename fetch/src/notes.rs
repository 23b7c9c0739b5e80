//! The list beside a sparse copy. It says which file the copy belongs to, and which of its bytes are present.
//!
//! The first line gives the SHA-256 and the length of the whole file. Each further line gives one range. Lines are only
//! appended, after the bytes were written. A kill can cut a line. The remaining digits of a number give a smaller
//! number, so the range is never too long.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::disk::writing;
use crate::spans::Spans;

/// The list, open for appending.
#[derive(Debug)]
pub(crate) struct DownloadNotes {
    path: PathBuf,
    file: File,
    sha256: String,
    /// Length of the whole file, once it is known.
    pub(crate) length: Option<u64>,
    pub(crate) have: Spans,
}

impl DownloadNotes {
    /// Opens the list of the copy at `copy`. The list begins empty if there is none, if it belongs to other content
    /// than `sha256`, or if the copy does not have the length that the list gives.
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
            // Ends a cut line, so that the next note does not become part of it.
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

    /// Records the length of the whole file.
    pub(crate) fn begin(&mut self, length: u64) -> Result<()> {
        self.length = Some(length);
        let line = format!("{} {length}\n", self.sha256);
        writing(self.file.write_all(line.as_bytes()), &self.path)
    }

    /// Records that these bytes are in the copy.
    pub(crate) fn add(&mut self, range: Range<u64>) -> Result<()> {
        let line = format!("{} {}\n", range.start, range.end);
        self.have.add(range);
        writing(self.file.write_all(line.as_bytes()), &self.path)
    }

    /// Removes the list from the disk.
    pub(crate) fn remove(&self) {
        // If the list stays, it belongs to a copy that is gone, and the next run notices that.
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
