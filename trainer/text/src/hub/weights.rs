//! Downloads a complete model: weights in safetensors, besides its text files.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{
    error::HubError,
    fetch::Hub,
    fetching::{CONFIG, Fetching, Progress, TOKENIZERS},
    place::{HubName, commit, is_part},
};
use crate::regular;

/// The file of weights that are in one file.
const SINGLE: &str = "model.safetensors";
/// The index of weights that are in several files.
const INDEX: &str = "model.safetensors.index.json";
/// A model may lack this file.
const GENERATION: &str = "generation_config.json";
/// Bytes that stay free on the disk.
const SPARE: u64 = 256 << 20;

#[derive(Deserialize)]
struct ShardIndex {
    weight_map: std::collections::BTreeMap<String, String>,
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

// === impl Hub ===

impl Hub {
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
}

// === impl Fetching ===

impl Fetching<'_> {
    /// Returns the files with the weights.
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
        shards(&bytes).map_err(|why| HubError::Unreadable {
            url: format!("{INDEX} of {}", self.model),
            why,
        })
    }

    /// Makes the error for weights that are not at the hub.
    fn lacks(&self, file: &str) -> HubError {
        let model = self.model.to_string();
        if file == SINGLE {
            return HubError::NoWeights { model };
        }
        HubError::Unreadable {
            url: format!("{INDEX} of {model}"),
            why: format!("it names {file}, which is not at the hub"),
        }
    }

    /// Checks that the disk has room for the missing files.
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
                folder: self.cache().to_owned(),
            }),
            Some(_) | None => {
                if needed > 0 {
                    tracing::info!(
                        model = %self.model,
                        size = super::error::size(needed),
                        "weights are fetched from the hub"
                    );
                }
                Ok(())
            }
        }
    }
}
