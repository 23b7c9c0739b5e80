//! Downloads a model into the cache: its text files (tokenizer, configuration, chat template), and its weights in
//! safetensors.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::{Client, Method, Response, StatusCode, header};
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use super::{
    error::{HubError, size},
    place::{HubName, MAIN, cache_dir, cached, commit, is_part},
    server::{self, FileMeta, HubServer, SILENCE, reason},
    store::{ModelFolder, PartialFile},
};
use crate::regular;

/// The pause before a file is tried again. Each following one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);
/// The file that every supported model has.
const CONFIG: &str = "config.json";
/// Files besides a tokenizer. A model may lack any of them.
const BESIDE: [&str; 4] = [
    CONFIG,
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
];
/// The tokenizer is the first existing one of these.
const TOKENIZERS: [&str; 2] = ["tokenizer.json", "tiktoken.model"];
/// Number of tries of one file. Each continues where the last one ended.
const TRIES: u32 = 4;
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// A model may lack this file.
const GENERATION: &str = "generation_config.json";
/// Bytes that stay free on the disk.
const SPARE: u64 = 256 << 20;

/// A hub of models, and the cache for it.
#[derive(derive_more::Debug, Clone)]
#[debug("Hub({}, {cache:?})", server.endpoint)]
pub struct Hub {
    server: HubServer,
    cache: PathBuf,
    is_offline: bool,
    pause: Duration,
}

/// The progress of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    pub file: &'a str,
    /// Bytes that are downloaded.
    pub done: u64,
    /// Bytes in total, if the server gives them.
    pub total: Option<u64>,
}

struct Fetching<'a> {
    hub: &'a Hub,
    model: &'a HubName,
    folder: ModelFolder,
    /// The commit, once it is known. All files must belong to the same one.
    revision: Option<String>,
    n_read: u64,
    progress: &'a (dyn Fn(Progress<'_>) + Send + Sync),
}

// === impl Hub ===

impl Hub {
    /// Returns the hub that the environment names, like `huggingface_hub`: `HF_ENDPOINT`, `HF_TOKEN` or the file of
    /// `hf auth login`, `HF_HUB_OFFLINE`, and the variables of [`cache_dir`]. Returns `None` if no variable gives a
    /// cache. `client` must not follow redirections, because tokens are only for the hub.
    pub fn from_env(client: Client, env: &impl Fn(&str) -> Option<String>) -> Option<Self> {
        let cache = cache_dir(env)?;
        let set = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        let offline = set("HF_HUB_OFFLINE")
            .unwrap_or_default()
            .to_ascii_lowercase();
        Some(Self {
            server: HubServer::from_env(client, cache.clone(), &set),
            cache,
            is_offline: ["1", "on", "yes", "true"].contains(&offline.as_str()),
            pause: PAUSE,
        })
    }

