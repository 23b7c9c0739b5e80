//! A local copy of a remote file that contains only the blocks that were needed: a sparse file, and beside it a list of
//! the blocks that are present. The next run uses what an interrupted run downloaded.
#![expect(
    clippy::print_stdout,
    reason = "who waits for a file is told how far it is"
)]

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write as _};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::disk::writing;
use crate::hash::sha256_of;
use crate::remote::{Answer, RemoteError, RemoteFile};

const BLOCK: usize = 256 << 10;
/// Failures in a row, without a block received in between, before the download gives up.
const ATTEMPTS: u32 = 5;

/// Reads like the remote file, and downloads missing blocks.
#[derive(Debug)]
pub struct SparseCopy {
    remote: RemoteFile,
    sha256: String,
    path: PathBuf,
    file: File,
    /// The first line gives the file's SHA-256 and length, each other line the number of a block that is in the copy.
    list: File,
    have: BTreeSet<u64>,
    /// Of the whole file; 0 before the first answer.
    length: u64,
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
        let list_path = list_of(path);
        let kept = read_list(&list_path, sha256)
            .filter(|(length, _)| fs::metadata(path).is_ok_and(|meta| meta.len() == *length));
        let is_new = kept.is_none();
        let (length, have) = kept.unwrap_or_default();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(is_new);
        let mut copy = Self {
            remote: RemoteFile::new(url)?,
            sha256: sha256.to_owned(),
            path: path.to_owned(),
            file: writing(options.open(path), path)?,
            list: writing(File::create(&list_path), &list_path)?,
            have,
            length,
            at: 0,
            fetched: 0,
            bar: ProgressBar::hidden(),
        };
        if is_new {
            // Any answer contains the length of the whole file.
            copy.fetch_blocks(0..1)?;
        } else {
            // A kill may have cut the list's last line, so the list is written anew.
            let mut text = format!("{sha256} {length}\n");
            text.extend(copy.have.iter().map(|block| format!("{block}\n")));
            copy.note(&text)?;
        }
        Ok(copy)
    }

    /// Downloads the missing parts of these ranges with few requests, and shows progress under the name `what`.
    ///
    /// # Errors
    /// Fails if the connection failed again and again, or the copy cannot be written. Blocks that arrived are kept.
    pub fn fetch(&mut self, ranges: &[Range<u64>], what: &str) -> Result<()> {
        let wanted: BTreeSet<u64> = ranges.iter().cloned().flat_map(blocks_of).collect();
        let missing: Vec<u64> = wanted.difference(&self.have).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let n_bytes = missing
            .iter()
            .map(|block| self.size_of(*block) as u64)
            .sum();
        self.bar = show_progress(n_bytes, what);
        let mut runs = missing.chunk_by(|one, next| one + 1 == *next);
        let result = runs.try_for_each(|run| self.fetch_blocks(run[0]..run[0] + run.len() as u64));
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

    /// Returns the length of the whole file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns how many bytes of the whole file are missing.
    pub fn missing_bytes(&self) -> u64 {
        let present: u64 = self
            .have
            .iter()
            .map(|block| self.size_of(*block) as u64)
            .sum();
        self.length - present
    }

    /// Checks the hash if the whole file was downloaded. A part has no hash of its own.
    ///
    /// # Errors
    /// Fails if the content is not that of `sha256`. The copy is removed in this case.
    pub fn check_if_whole(&self) -> Result<()> {
        if self.missing_bytes() > 0 {
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
        // If the copy cannot be removed, the next run notices that it is wrong, or uses it.
        let _ = fs::remove_file(&self.path);
        self.finish();
    }

    /// Removes the list, because the file is complete and checked.
    pub(crate) fn finish(&self) {
        // If the list stays, it belongs to a copy that is gone, and the next run notices that.
        let _ = fs::remove_file(list_of(&self.path));
    }

    /// Downloads neighbouring blocks, and continues after a lost connection.
    fn fetch_blocks(&mut self, blocks: Range<u64>) -> Result<()> {
        let mut failures = 0;
        while let Some(first) = blocks.clone().find(|block| !self.have.contains(block)) {
            let before = self.fetched;
            let Err(failure) = self.attempt(first..blocks.end) else {
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

    fn attempt(&mut self, blocks: Range<u64>) -> Result<(), RemoteError> {
        let bytes = blocks.start * BLOCK as u64..blocks.end * BLOCK as u64;
        match self.remote.get(bytes)? {
            Answer::Part { body, total } => {
                self.learn_length(total)?;
                self.take(body, blocks)
            }
            Answer::Whole { body, total } => {
                self.learn_length(total)?;
                self.bar.suspend(|| {
                    println!("the server knows no ranges: taking the whole file, {total} bytes");
                });
                self.bar.set_length(total);
                self.bar.set_position(0);
                self.take(body, blocks_of(0..total))
            }
        }
    }

    fn learn_length(&mut self, total: u64) -> Result<()> {
        if self.length == 0 {
            writing(self.file.set_len(total), &self.path)?;
            self.length = total;
            return self.note(&format!("{} {total}\n", self.sha256));
        }
        if self.length != total {
            self.remove();
            bail!(
                "the remote file is now {total} bytes long, it was {}: run this again",
                self.length
            );
        }
        Ok(())
    }

    fn take(&mut self, mut body: Box<dyn Read>, blocks: Range<u64>) -> Result<(), RemoteError> {
        let mut buffer = vec![0; BLOCK];
        for block in blocks {
            let size = self.size_of(block);
            let bytes = &mut buffer[..size];
            body.read_exact(bytes).map_err(|error| RemoteError {
                error: anyhow!(error).context("the connection broke or ended early"),
                may_pass: true,
            })?;
            let start = block * BLOCK as u64;
            writing(self.file.write_all_at(bytes, start), &self.path)?;
            self.note(&format!("{block}\n"))?;
            self.have.insert(block);
            self.fetched += size as u64;
            self.bar.inc(size as u64);
        }
        Ok(())
    }

    fn note(&mut self, text: &str) -> Result<()> {
        writing(self.list.write_all(text.as_bytes()), &list_of(&self.path))
    }

    fn size_of(&self, block: u64) -> usize {
        let rest = self.length.saturating_sub(block * BLOCK as u64);
        usize::try_from(rest).unwrap_or(BLOCK).min(BLOCK)
    }
}

fn list_of(copy: &Path) -> PathBuf {
    let mut path = copy.as_os_str().to_owned();
    path.push(".have");
    PathBuf::from(path)
}

fn read_list(path: &Path, sha256: &str) -> Option<(u64, BTreeSet<u64>)> {
    let text = fs::read_to_string(path).ok()?;
    // A last line without its end may be the beginning of a longer number.
    let (whole, _) = text.rsplit_once('\n')?;
    let mut lines = whole.lines();
    let length = lines.next()?.strip_prefix(sha256)?.trim().parse().ok()?;
    Some((length, lines.filter_map(|line| line.parse().ok()).collect()))
}

fn blocks_of(range: Range<u64>) -> Range<u64> {
    range.start / BLOCK as u64..range.end.div_ceil(BLOCK as u64)
}

fn show_progress(bytes: u64, what: &str) -> ProgressBar {
    // The template is a constant. If it were invalid, the plain bar would be shown.
    let style = ProgressStyle::with_template(
        "{msg:>12} {bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(bytes)
        .with_style(style)
        .with_message(what.to_owned());
    if bar.is_hidden() {
        println!("fetching {what}: {}", HumanBytes(bytes));
    }
    bar
}

/// Waits longer after each failure.
#[expect(
    clippy::disallowed_methods,
    reason = "there is nothing to wait for but that the server is well again"
)]
fn pause(failures: u32) {
    std::thread::sleep(Duration::from_secs(1 << (failures - 1)));
}

// === impl Read, Seek ===

impl Read for SparseCopy {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.length.min(self.at.saturating_add(buffer.len() as u64));
        if self.at >= end {
            return Ok(0);
        }
        self.fetch_blocks(blocks_of(self.at..end))
            .map_err(|error| io::Error::other(format!("{error:#}")))?;
        let room = usize::try_from(end - self.at).unwrap_or(buffer.len());
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

#[cfg(test)]
mod tests;
