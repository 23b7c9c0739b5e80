//! Finds logs that were moved aside and are beside the log.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use metaclaw_chat::if_there;

/// Beginnings of their folder names: databases that did not open, copies of databases that lost data, and databases of
/// an older format that earlier programs moved.
const DATABASES: [&str; 2] = ["damaged-", "format-"];
const PARTS: &str = "repaired-";

/// The logs beside the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetAside {
    /// Databases, the oldest first.
    pub databases: Vec<PathBuf>,
    /// Damaged parts of the log's own database that it works without.
    pub parts: Vec<PathBuf>,
}

// === impl SetAside ===

impl SetAside {
    /// Searches the log's folder. Returns nothing if the folder does not exist.
    ///
    /// # Errors
    /// Fails if the folder cannot be read.
    pub fn find(dir: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        for entry in if_there(fs::read_dir(dir))?.into_iter().flatten() {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if DATABASES
                .iter()
                .any(|beginning| name.starts_with(beginning))
                && path.join("db").is_file()
            {
                found.databases.push(path);
            } else if name.starts_with(PARTS) {
                found.parts.push(path);
            }
        }
        // The folder names end with the time.
        let time = |path: &PathBuf| {
            let name = path.file_name()?.to_str()?;
            name.rsplit_once('-')?.1.parse::<u64>().ok()
        };
        found.databases.sort_by_key(time);
        found.parts.sort_by_key(time);
        Ok(found)
    }
}
