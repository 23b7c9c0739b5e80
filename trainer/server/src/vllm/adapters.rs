//! Adapters that vLLM has loaded, each from a folder of its own.

use std::{
    collections::BTreeMap,
    fs, io, mem,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metaclaw_trainer_api::AdapterName;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

const FILES: [&str; 2] = ["adapter_config.json", "adapter_model.safetensors"];
/// How long a folder stays after its last reply has ended. A request whose caller has gone may wait in vLLM for a moment more, and
/// vLLM dies where it then reads a folder that is not there.
const STAYS: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Adapters {
    folder: PathBuf,
    /// Tells names of this process from those of earlier ones.
    salt: String,
    n_named: AtomicU64,
    held: Mutex<BTreeMap<AdapterName, Arc<Loaded>>>,
    graves: Graves,
}

#[derive(Debug, Clone, Default)]
struct Graves(Arc<Mutex<Vec<(Instant, PathBuf)>>>);

/// An adapter that vLLM has, or is about to load. Each reply holds one of these; its folder goes after the last one.
#[derive(Debug)]
pub(super) struct Loaded {
    /// What vLLM calls it.
    pub(super) served: String,
    pub(super) folder: PathBuf,
    /// Of its content, where that is known.
    pub(super) sha256: Option<String>,
    pub(super) step: u64,
    graves: Graves,
}

#[derive(Debug, Deserialize)]
struct Config {
    r: u32,
}

// === impl Adapters ===

impl Adapters {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            salt: format!("{:08x}", rand::random::<u32>()),
            n_named: AtomicU64::new(0),
            held: Mutex::default(),
            graves: Graves::default(),
        }
    }

    pub(super) fn get(&self, name: &AdapterName, sha256: Option<&str>) -> Option<Arc<Loaded>> {
        let held = self.held.lock();
        let loaded = held.get(name)?;
        (loaded.sha256.as_deref() == sha256).then(|| Arc::clone(loaded))
    }

    /// A copy of the adapter in `from`, in a folder of its own and with a name that was never used. By hard links where the
    /// file system has them: the files of an adapter are replaced, never changed.
    ///
    /// # Errors
    /// The system's refusal.
    pub(super) fn copy(
        &self,
        name: &AdapterName,
        from: &Path,
        sha256: Option<String>,
        step: u64,
    ) -> io::Result<Loaded> {
        let n = self.n_named.fetch_add(1, Ordering::Relaxed);
        let served = format!("{name}~{}-{n}", self.salt);
        let folder = self.folder.join(&served);
        fs::create_dir_all(&folder)?;
        let loaded = Loaded {
            served,
            folder,
            sha256,
            step,
            graves: self.graves.clone(),
        };
        for file in FILES {
            let (from, to) = (from.join(file), loaded.folder.join(file));
            if fs::hard_link(&from, &to).is_err() {
                fs::copy(&from, &to)?;
            }
        }
        Ok(loaded)
    }

    /// Has this one answer for its name; returns the one that did before.
    pub(super) fn put(&self, name: AdapterName, loaded: Arc<Loaded>) -> Option<Arc<Loaded>> {
        self.held.lock().insert(name, loaded)
    }

    pub(super) fn take(&self, name: &AdapterName) -> Option<Arc<Loaded>> {
        self.held.lock().remove(name)
    }

    /// Forgets all of them: vLLM was started anew and has none.
    pub(super) fn clear(&self) {
        drop(mem::take(&mut *self.held.lock()));
    }

    pub(super) fn names(&self) -> Vec<AdapterName> {
        self.held.lock().keys().cloned().collect()
    }

    pub(super) fn holds(&self, served: &str) -> bool {
        let held = self.held.lock();
        held.values().any(|loaded| loaded.served == served)
    }

    /// Whether vLLM has an adapter of ours that nobody asks for any more: it was loaded from our folder, by an earlier process or
    /// for a request that was given up.
    pub(super) fn is_stray(&self, served: &str, root: &str) -> bool {
        Path::new(root).starts_with(&self.folder) && !self.holds(served)
    }

    /// Deletes the folders whose last reply ended a while ago.
    pub(super) fn bury(&self) {
        let now = Instant::now();
        let due = self.graves.with(|all| {
            let (due, later) = mem::take(all)
                .into_iter()
                .partition(|(since, _)| now.duration_since(*since) >= STAYS);
            *all = later;
            due
        });
        for (_, folder) in due {
            remove(&folder);
        }
    }

    /// Deletes what an earlier process left. vLLM has none of it loaded.
    pub(super) fn sweep(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_ours = |name: &str| name.contains(&self.salt);
        for entry in entries {
            if !entry.file_name().to_str().is_some_and(is_ours) {
                remove(&entry.path());
            }
        }
    }
}

fn remove(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Ok(()) => tracing::debug!(folder = %folder.display(), "deleted"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(folder = %folder.display(), %error, "not deleted"),
    }
}

// === impl Loaded ===

impl Loaded {
    /// Its rank, by its own configuration.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub(super) fn rank(&self) -> io::Result<u32> {
        let text = fs::read(self.folder.join("adapter_config.json"))?;
        let config: Config = serde_json::from_slice(&text)?;
        Ok(config.r)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let folder = mem::take(&mut self.folder);
        self.graves.with(|all| all.push((Instant::now(), folder)));
    }
}

// === impl Graves ===

impl Graves {
    fn with<T>(&self, work: impl FnOnce(&mut Vec<(Instant, PathBuf)>) -> T) -> T {
        work(&mut self.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_folder_goes_a_while_after_the_last_reply_that_used_it() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("a");
        fs::create_dir(&from).unwrap();
        for file in FILES {
            fs::write(from.join(file), r#"{"r": 8}"#).unwrap();
        }
        let adapters = Adapters::new(dir.path().join("vllm"));
        let name: AdapterName = "a".parse().unwrap();
        let copy = |sha: &str| {
            let sha = Some(sha.to_owned());
            Arc::new(adapters.copy(&name, &from, sha, 1).unwrap())
        };
        let first = copy("1");
        assert_eq!(first.rank().unwrap(), 8);
        assert!(adapters.put(name.clone(), Arc::clone(&first)).is_none());
        let reply = adapters.get(&name, Some("1")).unwrap();
        assert!(adapters.get(&name, Some("2")).is_none());
        let second = copy("2");
        assert_ne!(
            (&first.served, &first.folder),
            (&second.served, &second.folder)
        );
        let folder = first.folder.clone();
        drop((adapters.put(name.clone(), second), first));
        tokio::time::advance(2 * STAYS).await;
        adapters.bury();
        assert!(folder.exists(), "a reply uses it");
        drop(reply);
        adapters.bury();
        assert!(folder.exists(), "its request may wait in vLLM");
        tokio::time::advance(STAYS).await;
        adapters.bury();
        assert!(!folder.exists());
        let served = adapters.get(&name, Some("2")).unwrap().served.clone();
        assert!(adapters.holds(&served));
        let there = adapters.take(&name).unwrap();
        assert!(
            !adapters.holds(&served),
            "a request that took it asks again"
        );
        assert!(there.folder.exists());
        let root = there.folder.to_string_lossy();
        assert!(adapters.is_stray(&there.served, &root));
        assert!(!adapters.is_stray("other", "/elsewhere/other"));
    }
}
