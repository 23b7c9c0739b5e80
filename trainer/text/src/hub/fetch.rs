//! Fetching a model's text files: tokenizer, its configuration, chat template, config.json. Never its weights.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::{Client, Method, Response, StatusCode};
use tokio::time::{sleep, timeout};

use super::{
    answer::{self, Meta},
    ask::{SILENCE, Server, reason},
    error::HubError,
    place::{HubName, MAIN, cache_dir, commit},
    store::{ModelFolder, Partial},
};

/// Read besides a tokenizer; a model may lack any of them.
const BESIDE: [&str; 4] = [
    "config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
];
/// The tokenizer: the first that there is.
const TOKENIZERS: [&str; 2] = ["tokenizer.json", "tiktoken.model"];
/// Tries of one file that breaks off or cannot be reached; each goes on where the last one ended.
const TRIES: u32 = 4;
/// The pause after the first; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// How far a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Its name.
    pub file: &'a str,
    /// Bytes that are here.
    pub done: u64,
    /// Bytes in all, if they are said.
    pub total: Option<u64>,
}

/// A hub of models, and the cache that is filled from it.
#[derive(Clone)]
pub struct Hub {
    server: Server,
    cache: PathBuf,
    is_offline: bool,
    pause: Duration,
}

// === impl Hub ===

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("endpoint", &self.server.endpoint)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl Hub {
    /// The hub that the environment names, as `huggingface_hub` reads it: `HF_ENDPOINT`, `HF_TOKEN` or the file of
    /// `hf auth login`, `HF_HUB_OFFLINE`, and [`cache_dir`]'s. `None` where no variable leads to a cache. `client`
    /// must follow no redirections: tokens are for the hub alone.
    pub fn from_env(client: Client, env: &impl Fn(&str) -> Option<String>) -> Option<Self> {
        let cache = cache_dir(env)?;
        let set = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        let offline = set("HF_HUB_OFFLINE").is_some_and(|it| {
            ["1", "on", "yes", "true"].contains(&it.to_ascii_lowercase().as_str())
        });
        Some(Self {
            server: Server::from_env(client, cache.clone(), &set),
            cache,
            is_offline: offline,
            pause: PAUSE,
        })
    }

    /// Where models are kept.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// The folder with a model's text files; what is missing is fetched.
    ///
    /// Where a commit of the model is in the cache already, the files are that commit's, and nothing is asked if it
    /// has a tokenizer; else they are those of `main` now.
    ///
    /// # Errors
    /// [`HubError`].
    ///
    /// # Cancel safety
    /// What came of a file stays, and the next call goes on there.
    pub async fn fetch(
        &self,
        model: &HubName,
        progress: &(dyn Fn(Progress<'_>) + Send + Sync),
    ) -> Result<PathBuf, HubError> {
        let folder = ModelFolder::new(model.folder(&self.cache));
        let known = commit(&model.folder(&self.cache));
        if let Some(commit) = &known {
            let snapshot = folder.snapshot(commit);
            if TOKENIZERS.iter().any(|file| snapshot.join(file).is_file()) {
                return Ok(snapshot);
            }
        }
        if self.is_offline {
            return Err(HubError::Offline {
                model: model.to_string(),
                cache: self.cache.clone(),
            });
        }
        let mut fetching = Fetching {
            hub: self,
            model,
            folder,
            revision: known,
            progress,
        };
        for file in BESIDE {
            fetching.fetch(file).await?;
        }
        // Last, so that a folder that has one has all the rest.
        for file in TOKENIZERS {
            if fetching.fetch(file).await? {
                return fetching.finish();
            }
        }
        let model = model.to_string();
        Err(HubError::NoTokenizer { model })
    }
}

/// Whether an answer's bytes are those from `from` on.
fn goes_on(response: &Response, from: u64) -> bool {
    let range = answer::text(response.headers(), "content-range");
    range.is_some_and(|range| range.starts_with(&format!("bytes {from}-")))
}

/// One model's files being fetched.
struct Fetching<'a> {
    hub: &'a Hub,
    model: &'a HubName,
    folder: ModelFolder,
    /// The commit, once it is known: all files must be of one.
    revision: Option<String>,
    progress: &'a (dyn Fn(Progress<'_>) + Send + Sync),
}

impl Fetching<'_> {
    /// One file; whether there is one.
    async fn fetch(&mut self, file: &str) -> Result<bool, HubError> {
        let mut pause = self.hub.pause;
        for _ in 1..TRIES {
            match self.try_fetch(file).await {
                Err(HubError::Unreachable { url, why, .. }) => {
                    tracing::info!(url, why, "is tried again");
                    sleep(pause).await;
                    pause *= 2;
                }
                done => return done,
            }
        }
        self.try_fetch(file).await
    }

    async fn try_fetch(&mut self, file: &str) -> Result<bool, HubError> {
        let (endpoint, model) = (&self.hub.server.endpoint, self.model);
        let revision = self.revision.as_deref().unwrap_or(MAIN);
        let url = format!("{endpoint}/{model}/resolve/{revision}/{file}");
        let response = self.hub.server.ask(Method::HEAD, &url, 0).await?;
        if answer::is_absent(&response) {
            return Ok(false);
        }
        let status = response.status();
        if !status.is_success() && !status.is_redirection() {
            let has_token = self.hub.server.token.is_some();
            return Err(answer::refusal(self.model, &url, has_token, response).await);
        }
        let meta = answer::meta(&url, &response)?;
        self.revision = Some(meta.commit.clone());
        if !self.folder.has_blob(&meta.etag) {
            let partial = self.folder.partial(&meta.etag)?;
            let whole = self.read(&url, file, &meta, partial).await?;
            self.folder.keep(&url, whole, &meta.etag)?;
        }
        self.folder.link(&meta.commit, file, &meta.etag)?;
        Ok(true)
    }

    /// Reads a file to its end, from where it was left.
    async fn read(
        &self,
        url: &str,
        file: &str,
        meta: &Meta,
        mut partial: Partial,
    ) -> Result<Partial, HubError> {
        if meta.size.is_some_and(|size| size < partial.n_bytes()) {
            partial.clear()?;
        }
        if meta.size == Some(partial.n_bytes()) {
            return Ok(partial);
        }
        let mut response = self
            .hub
            .server
            .ask(Method::GET, url, partial.n_bytes())
            .await?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT if goes_on(&response, partial.n_bytes()) => {}
            StatusCode::PARTIAL_CONTENT => {
                return Err(HubError::Unreadable {
                    url: url.to_owned(),
                    why: "not the range that was asked for".to_owned(),
                });
            }
            // Whoever has the bytes cannot begin in their middle.
            status if status.is_success() => partial.clear()?,
            _ => {
                let has_token = self.hub.server.token.is_some();
                return Err(answer::refusal(self.model, url, has_token, response).await);
            }
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
            let more = timeout(SILENCE, response.chunk()).await;
            let more = more.map_err(|_| broken(format!("silent for {SILENCE:?}")))?;
            match more.map_err(|error| broken(reason(&error)))? {
                Some(bytes) => partial.push(&bytes)?,
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

    fn finish(self) -> Result<PathBuf, HubError> {
        // Known as soon as a file was fetched.
        let commit = self.revision.unwrap_or_else(|| MAIN.to_owned());
        self.folder.set_main(&commit)?;
        Ok(self.folder.snapshot(&commit))
    }
}

#[cfg(test)]
mod tests;
