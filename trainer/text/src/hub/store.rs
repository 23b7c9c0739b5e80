//! The cache on disk in the layout of `huggingface_hub`: blobs by content, and commits as links to them.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::{error::HubError, place::MAIN};

const SHA256_DIGITS: usize = 64;

#[derive(Debug)]
pub(super) struct ModelFolder(PathBuf);

/// A file that is being downloaded, locked against other processes.
#[derive(Debug)]
pub(super) struct PartialFile {
    path: PathBuf,
    file: File,
    n_bytes: u64,
}

// === impl ModelFolder ===

impl ModelFolder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.0.join("snapshots").join(commit)
    }

    fn blob(&self, etag: &str) -> PathBuf {
        self.0.join("blobs").join(etag)
    }

    pub(super) fn n_bytes(&self, etag: &str) -> u64 {
        let blob = self.blob(etag);
        let partial = blob.with_file_name(format!("{etag}.incomplete"));
        let length = |path: &Path| fs::metadata(path).ok().map(|file| file.len());
        length(&blob).or_else(|| length(&partial)).unwrap_or(0)
    }

    pub(super) fn n_free(&self) -> Option<u64> {
        let there = self.0.ancestors().find(|path| path.exists())?;
        let found = rustix::fs::statvfs(there).ok()?;
        found.f_bavail.checked_mul(found.f_frsize)
    }

    pub(super) fn has_blob(&self, etag: &str) -> bool {
        self.blob(etag).is_file()
    }

    /// Opens the existing part of a blob to continue it.
    ///
    /// # Errors
    /// Returns [`HubError::Locked`] if another process writes it, or the system's error.
    pub(super) fn partial(&self, etag: &str) -> Result<PartialFile, HubError> {
        let path = self.0.join("blobs").join(format!("{etag}.incomplete"));
        let open = || {
            make_parent(&path)?;
            let mut options = OpenOptions::new();
            let mut file = options.create(true).append(true).read(true).open(&path)?;
            let n_bytes = file.seek(SeekFrom::End(0))?;
            Ok((file, n_bytes))
        };
        let (file, n_bytes) = open().map_err(failed(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(PartialFile {
                path,
                file,
                n_bytes,
            }),
            Err(TryLockError::WouldBlock) => Err(HubError::Locked { file: path }),
            Err(TryLockError::Error(source)) => Err(HubError::File { file: path, source }),
        }
    }

    /// Turns a complete file into a blob.
    ///
    /// # Errors
    /// Returns [`HubError::Damaged`] if its content does not match its name, or the system's error.
    pub(super) fn keep(
        &self,
        url: &str,
        mut partial: PartialFile,
        etag: &str,
    ) -> Result<(), HubError> {
        let found = partial.sha256().map_err(failed(&partial.path))?;
        if is_sha256(etag) && found != etag {
            fs::remove_file(&partial.path).map_err(failed(&partial.path))?;
            return Err(HubError::Damaged {
                url: url.to_owned(),
                why: format!("its SHA-256 is {found}, and {etag} was announced"),
            });
        }
        let blob = self.blob(etag);
        let placed = partial.file.sync_all();
        let placed = placed.and_then(|()| fs::rename(&partial.path, &blob));
        placed.map_err(failed(&blob))
    }

    /// Links a blob as a file of a commit.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<(), HubError> {
        let link = self.snapshot(commit).join(file);
        let made = make_parent(&link).and_then(|()| {
            let target = Path::new("../../blobs").join(etag);
            match std::os::unix::fs::symlink(&target, &link) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    fs::remove_file(&link)?;
                    std::os::unix::fs::symlink(&target, &link)
                }
                made => made,
            }
        });
        made.map_err(failed(&link))
    }

    /// Records which commit `main` is, unless that is recorded already, because files of another commit may be there.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn set_main(&self, commit: &str) -> Result<(), HubError> {
        let path = self.0.join("refs").join(MAIN);
        if path.exists() {
            return Ok(());
        }
        let fresh = path.with_extension(format!("{}.incomplete", std::process::id()));
        let written = make_parent(&path)
            .and_then(|()| fs::write(&fresh, commit))
            .and_then(|()| fs::rename(&fresh, &path));
        written.map_err(failed(&path))
    }
}

// === impl PartialFile ===

impl PartialFile {
    pub(super) fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Appends received bytes.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        let written = self.file.write_all(bytes);
        if let Err(error) = &written {
            // A part may have been written before the error.
            self.n_bytes = self
                .file
                .metadata()
                .map_or(self.n_bytes, |metadata| metadata.len());
            if matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ) {
                return Err(HubError::Full {
                    file: self.path.clone(),
                    done: self.n_bytes,
                });
            }
        }
        written.map_err(failed(&self.path))?;
        self.n_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Removes all existing bytes.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn clear(&mut self) -> Result<(), HubError> {
        if self.n_bytes > 0 {
            self.file.set_len(0).map_err(failed(&self.path))?;
            self.n_bytes = 0;
        }
        Ok(())
    }

    fn sha256(&mut self) -> io::Result<String> {
        self.file.seek(SeekFrom::Start(0))?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match self.file.read(&mut buffer)? {
                0 => break,
                n => hash.update(&buffer[..n]),
            }
        }
        Ok(digits(&hash.finalize()))
    }
}

pub(super) fn digits(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    let both = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
    bytes.iter().flat_map(both).collect()
}

fn is_sha256(etag: &str) -> bool {
    etag.len() == SHA256_DIGITS && etag.bytes().all(|b| b.is_ascii_hexdigit())
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

fn failed(file: &Path) -> impl Fn(io::Error) -> HubError {
    let file = file.to_owned();
    move |source| HubError::File {
        file: file.clone(),
        source,
    }
}
