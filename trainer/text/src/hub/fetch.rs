//! Fetching a model's text files: tokenizer, its configuration, chat template, config.json. Weights are in
//! [`super::weights`].

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::Client;

use super::{
    ask::Server,
    error::HubError,
    fetching::{Fetching, Progress, TOKENIZERS},
    place::{HubName, cache_dir, commit},
    store::ModelFolder,
};

/// The pause before a file is tried again; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// A hub of models, and the cache that is filled from it.
#[derive(Clone)]
pub struct Hub {
    pub(super) server: Server,
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
        let mut fetching = self.fetching(model, progress)?;
        fetching.text().await?;
        fetching.finish()
    }

    /// Sees that the environment lets something be fetched.
    ///
    /// # Errors
    /// [`HubError::Offline`], for this model.
    pub fn check_online(&self, model: &HubName) -> Result<(), HubError> {
        if self.is_offline {
            return Err(HubError::Offline {
                model: model.to_string(),
                cache: self.cache.clone(),
            });
        }
        Ok(())
    }

    /// What fetches a model's files: of the commit that is in the cache, else of `main` now.
    ///
    /// # Errors
    /// [`HubError::Offline`].
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
