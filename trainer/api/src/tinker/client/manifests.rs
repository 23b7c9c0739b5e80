//! The manifests of checkpoints, which are kept here because not every server stores them.
//!
//! A manifest is written before its checkpoint is requested. Its file name consists of the checkpoint's name and the
//! manifest's mark. The name at the server also contains the mark, so that a listed checkpoint leads to its manifest.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{names, random};

/// The file that identifies this home's checkpoints.
const OWNER: &str = "owner";

/// The record of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The number of optimiser steps in it.
    pub(super) step: u64,
    /// The LoRA rank, which some servers need before they load it.
    #[serde(default)]
    pub(super) rank: u32,
    /// The manifest as the learner wrote it.
    pub(super) manifest: Value,
}

/// The manifests of this home.
#[derive(Debug)]
pub(super) struct Manifests {
    folder: Option<PathBuf>,
    /// The manifests of this process, which are all if there is no folder.
    known: Mutex<BTreeMap<(String, String), Kept>>,
    owner: Mutex<Option<String>>,
}

// === impl Manifests ===

impl Manifests {
    /// Creates the store without reading anything.
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            known: Mutex::default(),
            owner: Mutex::default(),
        }
    }

    /// Returns the mark that distinguishes this home's checkpoints from those of other homes with the same account; it
    /// is made when it is first needed.
    ///
    /// # Errors
    /// Returns the file system's errors.
    pub(super) async fn owner(&self) -> io::Result<String> {
        if let Some(owner) = self.lock_owner().clone() {
            return Ok(owner);
        }
        let owner = match &self.folder {
            None => random::digits(),
            Some(folder) => {
                let file = folder.join(OWNER);
                match tokio::fs::read_to_string(&file).await {
                    Ok(owner) => owner.trim().to_owned(),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        let owner = random::digits();
                        write(&file, owner.as_bytes()).await?;
                        owner
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(self.lock_owner().get_or_insert(owner).clone())
    }

    /// Stores a manifest; returns the mark by which it is found.
    ///
    /// # Errors
    /// Returns the file system's errors; then no checkpoint is made, because nobody could read it.
    pub(super) async fn put(&self, name: &str, kept: Kept) -> io::Result<String> {
        let text = serde_json::to_string(&kept)?;
        let mark = names::mark(&text);
        if let Some(folder) = &self.folder {
            write(&file(folder, name, &mark), text.as_bytes()).await?;
        }
        let key = (name.to_owned(), mark.clone());
        self.lock_known().insert(key, kept);
        Ok(mark)
    }

    /// Returns the manifest of a listed checkpoint.
    pub(super) async fn get(&self, name: &str, mark: &str) -> Option<Kept> {
        let key = (name.to_owned(), mark.to_owned());
        if let Some(kept) = self.lock_known().get(&key) {
            return Some(kept.clone());
        }
        let file = file(self.folder.as_deref()?, name, mark);
        let text = tokio::fs::read(&file).await.ok()?;
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        self.lock_known().insert(key, kept.clone());
        Some(kept)
    }

    /// Records that its checkpoint was deleted.
    pub(super) async fn remove(&self, name: &str, mark: &str) {
        let key = (name.to_owned(), mark.to_owned());
        self.lock_known().remove(&key);
        if let Some(folder) = &self.folder {
            // A file that cannot be deleted has no effect.
            let _ = tokio::fs::remove_file(file(folder, name, mark)).await;
        }
    }

    fn lock_known(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), Kept>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_owner(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn file(folder: &Path, name: &str, mark: &str) -> PathBuf {
    folder.join(format!("{}.json", names::with_mark(name, mark)))
}

/// Writes a file completely or not at all.
async fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        tokio::fs::create_dir_all(folder).await?;
    }
    let new = file.with_extension("new");
    {
        use tokio::io::AsyncWriteExt as _;
        let mut options = tokio::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        options.mode(0o600);
        let mut open = options.open(&new).await?;
        open.write_all(bytes).await?;
        open.sync_all().await?;
    }
    tokio::fs::rename(&new, file).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_manifest_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept {
            step: 3,
            rank: 8,
            manifest: json!({"agent": "main"}),
        };
        let manifests = Manifests::new(Some(folder.path().to_owned()));
        let mark = manifests.put("main-1-000001", kept.clone()).await.unwrap();
        let owner = manifests.owner().await.unwrap();
        let manifests = Manifests::new(Some(folder.path().to_owned()));
        assert_eq!(manifests.get("main-1-000001", &mark).await, Some(kept));
        assert_eq!(manifests.owner().await.unwrap(), owner);
        assert_eq!(manifests.get("main-1-000002", &mark).await, None);
        manifests.remove("main-1-000001", &mark).await;
        assert_eq!(manifests.get("main-1-000001", &mark).await, None);
    }
}
