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

/// The file with the mark of this home's checkpoints.
const OWNER: &str = "owner";

/// The record of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptManifest {
    /// Optimiser steps in it.
    pub(super) step: u64,
    /// The LoRA rank. Some servers need it before they load the checkpoint.
    #[serde(default)]
    pub(super) rank: u32,
    /// The learner's manifest, unchanged.
    pub(super) manifest: Value,
}

/// The manifests of this home.
#[derive(Debug)]
pub(super) struct Manifests {
    folder: Option<PathBuf>,
    /// The manifests of this process; all manifests if there is no folder.
    known: Mutex<BTreeMap<(String, String), KeptManifest>>,
    owner: Mutex<Option<String>>,
}

// === impl Manifests ===

impl Manifests {
    /// An empty store. Files are read when they are needed.
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            known: Mutex::default(),
            owner: Mutex::default(),
        }
    }

    /// The mark that distinguishes our checkpoints from those of other homes with the same account. It is made at first
    /// use.
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

    /// Stores a manifest and returns its key.
    ///
    /// # Errors
    /// The file system's: then no checkpoint is made that nobody could read.
    pub(super) async fn put(&self, name: &str, kept: KeptManifest) -> io::Result<String> {
        let text = serde_json::to_string(&kept)?;
        let mark = names::mark(&text);
        if let Some(folder) = &self.folder {
            write(&file(folder, name, &mark), text.as_bytes()).await?;
        }
        let key = (name.to_owned(), mark.clone());
        self.lock_known().insert(key, kept);
        Ok(mark)
    }

    /// The manifest of a checkpoint that is listed.
    pub(super) async fn get(&self, name: &str, mark: &str) -> Option<KeptManifest> {
        let key = (name.to_owned(), mark.to_owned());
        if let Some(kept) = self.lock_known().get(&key) {
            return Some(kept.clone());
        }
        let file = file(self.folder.as_deref()?, name, mark);
        let text = tokio::fs::read(&file).await.ok()?;
        let kept: KeptManifest = serde_json::from_slice(&text).ok()?;
        self.lock_known().insert(key, kept.clone());
        Some(kept)
    }

    /// Removes the manifest of a deleted checkpoint.
    pub(super) async fn remove(&self, name: &str, mark: &str) {
        let key = (name.to_owned(), mark.to_owned());
        self.lock_known().remove(&key);
        if let Some(folder) = &self.folder {
            // A file that stays does no harm.
            let _ = tokio::fs::remove_file(file(folder, name, mark)).await;
        }
    }

    fn lock_known(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), KeptManifest>> {
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
        let kept = KeptManifest {
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
