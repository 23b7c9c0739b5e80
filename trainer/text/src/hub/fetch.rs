//! Downloads a model's text files: tokenizer, its configuration, chat template, config.json. [`super::weights`]
//! downloads weights.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::Client;

use super::{
    ask::HubServer,
    error::HubError,
    fetching::{Fetching, Progress, TOKENIZERS},
    place::{HubName, cache_dir, commit},
    store::ModelFolder,
};

/// The pause before a file is tried again. Each following one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// A hub of models, and the cache for it.
#[derive(Clone)]
pub struct Hub {
    pub(super) server: HubServer,
    pub(super) cache: PathBuf,
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
    /// Returns the hub that the environment names, like `huggingface_hub`: `HF_ENDPOINT`, `HF_TOKEN` or the file of
    /// `hf auth login`, `HF_HUB_OFFLINE`, and the variables of [`cache_dir`]. Returns `None` if no variable gives a
    /// cache. `client` must not follow redirections, because tokens are only for the hub.
    pub fn from_env(client: Client, env: &impl Fn(&str) -> Option<String>) -> Option<Self> {
        let cache = cache_dir(env)?;
        let set = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        let offline = set("HF_HUB_OFFLINE").is_some_and(|it| {
            ["1", "on", "yes", "true"].contains(&it.to_ascii_lowercase().as_str())
        });
        Some(Self {
            server: HubServer::from_env(client, cache.clone(), &set),
            cache,
            is_offline: offline,
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
        let folder = ModelFolder::new(model.folder(&self.cache));
        let known = commit(&model.folder(&self.cache));
        if let Some(commit) = &known {
            let snapshot = folder.snapshot(commit);
            if TOKENIZERS.iter().any(|file| snapshot.join(file).is_file()) {
                return Ok(snapshot);
            }
        }
        let mut fetching = self.fetching(model, progress)?;
        fetching.text().await?;
        fetching.finish()
    }

    /// Checks that the environment allows downloads.
    ///
    /// # Errors
    /// Returns [`HubError::Offline`] for this model.
    pub fn check_online(&self, model: &HubName) -> Result<(), HubError> {
        if self.is_offline {
            return Err(HubError::Offline {
                model: model.to_string(),
                cache: self.cache.clone(),
            });
        }
        Ok(())
    }

    /// Prepares the download of a model's files: of the commit in the cache, or else of the present `main`.
    ///
    /// # Errors
    /// Returns [`HubError::Offline`] if downloads are forbidden.
    pub(super) fn fetching<'a>(
        &'a self,
        model: &'a HubName,
        progress: &'a (dyn Fn(Progress<'_>) + Send + Sync),
    ) -> Result<Fetching<'a>, HubError> {
        self.check_online(model)?;
        let (server, pause) = (&self.server, self.pause);
        Ok(Fetching::new(server, &self.cache, pause, model, progress))
    }
}

#[cfg(test)]
mod tests;
