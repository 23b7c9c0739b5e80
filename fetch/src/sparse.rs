//! A local copy of a remote file that contains only the parts that were needed: a sparse file, and beside it a list of
//! the ranges that are present. The next run uses what an interrupted run downloaded.
#![expect(
    clippy::print_stdout,
    reason = "who waits for a file is told how far it is"
)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use indicatif::ProgressBar;

use crate::bar::{pause, progress};
use crate::disk::writing;
use crate::hash::sha256_of;
use crate::notes::DownloadNotes;
use crate::remote::{Answer, RemoteError, RemoteFile};
use crate::spans::coalesce;

/// Reads that were not announced (the archive's directory) download whole blocks of this size.
const BLOCK: u64 = 1 << 20;
/// Ranges that are this close are downloaded by one request: at 10 MB/s the gap takes 50 ms, as much as a request.
const GAP: u64 = 512 << 10;
/// The list is written after each so many bytes, so an interruption loses no more than that.
const NOTE_EVERY: u64 = 4 << 20;
/// Failures in a row, without a byte received in between, before the download gives up.
const ATTEMPTS: u32 = 5;

/// Reads like the remote file, and downloads missing parts.
#[derive(Debug)]
pub struct SparseCopy {
    remote: RemoteFile,
    sha256: String,
    path: PathBuf,
    file: File,
    notes: DownloadNotes,
    at: u64,
    fetched: u64,
    bar: ProgressBar,
}

impl SparseCopy {
    /// Opens the copy at `path` of the file at `url`, or begins a new one. `sha256` identifies the content. A copy of
    /// other content is dropped.
    ///
    /// # Errors
    /// Fails if the copy cannot be written, or the remote file cannot be reached.
    pub fn open(url: &str, sha256: &str, path: &Path) -> Result<Self> {
        let notes = DownloadNotes::open(path, sha256)?;
        let is_new = notes.length.is_none();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(is_new);
        let mut copy = Self {
            remote: RemoteFile::new(url)?,
            sha256: sha256.to_owned(),
            path: path.to_owned(),
            file: writing(options.open(path), path)?,
            notes,
            at: 0,
            fetched: 0,
            bar: ProgressBar::hidden(),
        };
        if is_new {
            // Any answer contains the length of the whole file.
            copy.fetch_gap(&(0..1))?;
        }
        Ok(copy)
    }

    /// Downloads the missing parts of these ranges with few requests, and shows progress under the name `what`.
    ///
    /// # Errors
    /// Fails if the connection failed again and again, or the copy cannot be written. Bytes that arrived are kept.
    pub fn fetch(&mut self, ranges: Vec<Range<u64>>, what: &str) -> Result<()> {
        let ranges = coalesce(ranges, GAP);
        let missing = ranges
            .iter()
            .map(|range| self.notes.have.missing_bytes(range.clone()))
            .sum();
        if missing == 0 {
            return Ok(());
        }
        self.bar = progress(missing, what);
        let result = ranges.iter().try_for_each(|range| self.fetch_range(range));
        self.bar.finish_and_clear();
        self.bar = ProgressBar::hidden();
        result
    }

    /// Returns the bytes that this copy received from the network.
    pub fn fetched(&self) -> u64 {
        self.fetched
    }