    /// Returns the folder of the cache.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// Returns the folder with a model's text files, and downloads missing ones.
    ///
    /// If the cache has a commit of the model, the files are that commit's, and if it has a tokenizer, no request is
    /// sent. Otherwise they are those of the present `main`.
    ///
    /// # Errors
    /// Returns [`HubError`] if a file cannot be downloaded.
    ///
    /// # Cancel safety
    /// If the future is dropped, the downloaded part of a file stays, and the next call continues there.
    pub async fn fetch(
        &self,
        model: &HubName,
        progress: &(dyn Fn(Progress<'_>) + Send + Sync),
    ) -> Result<PathBuf, HubError> {
        let mut tokenizers = TOKENIZERS.iter();
        if let Some(snapshot) = tokenizers.find_map(|file| cached(&self.cache, model, file)) {
            return Ok(snapshot);
        }
        let mut fetching = self.fetching(model, progress)?;
        fetching.text().await?;
        fetching.finish()
    }

    /// Returns the folder with everything for loading a model, and downloads missing files.
    ///
    /// For a model that is complete in the cache, no request is sent. Before the first byte of weights is downloaded,
    /// the free disk space is checked. The sizes of all missing files are known by then.
    ///
    /// # Errors
    /// Returns [`HubError`] if a file cannot be downloaded.
    ///
    /// # Cancel safety
    /// If the future is dropped, the downloaded part of a file stays, and the next call continues there.
    pub async fn fetch_model(
        &self,
        model: &HubName,
        progress: &(dyn Fn(Progress<'_>) + Send + Sync),
    ) -> Result<PathBuf, HubError> {
        if let Some(folder) = whole(&self.cache, model) {
            return Ok(folder);
        }
        let mut fetching = self.fetching(model, progress)?;
        fetching.text().await?;
        if !fetching.path(CONFIG).is_file() {
            let model = model.to_string();
            return Err(HubError::NoConfig { model });
        }
        fetching.fetch(GENERATION).await?;
        let files = fetching.files().await?;
        fetching.check_room(&files).await?;
        for file in &files {
            if !fetching.fetch(file).await? {
                return Err(fetching.lacks(file));
            }
        }
        fetching.finish()
    }

    /// Checks that the environment allows downloads.
    ///
    /// # Errors
    /// Returns [`HubError::Offline`] for this model.
    pub fn check_online(&self, model: &HubName) -> Result<(), HubError> {
        if self.is_offline {
            let (model, cache) = (model.to_string(), self.cache.clone());
            return Err(HubError::Offline { model, cache });
        }
        Ok(())
    }

    /// Prepares the download of a model's files: of the commit in the cache, or else of the present `main`.
    ///
    /// # Errors
    /// Returns [`HubError::Offline`] if downloads are forbidden.
    fn fetching<'a>(
        &'a self,
        model: &'a HubName,
        progress: &'a (dyn Fn(Progress<'_>) + Send + Sync),
    ) -> Result<Fetching<'a>, HubError> {
        self.check_online(model)?;
        let folder = model.folder(&self.cache);
        Ok(Fetching {
            hub: self,
            model,
            revision: commit(&folder),
            folder: ModelFolder::new(folder),
            n_read: 0,
            progress,
        })
    }
}

#[derive(Deserialize)]
struct ShardIndex {
    weight_map: BTreeMap<String, String>,
}

/// Returns the folder of a model in the cache, if it has everything for loading: config, tokenizer, and every file of
/// weights.
pub fn whole(cache: &Path, model: &HubName) -> Option<PathBuf> {
    let folder = model.folder(cache);
    let snapshot = folder.join("snapshots").join(commit(&folder)?);
    let has = |file: &str| snapshot.join(file).is_file();
    let has_text = has(CONFIG) && TOKENIZERS.iter().any(|file| has(file));
    let files = match regular(&snapshot.join(INDEX)).and_then(fs::read) {
        Ok(bytes) => shards(&bytes).ok()?,
        Err(_) => BTreeSet::from([SINGLE.to_owned()]),
    };
    (has_text && files.iter().all(|file| has(file))).then_some(snapshot)
}

/// Returns the files that an index names.
///
/// # Errors
/// Returns an error in words if it is not an index, or names something other than a file of weights beside it.
fn shards(index: &[u8]) -> Result<BTreeSet<String>, String> {
    let index: ShardIndex = serde_json::from_slice(index).map_err(|error| error.to_string())?;
    let files: BTreeSet<String> = index.weight_map.into_values().collect();
    let is_weights = |file: &String| is_part(file) && file.ends_with(".safetensors");
    if let Some(other) = files.iter().find(|file| !is_weights(file)) {
        let shown: String = other.chars().take(100).collect();
        return Err(format!(
            "it names {shown:?}, which is no file of safetensors beside it"
        ));
    }
    if files.is_empty() {
        return Err("it names no file".to_owned());
    }
    Ok(files)
}

