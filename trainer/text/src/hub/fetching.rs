//! The download of one model's files into the cache.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::{Method, Response, StatusCode};
use tokio::time::{sleep, timeout};

use super::{
    answer::{self, FileMeta},
    ask::{HubServer, SILENCE, reason},
    error::HubError,
    place::{HubName, MAIN, commit},
    store::{ModelFolder, PartialFile},
};

/// The file that every supported model has.
pub(super) const CONFIG: &str = "config.json";
/// Files besides a tokenizer. A model may lack any of them.
const BESIDE: [&str; 4] = [
    CONFIG,
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
];
/// The tokenizer is the first existing one of these.
pub(super) const TOKENIZERS: [&str; 2] = ["tokenizer.json", "tiktoken.model"];
/// Number of tries of one file. Each continues where the last one ended.
const TRIES: u32 = 4;

/// The progress of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    pub file: &'a str,
    /// Bytes that are downloaded.
    pub done: u64,
    /// Bytes in total, if the server gives them.
    pub total: Option<u64>,
}

/// Returns whether an answer's bytes begin at `from`.
fn goes_on(response: &Response, from: u64) -> bool {
    let range = answer::text(response.headers(), "content-range");
    range.is_some_and(|range| range.starts_with(&format!("bytes {from}-")))
}

/// The running download of one model's files.
pub(super) struct Fetching<'a> {
    server: &'a HubServer,
    cache: &'a Path,
    pause: Duration,
    pub(super) model: &'a HubName,
    pub(super) folder: ModelFolder,
    /// The commit, once it is known. All files must belong to the same one.
    revision: Option<String>,
    /// Bytes received for all files.
    n_read: u64,
    progress: &'a (dyn Fn(Progress<'_>) + Send + Sync),
}

impl<'a> Fetching<'a> {
    /// Downloads the commit in the cache, or else the present `main`.
    pub(super) fn new(
        server: &'a HubServer,
        cache: &'a Path,
        pause: Duration,
        model: &'a HubName,
        progress: &'a (dyn Fn(Progress<'_>) + Send + Sync),
    ) -> Self {
        let folder = model.folder(cache);
        Self {
            server,
            cache,
            pause,
            model,
            revision: commit(&folder),
            folder: ModelFolder::new(folder),
            n_read: 0,
            progress,
        }
    }

    /// Downloads a tokenizer and the files besides it.
    ///
    /// # Errors
    /// Returns [`HubError::NoTokenizer`] and other errors.
    pub(super) async fn text(&mut self) -> Result<(), HubError> {
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
    pub(super) async fn fetch(&mut self, file: &str) -> Result<bool, HubError> {
        let mut pause = self.pause;
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
                (n_left, pause) = (TRIES, self.pause);
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
    pub(super) async fn look(
        &mut self,
        file: &str,
    ) -> Result<Option<(String, FileMeta)>, HubError> {
        let (endpoint, model) = (&self.server.endpoint, self.model);
        let revision = self.revision.as_deref().unwrap_or(MAIN);
        let url = format!("{endpoint}/{model}/resolve/{revision}/{file}");
        let response = self.server.ask(Method::HEAD, &url, 0).await?;
        if answer::is_absent(&response) {
            return Ok(None);
        }
        let status = response.status();
        if !status.is_success() && !status.is_redirection() {
            let has_token = self.server.token.is_some();
            return Err(answer::refusal(self.model, &url, has_token, response).await);
        }
        let meta = answer::meta(&url, &response)?;
        self.revision = Some(meta.commit.clone());
        Ok(Some((url, meta)))
    }

    /// Works like [`Self::look`], and tries again if the hub cannot be reached.
    ///
    /// # Errors
    /// Returns [`HubError`] if the hub does not answer.
    pub(super) async fn look_patiently(
        &mut self,
        file: &str,
    ) -> Result<Option<(String, FileMeta)>, HubError> {
        let mut pause = self.pause;
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

    /// Returns the folder of the cache.
    pub(super) fn cache(&self) -> &Path {
        self.cache
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

    /// Returns the path of a file of the commit that is being downloaded.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        let commit = self.revision.as_deref().unwrap_or(MAIN);
        self.folder.snapshot(commit).join(file)
    }

    /// Reads a file to its end, from where an earlier download stopped.
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
        let mut response = self.server.ask(Method::GET, url, partial.n_bytes()).await?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT if goes_on(&response, partial.n_bytes()) => {}
            StatusCode::PARTIAL_CONTENT => {
                return Err(HubError::Unreadable {
                    url: url.to_owned(),
                    why: "not the range that was asked for".to_owned(),
                });
            }
            // This server cannot begin in the middle of a file.
            status if status.is_success() => partial.clear()?,
            _ => {
                let has_token = self.server.token.is_some();
                return Err(answer::refusal(self.model, url, has_token, response).await);
            }
        }
        let broken = |why: String| HubError::Unreachable {
            url: url.to_owned(),
            why,
            cache: self.cache.to_owned(),
        };
        loop {
            (self.progress)(Progress {
                file,
                done: partial.n_bytes(),
                total: meta.size,
            });
            let more = timeout(SILENCE, response.chunk()).await;
            let more = more.map_err(|_| broken(format!("silent for {SILENCE:?}")))?;
            match more.map_err(|error| broken(reason(&error)))? {
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

    /// Marks the commit as complete, and returns its folder.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn finish(self) -> Result<PathBuf, HubError> {
        // The commit is known as soon as a file was downloaded.
        let commit = self.revision.unwrap_or_else(|| MAIN.to_owned());
        self.folder.set_main(&commit)?;
        Ok(self.folder.snapshot(&commit))
    }
}
