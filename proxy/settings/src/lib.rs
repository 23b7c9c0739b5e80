//! The settings: defaults < file < `METACLAW__RL__BATCH_SIZE` < flags.
//!
//! A key stands once: its place, default, bounds and help are those of a field, in the crate that uses it. `schema` reads
//! them, `table` has them all with what is known of other systems' keys, and each source is checked against that (`layer`)
//! before any struct is read, so that a message can name the key, the file, the value and what is allowed. [`Config`] is
//! then read once, from one value of JSON (`read`).

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use metaclaw_reward::Rules;
use serde_json::{Map, Value};

pub mod address;
pub mod adopt;
pub mod auth_profiles;
mod cloud;
mod derived;
pub mod edit;
mod environment;
mod error;
pub mod example;
mod key;
mod kind;
mod layer;
mod model_name;
mod policy;
pub mod providers;
mod read;
mod safety;
mod sections;
mod show;
mod table;
mod unsupported_keys;
mod yaml;

pub use metaclaw_skills::write_private;

pub use self::{
    cloud::{Cloud, CloudError, Service},
    environment::ENV_PREFIX,
    error::{InertUse, Problem, SettingsError, Unknown},
    layer::{Layer, Origin},
    policy::{Policy, PolicyError, without_effect},
    read::{key_and_value, overridden},
    sections::{
        Backend, BackendKind, Config, Consent, EvolverSettings, JudgeModel, JudgeSettings, Llm,
        LogSettings, ModelAddress, OpdSettings, PageSettings, Trainer,
    },
    show::{Effective, fingerprint, one_line},
};

/// Where settings come from.
#[derive(Debug, Clone)]
pub struct Sources {
    pub file: PathBuf,
    /// Whether it was named; one that was not may be missing.
    pub file_asked: bool,
    /// Variables of the environment.
    pub variables: Vec<(String, String)>,
    /// `--port` and `--mode`, dotted.
    pub flags: Vec<(&'static str, String)>,
    /// What `metaclaw auth` keeps.
    pub profiles: PathBuf,
}

#[cfg(test)]
impl Sources {
    /// The files of a home and these variables, as a start reads them.
    fn in_folder(folder: &std::path::Path, variables: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            file: folder.join("config.yaml"),
            file_asked: true,
            variables: variables.iter().map(owned).collect(),
            flags: Vec::new(),
            profiles: folder.join("auth-profiles.json"),
        }
    }
}

/// Settings that passed the table.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    /// Keys that nobody knows.
    pub unknown: Vec<Unknown>,
    /// Keys that were set and do nothing.
    pub inert: Vec<InertUse>,
    /// Settings that were changed for safety, in words.
    pub notices: Vec<String>,
    layers: Vec<Layer>,
}

/// Reads all sources and checks them.
///
/// # Errors
///
/// [`SettingsError`]: all values that are not allowed at once.
pub fn load(given: Sources) -> Result<Loaded, SettingsError> {
    let file = Layer::file(given.file.clone(), given.file_asked)?;
    let services = given.variables.clone();
    let variables = Layer::environment(given.variables.into_iter());
    let mut flags = Layer::empty(Origin::Flags);
    for (path, value) in given.flags {
        flags.set(path, &value.into());
    }
    let holds_keys = file.holds_keys();
    let mut layers = vec![file, variables, flags];
    let mut notices = environment::unread_variables(&services);
    notices.retain(|notice| !derived::reads(&layers, notice));
    let put_in = |layer: &mut Layer| layer.put_in(&services);
    layers.iter_mut().for_each(put_in);
    let used = derived::lay_profile(&mut layers, &given.profiles)?;
    let is_kept = |layer: &&mut Layer| matches!(layer.origin(), Origin::Profiles(_));
    layers.iter_mut().filter(is_kept).for_each(put_in);
    layers.insert(0, derived::service_variables(&layers, &services));
    let mut loaded = Loaded::new(layers)?;
    let open = [
        readable_by_others(&given.file).filter(|_| holds_keys),
        readable_by_others(&given.profiles),
    ];
    loaded
        .notices
        .extend(used.into_iter().chain(open.into_iter().flatten()));
    loaded.notices.append(&mut notices);
    loaded.notices.extend(loaded.config.missing_skills());
    Ok(loaded)
}

/// Returns what to say of a file or folder that holds keys, or what was said, if others may read it.
pub fn readable_by_others(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    let wanted = if metadata.is_dir() { 700 } else { 600 };
    (metadata.permissions().mode() & 0o044 != 0).then(|| {
        let path = path.display();
        format!("others may read {path}, which is private: `chmod {wanted} {path}`")
    })
}

// === impl Loaded ===

impl Loaded {
    /// Lays layers over each other, the last on top.
    ///
    /// # Errors
    ///
    /// [`SettingsError`]: all values that are not allowed at once.
    pub fn new(mut layers: Vec<Layer>) -> Result<Self, SettingsError> {
        layers.insert(0, derived::addresses(&layers));
        if let Some(mode) = derived::mode(&layers) {
            layers.insert(0, mode);
        }
        derived::refuse_unknown_providers(&mut layers);
        let mut problems = Vec::new();
        let (mut unknown, mut inert) = (Vec::new(), Vec::new());
        for layer in &mut layers {
            problems.append(&mut layer.problems);
            unknown.append(&mut layer.unknown);
            inert.append(&mut layer.inert);
        }
        if !problems.is_empty() {
            return Err(SettingsError::Values(problems));
        }
        let tree = read::laid_on(Map::new().into(), &layers);
        let config = Config {
            gateway: read::read(&tree, &layers)?,
            learner: read::read(&tree, &layers)?,
            ..read::read(&tree, &layers)?
        };
        let mut loaded = Self {
            config,
            unknown,
            inert,
            notices: Vec::new(),
            layers,
        };
        loaded.require_key_beyond_loopback()?;
        loaded.require_key_of_judge();
        loaded.require_folder_of_memories()?;
        Ok(loaded)
    }

    /// Checks what single values cannot say.
    ///
    /// # Errors
    ///
    /// In the words of the crate that refuses.
    pub fn check(&self) -> anyhow::Result<()> {
        let config = &self.config;
        config.gateway.check()?;
        config.turns.check()?;
        config.learner.rl.check()?;
        Rules::compile(&config.learner.judge.rules)?;
        Ok(())
    }

    /// Where a key was set; none means its default stands.
    pub fn origin(&self, path: &str) -> Option<&Origin> {
        self.set_at(path).map(|(origin, _)| origin)
    }

    fn set_at(&self, path: &str) -> Option<(&Origin, &Value)> {
        let mut layers = self.layers.iter().rev();
        layers.find_map(|layer| Some((layer.origin(), layer.values().get(path)?)))
    }
}

/// What `start` would say of a file with this text; none where it would start.
fn refusal(text: &str) -> Option<String> {
    let layer = match Layer::text("config.yaml".into(), text) {
        Ok(layer) => layer,
        Err(error) => return Some(error.to_string()),
    };
    let checked = Loaded::new(vec![layer])
        .map_err(anyhow::Error::from)
        .and_then(|loaded| loaded.check());
    checked.err().map(|error| error.to_string())
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
