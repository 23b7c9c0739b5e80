//! Names of models at the hub, and their places in the cache.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::regular;

/// The default revision.
pub const MAIN: &str = "main";

/// The name of a model at the hub: `owner/name`. Neither part can contain a path separator.
#[derive(Debug, Clone, PartialEq, Eq, Hash, derive_more::Display)]
#[display("{owner}/{name}")]
pub struct HubName {
    owner: String,
    name: String,
}

/// A text is not a valid name of a model at the hub.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is no owner/name of a model: letters, digits, -, _ and ., one slash")]
pub struct HubNameError {
    value: String,
}

// === impl HubName ===

impl FromStr for HubName {
    type Err = HubNameError;

    fn from_str(value: &str) -> Result<Self, HubNameError> {
        match value.split_once('/') {
            Some((owner, name)) if is_part(owner) && is_part(name) => Ok(Self {
                owner: owner.to_owned(),
                name: name.to_owned(),
            }),
            Some(_) | None => Err(HubNameError {
                value: value.chars().take(100).collect(),
            }),
        }
    }
}

impl HubName {
    /// Returns the part after the slash, which is the name of the loaded model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the model's folder in a cache.
    pub fn folder(&self, cache: &Path) -> PathBuf {
        cache.join(format!("models--{}--{}", self.owner, self.name))
    }
}

pub(super) fn is_part(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    !text.is_empty() && !text.starts_with('.') && text.bytes().all(legal)
}

/// Returns the cache folder, as `huggingface_hub` finds it from the environment, or `None` if no variable gives one.
pub fn cache_dir(env: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let hub = env("HF_HUB_CACHE").map(PathBuf::from);
    hub.or_else(|| Some(home_dir(env)?.join("hub")))
}

/// Returns the folder in which `huggingface_hub` keeps the cache and a token.
pub(super) fn home_dir(env: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let home = env("HF_HOME").map(PathBuf::from);
    let xdg = || Some(PathBuf::from(env("XDG_CACHE_HOME")?).join("huggingface"));
    let own = || Some(PathBuf::from(env("HOME")?).join(".cache/huggingface"));
    home.or_else(xdg).or_else(own)
}

/// Returns the folder of a model's `main` revision in the cache, if it exists and contains `file`.
pub fn cached(cache: &Path, model: &HubName, file: &str) -> Option<PathBuf> {
    let folder = model.folder(cache);
    let path = folder.join("snapshots").join(commit(&folder)?);
    path.join(file).is_file().then_some(path)
}

pub(super) fn commit(folder: &Path) -> Option<String> {
    let main = folder.join("refs").join(MAIN);
    let commit = regular(&main).and_then(std::fs::read_to_string).ok()?;
    let commit = commit.trim();
    is_part(commit).then(|| commit.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_two_parts_that_stay_in_their_folder() {
        let name: HubName = "Qwen/Qwen3-8B".parse().unwrap();
        assert_eq!(
            (name.to_string().as_str(), name.name()),
            ("Qwen/Qwen3-8B", "Qwen3-8B")
        );
        let folder = name.folder(Path::new("/hub"));
        assert_eq!(folder, Path::new("/hub/models--Qwen--Qwen3-8B"));
        for wrong in ["Qwen", "", "/x", "x/", "../x", "x/..", "a/b/c", "a/b c"] {
            assert!(wrong.parse::<HubName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_cache_is_where_huggingface_hub_has_it() {
        let found = |set: &[(&str, &str)]| {
            let env = |name: &str| {
                let found = set.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            cache_dir(&env)
        };
        assert_eq!(found(&[]), None);
        let home = ("HOME", "/h");
        assert_eq!(found(&[home]), Some("/h/.cache/huggingface/hub".into()));
        assert_eq!(found(&[home, ("HF_HOME", "/x")]), Some("/x/hub".into()));
        let own = ("HF_HUB_CACHE", "/c");
        assert_eq!(found(&[home, ("HF_HOME", "/x"), own]), Some("/c".into()));
    }

    #[test]
    fn a_model_is_found_by_the_commit_that_main_names() {
        let cache = tempfile::tempdir().unwrap();
        let name: HubName = "own/tiny".parse().unwrap();
        let folder = name.folder(cache.path());
        std::fs::create_dir_all(folder.join("refs")).unwrap();
        std::fs::create_dir_all(folder.join("snapshots/abc")).unwrap();
        std::fs::write(folder.join("refs/main"), "abc\n").unwrap();
        assert_eq!(cached(cache.path(), &name, "config.json"), None);
        std::fs::write(folder.join("snapshots/abc/config.json"), "{}").unwrap();
        let found = cached(cache.path(), &name, "config.json");
        assert_eq!(found, Some(folder.join("snapshots/abc")));
        std::fs::write(folder.join("refs/main"), "../../..").unwrap();
        assert_eq!(cached(cache.path(), &name, "config.json"), None);
    }
}