    /// Returns the path of the copy.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks the hash if the whole file was downloaded. A part has no hash of its own.
    ///
    /// # Errors
    /// Fails if the content is not that of `sha256`. The copy is removed in this case.
    pub fn check_if_whole(&self) -> Result<()> {
        if self.notes.have.missing_bytes(0..self.length()) > 0 {
            return Ok(());
        }
        let found = sha256_of(&self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        if found == self.sha256 {
            return Ok(());
        }
        self.remove();
        bail!(
            "{} has sha256 {found}, not {}: removed; run this again to fetch it anew",
            self.path.display(),
            self.sha256
        )
    }

    /// Removes the copy and its list from the disk.
    pub fn remove(&self) {
        // If the copy cannot be removed, the next run notices that it is wrong, or uses it. Nothing has to be done
        // here.
        let _ = fs::remove_file(&self.path);
        self.notes.remove();
    }

    fn fetch_range(&mut self, range: &Range<u64>) -> Result<()> {
        for gap in self.notes.have.missing(range.clone()) {
            self.fetch_gap(&gap)?;
        }
        Ok(())
    }

    /// Downloads one gap, and continues after a lost connection.
    fn fetch_gap(&mut self, gap: &Range<u64>) -> Result<()> {
        let mut failures = 0;
        while let Some(rest) = self.notes.have.missing(gap.clone()).into_iter().next() {
            let before = self.fetched;
            let Err(failure) = self.attempt(rest) else {
                continue;
            };
            failures = if self.fetched > before {
                1
            } else {
                failures + 1
            };
            if !failure.may_pass || failures >= ATTEMPTS {
                return Err(failure
                    .error
                    .context("what was fetched is kept; run this again to go on"));
            }
            self.bar
                .suspend(|| println!("{:#}; trying again", failure.error));
            pause(failures);
        }
        Ok(())
    }

    fn attempt(&mut self, range: Range<u64>) -> Result<(), RemoteError> {
        let lasting = |error| RemoteError {
            error,
            may_pass: false,
        };
        match self.remote.get(range.clone())? {
            Answer::Part { body, total } => {
                self.learn_length(total).map_err(lasting)?;
                self.take(body, range)
            }
            Answer::Whole { body, total } => {
                self.learn_length(total).map_err(lasting)?;
                self.bar.suspend(|| {
                    println!("the server knows no ranges: taking the whole file, {total} bytes");
                });
                self.bar.set_length(total);
                self.bar.set_position(0);
                self.take(body, 0..total)
            }
        }
    }

    fn learn_length(&mut self, total: u64) -> Result<()> {
        match self.notes.length {
            Some(length) if length == total => Ok(()),
            Some(length) => {
                self.remove();
                bail!("the remote file is now {total} bytes long, it was {length}: run this again")
            }
            None => {
                writing(self.file.set_len(total), &self.path)?;
                self.notes.begin(total)
            }
        }
    }

    /// Returns how many bytes of `range` are missing.
    pub fn missing_bytes(&self, range: Range<u64>) -> u64 {
        self.notes.have.missing_bytes(range)
    }

    /// Removes the list of ranges, because the file is complete and checked.
    pub(crate) fn finish(&self) {
        self.notes.remove();
    }

    /// Returns the length of the whole file. It is known since the first answer.
    pub fn length(&self) -> u64 {
        self.notes.length.unwrap_or(0)
    }

    /// Writes a body that begins at `range.start`, and records the bytes as they arrive.
    fn take(&mut self, mut body: Box<dyn Read>, range: Range<u64>) -> Result<(), RemoteError> {
        let mut buffer = vec![0; 256 << 10];
        let (mut noted, mut at) = (range.start, range.start);
        let end = loop {
            if at >= range.end {
                break Ok(());
            }
            match body.read(&mut buffer) {
                Ok(0) => {
                    break Err(anyhow!(
                        "the connection ended {} bytes early",
                        range.end - at
                    ));
                }
                Ok(n) => {
                    let n = n.min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
                    let written = writing(self.file.write_all_at(&buffer[..n], at), &self.path);
                    written.map_err(|error| RemoteError {
                        error,
                        may_pass: false,
                    })?;
                    at += n as u64;
                    self.fetched += n as u64;
                    self.bar.inc(n as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(anyhow::Error::new(error).context("the connection broke")),
            }
            if at - noted >= NOTE_EVERY {
                self.notes.add(noted..at).map_err(|error| RemoteError {
                    error,
                    may_pass: false,
                })?;
                noted = at;
            }
        };
        self.notes.add(noted..at).map_err(|error| RemoteError {
            error,
            may_pass: false,
        })?;
        end.map_err(|error| RemoteError {
            error,
            may_pass: true,
        })
    }
}

// === impl Read, Seek ===

impl Read for SparseCopy {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self
            .length()
            .min(self.at.saturating_add(buffer.len() as u64));
        if self.at >= end {
            return Ok(0);
        }
        if self.notes.have.missing_bytes(self.at..end) > 0 {
            let block = self.at / BLOCK * BLOCK..end.next_multiple_of(BLOCK).min(self.length());
            self.fetch_range(&block)
                .map_err(|error| io::Error::other(format!("{error:#}")))?;
        }
        let room = usize::try_from(end - self.at)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let n = self.file.read_at(&mut buffer[..room], self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Seek for SparseCopy {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.length().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests;
