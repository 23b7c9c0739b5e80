//! Logs that were put out of the way, and lie beside the log: found, and read on a copy.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{config::TurnsConfig, error::OpenError, folder, log::TurnLog};

/// How the names of their folders begin: databases that did not open, copies of such that lost something, and those of an
/// older format that earlier programs moved.
const DATABASES: [&str; 2] = ["damaged-", "format-"];
/// Parts that a database does without.
const PARTS: &str = "repaired-";
/// Where one is copied to, to be read.
const COPY: &str = "copy-to-read";

/// What lies beside the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetAside {
    /// Databases, the oldest first.
    pub databases: Vec<PathBuf>,
    /// Parts of the log's own database that were damaged, and that it does without.
    pub parts: Vec<PathBuf>,
}

/// A copy of a log that was put out of the way; what it lies in is removed when it is closed.
#[derive(Debug)]
pub struct AsideLog {
    log: TurnLog,
    dir: PathBuf,
}

// === impl SetAside ===

impl SetAside {
    /// Looks into the log's folder; nothing is there where that is not.
    ///
    /// # Errors
    /// Where the folder does not read.
    pub fn find(dir: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if DATABASES.iter().any(|it| name.starts_with(it)) && path.join("db").is_file() {
                found.databases.push(path);
            } else if name.starts_with(PARTS) {
                found.parts.push(path);
            }
        }
        // Their names end with the time.
        let time = |path: &PathBuf| {
            let name = path.file_name()?.to_str()?;
            name.rsplit_once('-')?.1.parse::<u64>().ok()
        };
        found.databases.sort_by_key(time);
        found.parts.sort_by_key(time);
        Ok(found)
    }
}

// === impl AsideLog ===

impl AsideLog {
    /// Opens a copy of a database that lies in the log's folder. Blocks until it is open.
    ///
    /// # Errors
    /// [`OpenError`] says why it does not open, or that there is no room for a copy.
    pub fn open(database: &Path, config: &TurnsConfig) -> Result<Self, OpenError> {
        let dir = database.with_file_name(COPY);
        let opened =
            folder::copy(database, &dir).and_then(|()| TurnLog::open_unmoved(&dir, config));
        match opened {
            Ok(log) => Ok(Self { log, dir }),
            Err(error) => {
                fs::remove_dir_all(&dir).ok();
                Err(error)
            }
        }
    }

    pub fn log(&self) -> &TurnLog {
        &self.log
    }

    /// Lets go of the copy, and removes it.
    pub async fn close(self) {
        self.log.close().await;
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            let place = self.dir.display();
            tracing::warn!(%error, %place, "a copy of a turn log cannot be removed");
        }
    }
}