fn goes_on(response: &Response, from: u64) -> bool {
    let range = response.headers().get(header::CONTENT_RANGE);
    let range = range.and_then(|range| range.to_str().ok());
    range.is_some_and(|range| range.trim().starts_with(&format!("bytes {from}-")))
}

// === impl Fetching ===

impl Fetching<'_> {
    /// Downloads a tokenizer and the files besides it.
    ///
    /// # Errors
    /// Returns [`HubError::NoTokenizer`] and other errors.
    async fn text(&mut self) -> Result<(), HubError> {
        for file in BESIDE {
            self.fetch(file).await?;
        }
        // The tokenizer comes last, so that a folder that has one has all other files.
        for file in TOKENIZERS {
            if self.fetch(file).await? {
                return Ok(());
            }
        }
        let model = self.model.to_string();
        Err(HubError::NoTokenizer { model })
    }

    /// Downloads one file. Returns whether it exists.
    ///
    /// # Errors
    /// Returns [`HubError`] if it cannot be downloaded.
    async fn fetch(&mut self, file: &str) -> Result<bool, HubError> {
        let mut pause = self.hub.pause;
        let mut n_left = TRIES;
        loop {
            let before = self.n_read;
            let (url, why) = match self.try_fetch(file).await {
                Err(HubError::Unreachable { url, why, .. }) if n_left > 1 => (url, why),
                done => return done,
            };
            // As long as a connection brings bytes, the number of tries is not limited.
            if self.n_read == before {
                n_left -= 1;
            } else {
                (n_left, pause) = (TRIES, self.hub.pause);
            }
            tracing::info!(url, why, "is tried again");
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Requests information about a file. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// Returns [`HubError`] if the hub does not answer.
    async fn look(&mut self, file: &str) -> Result<Option<(String, FileMeta)>, HubError> {
        let (server, model) = (&self.hub.server, self.model);
        let revision = self.revision.as_deref().unwrap_or(MAIN);
        let url = format!("{}/{model}/resolve/{revision}/{file}", server.endpoint);
        let response = server.ask(Method::HEAD, &url, 0).await?;
        if server::is_absent(&response) {
            return Ok(None);
        }
        let status = response.status();
        if !status.is_success() && !status.is_redirection() {
            return Err(server.refusal(model, &url, response).await);
        }
        let meta = server::meta(&url, &response)?;
        self.revision = Some(meta.commit.clone());
        Ok(Some((url, meta)))
    }

    /// Works like [`Self::look`], and tries again if the hub cannot be reached.
    ///
    /// # Errors
    /// Returns [`HubError`] if the hub does not answer.
    async fn look_patiently(&mut self, file: &str) -> Result<Option<(String, FileMeta)>, HubError> {
        let mut pause = self.hub.pause;
        for _ in 1..TRIES {
            match self.look(file).await {
                Err(HubError::Unreachable { url, why, .. }) => {
                    tracing::info!(url, why, "is tried again");
                    sleep(pause).await;
                    pause *= 2;
                }
                seen => return seen,
            }
        }
        self.look(file).await
    }

    async fn try_fetch(&mut self, file: &str) -> Result<bool, HubError> {
        let Some((url, meta)) = self.look(file).await? else {
            return Ok(false);
        };
        if !self.folder.has_blob(&meta.etag) {
            let partial = self.folder.partial(&meta.etag)?;
            let whole = self.read(&url, file, &meta, partial).await?;
            self.folder.keep(&url, whole, &meta.etag)?;
        }
        self.folder.link(&meta.commit, file, &meta.etag)?;
        Ok(true)
    }

    fn path(&self, file: &str) -> PathBuf {
        let commit = self.revision.as_deref().unwrap_or(MAIN);
        self.folder.snapshot(commit).join(file)
    }

    async fn read(
        &mut self,
        url: &str,
        file: &str,
        meta: &FileMeta,
        mut partial: PartialFile,
    ) -> Result<PartialFile, HubError> {
        if meta.size.is_some_and(|size| size < partial.n_bytes()) {
            partial.clear()?;
        }
        if meta.size == Some(partial.n_bytes()) {
            return Ok(partial);
        }
        let server = &self.hub.server;
        let mut response = server.ask(Method::GET, url, partial.n_bytes()).await?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT if goes_on(&response, partial.n_bytes()) => {}
            StatusCode::PARTIAL_CONTENT => {
                return Err(HubError::unreadable(
                    url,
                    "not the range that was asked for",
                ));
            }
            // This server cannot begin in the middle of a file.
            status if status.is_success() => partial.clear()?,
            _ => return Err(server.refusal(self.model, url, response).await),
        }
        let broken = |why: String| HubError::Unreachable {
            url: url.to_owned(),
            why,
            cache: self.hub.cache.clone(),
        };
        loop {
            (self.progress)(Progress {
                file,
                done: partial.n_bytes(),
                total: meta.size,
            });
            let silent = |_| broken(format!("silent for {SILENCE:?}"));
            let chunk = timeout(SILENCE, response.chunk()).await.map_err(silent)?;
            match chunk.map_err(|error| broken(reason(&error)))? {
                Some(bytes) => {
                    partial.push(&bytes)?;
                    self.n_read += bytes.len() as u64;
                }
                None => break,
            }
        }
        match meta.size {
            Some(size) if size > partial.n_bytes() => {
                let done = partial.n_bytes();
                Err(broken(format!("ended after {done} of {size} bytes")))
            }
            Some(size) if size < partial.n_bytes() => {
                partial.clear()?;
                Err(HubError::Damaged {
                    url: url.to_owned(),
                    why: format!("more than the {size} bytes that were announced"),
                })
            }
            Some(_) | None => Ok(partial),
        }
    }

    async fn files(&mut self) -> Result<BTreeSet<String>, HubError> {
        if !self.fetch(INDEX).await? {
            return Ok(BTreeSet::from([SINGLE.to_owned()]));
        }
        let path = self.path(INDEX);
        let bytes = regular(&path)
            .and_then(fs::read)
            .map_err(|source| HubError::File {
                file: path.clone(),
                source,
            })?;
        shards(&bytes)
            .map_err(|why| HubError::unreadable(format!("{INDEX} of {}", self.model), why))
    }

    fn lacks(&self, file: &str) -> HubError {
        let model = self.model.to_string();
        if file == SINGLE {
            return HubError::NoWeights { model };
        }
        let why = format!("it names {file}, which is not at the hub");
        HubError::unreadable(format!("{INDEX} of {model}"), why)
    }

    async fn check_room(&mut self, files: &BTreeSet<String>) -> Result<(), HubError> {
        let mut needed = 0_u64;
        for file in files {
            let Some((_, meta)) = self.look_patiently(file).await? else {
                return Err(self.lacks(file));
            };
            let here = self.folder.n_bytes(&meta.etag);
            let missing = meta.size.unwrap_or(0).saturating_sub(here);
            needed = needed.saturating_add(missing);
        }
        let with_spare = needed.saturating_add(SPARE);
        match self.folder.n_free() {
            Some(free) if needed > 0 && free < with_spare => Err(HubError::NoRoom {
                model: self.model.to_string(),
                needed: with_spare,
                free,
                folder: self.hub.cache.clone(),
            }),
            Some(_) | None => {
                if needed > 0 {
                    let size = size(needed);
                    tracing::info!(model = %self.model, size, "weights are fetched from the hub");
                }
                Ok(())
            }
        }
    }

    /// Marks the commit as complete, and returns its folder.
    ///
    /// # Errors
    /// Returns the system's error.
    fn finish(self) -> Result<PathBuf, HubError> {
        // The commit is known as soon as a file was downloaded.
        let commit = self.revision.unwrap_or_else(|| MAIN.to_owned());
        self.folder.set_main(&commit)?;
        Ok(self.folder.snapshot(&commit))
    }
}

#[cfg(test)]
mod tests;
