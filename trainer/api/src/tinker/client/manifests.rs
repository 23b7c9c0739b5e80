//! The manifests of checkpoints, which are kept here because not every server stores them.
//!
//! A manifest is written before its checkpoint is requested. Its file name consists of the checkpoint's name and the
//! manifest's mark. The name at the server also contains the mark, so that a listed checkpoint leads to its manifest.
//!
//! Converts MetaClaw's names to the last part of a `tinker://` path, and back.
//!
//! Servers allow different characters there; all allow letters, digits, `-` and `_`. Any other character is written as
//! `_` and two hexadecimal digits. A checkpoint's name is followed by `_m` and the beginning of its manifest's hash, by
//! which the manifest is found if the server stores none.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use super::http::random_digits;

const OWNER: &str = "owner";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptManifest {
    pub(super) step: u64,
    /// The LoRA rank. Some servers need it before they load the checkpoint.
    #[serde(default)]
    pub(super) rank: u32,
    pub(super) manifest: Value,
}

#[derive(Debug)]
pub(super) struct Manifests {
    folder: Option<PathBuf>,
    /// The manifests of this process; all manifests if there is no folder.
    known: Mutex<BTreeMap<(String, String), KeptManifest>>,
    owner: Mutex<Option<String>>,
}

// === impl Manifests ===

impl Manifests {
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
        if let Some(owner) = self.owner.lock().clone() {
            return Ok(owner);
        }
        let owner = match &self.folder {
            None => random_digits(),
            Some(folder) => {
                let file = folder.join(OWNER);
                match tokio::fs::read_to_string(&file).await {
                    Ok(owner) => owner.trim().to_owned(),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        let owner = random_digits();
                        write(&file, owner.as_bytes()).await?;
                        owner
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(self.owner.lock().get_or_insert(owner).clone())
    }

    /// Stores a manifest and returns its key.
    ///
    /// # Errors
    /// The file system's: then no checkpoint is made that nobody could read.
    pub(super) async fn put(&self, name: &str, kept: KeptManifest) -> io::Result<String> {
        let text = serde_json::to_string(&kept)?;
        let mark = mark(&text);
        if let Some(folder) = &self.folder {
            write(&file(folder, name, &mark), text.as_bytes()).await?;
        }
        let key = (name.to_owned(), mark.clone());
        self.known.lock().insert(key, kept);
        Ok(mark)
    }

    pub(super) async fn get(&self, name: &str, mark: &str) -> Option<KeptManifest> {
        let key = (name.to_owned(), mark.to_owned());
        if let Some(kept) = self.known.lock().get(&key) {
            return Some(kept.clone());
        }
        let file = file(self.folder.as_deref()?, name, mark);
        let text = tokio::fs::read(&file).await.ok()?;
        let kept: KeptManifest = serde_json::from_slice(&text).ok()?;
        self.known.lock().insert(key, kept.clone());
        Some(kept)
    }

    pub(super) async fn remove(&self, name: &str, mark: &str) {
        let key = (name.to_owned(), mark.to_owned());
        self.known.lock().remove(&key);
        if let Some(folder) = &self.folder {
            // A file that stays does no harm.
            let _ = tokio::fs::remove_file(file(folder, name, mark)).await;
        }
    }
}

fn file(folder: &Path, name: &str, mark: &str) -> PathBuf {
    folder.join(format!("{}.json", with_mark(name, mark)))
}

/// Writes a file completely or not at all.
async fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        tokio::fs::create_dir_all(folder).await?;
    }
    let new = file.with_extension("new");
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut open = options.open(&new).await?;
    open.write_all(bytes).await?;
    open.sync_all().await?;
    tokio::fs::rename(&new, file).await
}

const MARK: &str = "_m";
const DIGITS: usize = 12;

/// Returns the name with escapes for characters that not every server allows.
pub(super) fn escaped(name: &str) -> String {
    name.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "_{byte:02x}");
        }
        out
    })
}

/// Reverses [`escaped`]; `None` for names that it cannot have made.
fn unescaped(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        if *first != b'_' {
            out.push(*first);
            rest = behind;
            continue;
        }
        let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
        out.push(u8::from_str_radix(digits, 16).ok()?);
        rest = behind.get(2..)?;
    }
    String::from_utf8(out).ok()
}

fn mark(manifest: &str) -> String {
    let mut hash = blake3::hash(manifest.as_bytes()).to_hex().to_string();
    hash.truncate(DIGITS);
    hash
}

pub(super) fn with_mark(name: &str, mark: &str) -> String {
    format!("{}{MARK}{mark}", escaped(name))
}

/// Splits a name into a checkpoint's name and mark, or an adapter's name; `None` for
/// names that cannot have been made here. Another program's name may look like one.
pub(super) fn read_name(text: &str) -> Option<(String, Option<&str>)> {
    match text.rsplit_once(MARK) {
        Some((name, mark)) => {
            let is_mark = mark.len() == DIGITS && mark.bytes().all(|b| b.is_ascii_hexdigit());
            if !is_mark {
                return None;
            }
            Some((unescaped(name)?, Some(mark)))
        }
        None => Some((unescaped(text)?, None)),
    }
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
    #[test]
    fn names_come_back() {
        for name in ["main-1a2b3c4d-000003", "_default.l1@3", "a_m-b", "x"] {
            let mark = mark("{}");
            let written = with_mark(name, &mark);
            let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            assert!(written.bytes().all(legal), "{written}");
            assert_eq!(read_name(&written), Some((name.to_owned(), Some(&*mark))));
            assert_eq!(read_name(&escaped(name)), Some((name.to_owned(), None)));
        }
    }

    #[test]
    fn names_of_others_are_not_ours() {
        for other in ["step_1_m", "final_", "a_zz", "a_mxyz"] {
            assert_eq!(read_name(other), None, "{other}");
        }
    }
}
