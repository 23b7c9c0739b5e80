//! The configuration: defaults < file < `METACLAW__RL__BATCH_SIZE` < flags.
//!
//! `table` says what there is; each source is checked against it (`layer`) before any room reads
//! its part, so that a message can name the key, the file, the value and what is allowed. Each room
//! owns the struct of its own settings and reads it from here ([`Loaded::room`]).

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use figment::{Figment, error::Kind as FigmentKind, value::Value};
use serde::{Deserialize, de::DeserializeOwned};

pub mod address;
pub mod auth_profiles;
mod cloud;
pub mod edit;
mod error;
pub mod example;
mod key;
mod kind;
mod layer;
mod model_name;
mod overrides;
mod policy;
mod private_file;
mod profiles;
pub mod providers;
mod rooms;
mod safety;
mod sections;
mod show;
mod sources;
mod table;
mod unsupported_keys;
mod variables;
mod yaml;

pub use self::{
    cloud::{Cloud, Service},
    error::{ConfigError, InertUse, Problem, Unknown},
    layer::{ENV_PREFIX, Layer, Origin},
    overrides::{key_and_value, overridden},
    policy::{Policy, without_effect},
    private_file::write_private,
    rooms::Rooms,
    sections::{
        Agent, Backend, BackendKind, Consent, Listen, Llm, Mode, ModelAddress, Opd, Routing,
        Trainer, Upstream,
    },
    show::{Effective, one_line, unbuilt},
    sources::fingerprint,
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

/// What the command itself reads.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Whether the weights learn, and when.
    pub mode: Mode,
    /// The agent that may be pointed at the proxy; `none`: never one.
    pub claw_type: Option<String>,
    /// The model that answers where no policy model does.
    pub llm: Llm,
    /// Where a judge model is.
    pub judge: ModelAddress,
    /// Where a model is that writes skills.
    pub evolver: ModelAddress,
    /// Where a model is that says how likely it finds what was sampled.
    pub opd: Opd,
    /// Where callers come in.
    pub proxy: Listen,
    /// The trainer's dialect and address.
    pub rl: Backend,
    /// Who is asked, in which order.
    pub routing: Routing,
    /// What may leave the machine.
    pub privacy: Consent,
    pub trainer: Trainer,
    /// Model servers beside `llm.*`.
    pub upstreams: BTreeMap<String, Upstream>,
    /// What is different for single agents.
    pub agents: BTreeMap<String, Agent>,
}

/// Settings that passed the table.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What the command itself reads.
    pub config: Config,
    /// Keys that nobody knows.
    pub unknown: Vec<Unknown>,
    /// Keys that were set and do nothing.
    pub inert: Vec<InertUse>,
    /// Settings that were changed for safety, in words.
    pub notices: Vec<String>,
    layers: Vec<Layer>,
    merged: Figment,
}

/// Reads all sources and checks them.
///
/// # Errors
///
/// [`ConfigError`]: all values that are not allowed at once.
pub fn load(given: Sources) -> Result<Loaded, ConfigError> {
    let file = Layer::file(given.file.clone(), given.file_asked)?;
    let misnamed = variables::misnamed_variables(&given.variables);
    let of_services = given.variables.clone();
    let variables = Layer::environment(given.variables.into_iter());
    let mut flags = Layer::empty(Origin::Flags);
    for (path, value) in given.flags {
        flags.set(path, &Value::from(value));
    }
    let holds_keys = file.holds_keys();
    let mut layers = vec![file, variables, flags];
    let used = profiles::lay(&mut layers, &given.profiles)?;
    let mut loaded = Loaded::new(layers.clone())?;
    let of_services = cloud::variables(loaded.config.rl.kind, &of_services);
    if !of_services.is_empty() {
        layers.insert(0, of_services);
        loaded = Loaded::new(layers)?;
    }
    loaded.notices.extend(used);
    loaded
        .notices
        .extend(readable_by_others(&given.file, holds_keys));
    loaded
        .notices
        .extend(readable_by_others(&given.profiles, true));
    loaded.notices.extend(misnamed);
    Ok(loaded)
}

/// What to say of a file that holds keys and that others may read.
fn readable_by_others(path: &Path, holds_keys: bool) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    (mode & 0o044 != 0 && holds_keys).then(|| {
        let path = path.display();
        format!("{path} holds keys and others may read it: `chmod 600 {path}`")
    })
}

// === impl Config ===

impl Config {
    /// Whether an agent may be pointed at the proxy, once its owner said yes.
    pub fn wires_agent(&self) -> bool {
        self.claw_type.as_deref().is_none_or(|it| it == "openclaw")
    }

    /// Whether any agent is in `mode`, or all are.
    pub fn has_mode(&self, mode: Mode) -> bool {
        let own = self.agents.values().filter_map(|agent| agent.mode);
        own.chain([self.mode]).any(|it| it == mode)
    }

    /// Whether somebody beside a policy model can answer.
    pub fn has_upstream(&self) -> bool {
        self.llm.api_base.is_some() || self.upstreams.values().any(|it| it.url.is_some())
    }
}

// === impl Loaded ===

impl Loaded {
    /// Lays layers over each other, the last on top.
    pub fn new(mut layers: Vec<Layer>) -> Result<Self, ConfigError> {
        if let Some(address) = providers::layer(&layers) {
            layers.insert(0, address);
        }
        let mut problems = Vec::new();
        let (mut unknown, mut inert) = (Vec::new(), Vec::new());
        for layer in &mut layers {
            problems.append(&mut layer.problems);
            unknown.append(&mut layer.unknown);
            inert.append(&mut layer.inert);
        }
        if !problems.is_empty() {
            return Err(ConfigError::Values(problems));
        }
        let merged = layers.iter().fold(Figment::new(), Figment::merge);
        let mut loaded = Self {
            config: extract(&merged)?,
            unknown,
            inert,
            notices: Vec::new(),
            layers,
            merged,
        };
        loaded.require_key_beyond_loopback()?;
        loaded.require_key_of_judge();
        Ok(loaded)
    }

    /// The settings of one room, as its own struct reads them from the whole tree.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Room`] when a value passed the table and the room still refuses it.
    pub fn room<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        extract(&self.merged)
    }

    /// One part of the tree; its defaults where nothing of it was set.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Room`] as for [`Self::room`].
    pub fn section<T: DeserializeOwned + Default>(&self, name: &str) -> Result<T, ConfigError> {
        if self.merged.contains(name) {
            self.merged.extract_inner(name).map_err(refused)
        } else {
            Ok(T::default())
        }
    }

    /// Where a key was set; none means its default stands.
    pub fn origin(&self, path: &str) -> Option<&Origin> {
        let holder = self.layers.iter().rev();
        holder
            .into_iter()
            .find(|layer| layer.values().contains_key(path))
            .map(Layer::origin)
    }
}

fn extract<T: DeserializeOwned>(merged: &Figment) -> Result<T, ConfigError> {
    merged.extract().map_err(refused)
}

/// Says what does not fit where.
fn refused(error: figment::Error) -> ConfigError {
    let origin = error.metadata.as_ref();
    ConfigError::Room {
        key: error.path.join("."),
        origin: origin.map_or_else(|| "the configuration".to_owned(), |it| it.name.to_string()),
        message: match error.kind {
            FigmentKind::Message(message) => message,
            FigmentKind::UnknownVariant(given, allowed) => {
                format!("{given:?} is not allowed: {}", allowed.join(", "))
            }
            other => other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests;
