//! A local copy of a remote file that holds only the parts that were needed: a sparse file, and beside it a list of
//! the ranges that are there. What an interruption left is used by the next run.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};

use super::remote::{Answer, Remote, RequestError};
use super::spans::{Spans, coalesce};
use crate::places::writing;

/// Reads that were not announced (the archive's directory) fetch whole blocks of this size.
const BLOCK: u64 = 1 << 20;
/// Wanted ranges this close are fetched by one request: at 10 MB/s it costs 50 ms, as a request does.
const GAP: u64 = 512 << 10;
/// The list of ranges is brought up to date this often; an interruption loses no more.
const NOTE_EVERY: u64 = 4 << 20;
/// Failures in a row, without a byte received between, before giving up.
const ATTEMPTS: u32 = 5;

/// Reads as the remote file does, fetching what is missing.
#[derive(Debug)]
pub(crate) struct SparseCopy {
    remote: Remote,
    sha256: String,
    path: PathBuf,
    file: File,
    notes: File,
    have: Spans,
    length: u64,
    at: u64,
    fetched: u64,
    bar: ProgressBar,
}

impl SparseCopy {
    /// Opens the copy at `path` of the file at `url`, or begins one. `sha256` names the content: a copy of
    /// something else is dropped.
    pub(crate) fn open(url: &str, sha256: &str, path: &Path) -> Result<Self> {
        let notes_path = notes_path(path);
        let kept = read_notes(&notes_path, sha256)
            .filter(|(length, _)| fs::metadata(path).is_ok_and(|meta| meta.len() == *length));
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(kept.is_none());
        let file = writing(options.open(path), path)?;
        let mut options = OpenOptions::new();
        // Appending, so that a note never overwrites another; emptied when nothing is kept.
        options.append(true).create(true);
        let notes = writing(options.open(&notes_path), &notes_path)?;
        if kept.is_none() {
            writing(notes.set_len(0), &notes_path)?;
        }
        let (length, have) = kept.unwrap_or_default();
        let mut copy = Self {
            remote: Remote::new(url)?,
            sha256: sha256.to_owned(),
            path: path.to_owned(),
            file,
            notes,
            have,
            length,
            at: 0,
            fetched: 0,
            bar: ProgressBar::hidden(),
        };
        if copy.length == 0 {
            copy.fetch_gap(&(0..1))?;
        }
        Ok(copy)
    }

    /// Fetches what is missing of these ranges, by few requests, showing progress under the name `what`.
    pub(crate) fn fetch(&mut self, ranges: Vec<Range<u64>>, what: &str) -> Result<()> {
        let ranges = coalesce(ranges, GAP);
        let missing = ranges
            .iter()
            .map(|range| self.have.missing_bytes(range.clone()))
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

    /// Bytes received from the network by this copy.
    pub(crate) fn fetched(&self) -> u64 {
        self.fetched
    }

    /// Where the copy is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks the hash of the whole, where the whole had to be taken; a part has no hash of its own.
    ///
    /// # Errors
    /// When it is not the file that was asked for; the copy is removed then.
    pub(crate) fn check_if_whole(&self) -> Result<()> {
        if self.have.missing_bytes(0..self.length) > 0 {
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
    pub(crate) fn remove(&self) {
        // What cannot be removed is found wanting, or is used, at the next run: nothing to do about it here.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(notes_path(&self.path));
    }

    fn fetch_range(&mut self, range: &Range<u64>) -> Result<()> {
        for gap in self.have.missing(range.clone()) {
            self.fetch_gap(&gap)?;
        }
        Ok(())
    }

    /// Fetches one gap, going on after a lost connection.
    fn fetch_gap(&mut self, gap: &Range<u64>) -> Result<()> {
        let mut failures = 0;
        while let Some(rest) = self.have.missing(gap.clone()).into_iter().next() {
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
            std::thread::sleep(Duration::from_secs(1 << failures));
        }
        Ok(())
    }

    fn attempt(&mut self, range: Range<u64>) -> Result<(), RequestError> {
        let lasting = |error| RequestError {
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
        if self.length == total {
            return Ok(());
        }
        if self.length != 0 {
            self.remove();
            bail!(
                "the remote file is now {total} bytes long, it was {}: run this again",
                self.length
            );
        }
        self.length = total;
        writing(self.file.set_len(total), &self.path)?;
        let head = format!("{} {total}\n", self.sha256);
        writing(
            self.notes.write_all(head.as_bytes()),
            &notes_path(&self.path),
        )
    }

    /// Writes a body that begins at `range.start`, noting what is there as it comes.
    fn take(&mut self, mut body: Box<dyn Read>, range: Range<u64>) -> Result<(), RequestError> {
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
                    written.map_err(|error| RequestError {
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
                self.note(noted..at).map_err(|error| RequestError {
                    error,
                    may_pass: false,
                })?;
                noted = at;
            }
        };
        self.note(noted..at).map_err(|error| RequestError {
            error,
            may_pass: false,
        })?;
        end.map_err(|error| RequestError {
            error,
            may_pass: true,
        })
    }

    fn note(&mut self, range: Range<u64>) -> Result<()> {
        let line = format!("{} {}\n", range.start, range.end);
        self.have.add(range);
        writing(
            self.notes.write_all(line.as_bytes()),
            &notes_path(&self.path),
        )
    }
}

// === impl Read, Seek ===

impl Read for SparseCopy {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.length.min(self.at.saturating_add(buffer.len() as u64));
        if self.at >= end {
            return Ok(0);
        }
        if self.have.missing_bytes(self.at..end) > 0 {
            let block = self.at / BLOCK * BLOCK..end.next_multiple_of(BLOCK).min(self.length);
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
            SeekFrom::End(by) => self.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

/// Lower-case hexadecimal, as pip writes it.
fn sha256_of(path: &Path) -> io::Result<String> {
    use std::fmt::Write as _;
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        hasher.update(&buffer[..n]);
    }
    Ok(hasher
        .finalize()
        .iter()
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }))
}

fn notes_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".have");
    name.into()
}

/// First line: sha256 and length of the whole; then a line for each range. `None`: no notes, or about another file.
fn read_notes(path: &Path, sha256: &str) -> Option<(u64, Spans)> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines();
    let (of, length) = lines.next()?.split_once(' ')?;
    if of != sha256 {
        return None;
    }
    let mut have = Spans::default();
    for line in lines {
        // A torn last line stands for bytes that are fetched again.
        let range = line
            .split_once(' ')
            .and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
        have.add(range.unwrap_or_default());
    }
    Some((length.parse().ok()?, have))
}

fn progress(bytes: u64, what: &str) -> ProgressBar {
    // The template is a constant; a mistake in it shows as the plain bar.
    let style = ProgressStyle::with_template(
        "{msg:>12} {bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(bytes)
        .with_style(style)
        .with_message(what.to_owned());
    if bar.is_hidden() {
        println!("fetching {what}: {}", indicatif::HumanBytes(bytes));
    }
    bar
}

#[cfg(test)]
mod tests;
