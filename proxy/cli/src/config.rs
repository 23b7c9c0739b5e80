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

pub(crate) mod edit;
mod error;
pub(crate) mod example;
mod key;
mod kind;
mod layer;
mod policy;
mod sections;
mod show;
mod table;
mod yaml;

pub(crate) use self::{
    error::{ConfigError, InertUse, Problem, Unknown},
    layer::{ENV_PREFIX, Layer, Origin},
    policy::Policy,
    sections::{Agent, Backend, BackendKind, JudgeAddress, Listen, Llm, Mode, Trainer, Upstream},
    show::{Effective, one_line},
};

/// Where settings come from.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub file: PathBuf,
    /// Whether it was named; one that was not may be missing.
    pub file_asked: bool,
    /// Variables of the environment.
    pub variables: Vec<(String, String)>,
    /// `--port` and `--mode`, dotted.
    pub flags: Vec<(&'static str, String)>,
}

/// What the command itself reads.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    /// Whether the weights learn, and when.
    pub mode: Mode,
    /// The agent that may be pointed at the proxy; `none`: never one.
    pub claw_type: Option<String>,
    /// The model that answers where no policy model does.
    pub llm: Llm,
    /// Where a judge model is.
    pub judge: JudgeAddress,
    /// Where callers come in.
    pub proxy: Listen,
    /// The trainer's dialect and address.
    pub rl: Backend,
    pub trainer: Trainer,
    /// Model servers beside `llm.*`.
    pub upstreams: BTreeMap<String, Upstream>,
    /// What is different for single agents.
    pub agents: BTreeMap<String, Agent>,
}

/// Settings that passed the table.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
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
pub(crate) fn load(sources: Sources) -> Result<Loaded, ConfigError> {
    let file = Layer::file(sources.file.clone(), sources.file_asked)?;
    let variables = Layer::environment(sources.variables.into_iter());
    let mut flags = Layer::empty(Origin::Flags);
    for (path, value) in sources.flags {
        flags.set(path, &Value::from(value));
    }
    let path = sources.file;
    let mut loaded = Loaded::new(vec![file, variables, flags])?;
    loaded.notices.extend(readable_keys(&path, &loaded));
    Ok(loaded)
}

/// What to say of a file that holds keys and that others may read.
fn readable_keys(path: &Path, loaded: &Loaded) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    let file = loaded.layers.first()?;
    let mut keys = file.values().keys().filter_map(|path| table::find(path));
    let holds_keys = keys.any(|key| key.kind.is_secret());
    (mode & 0o044 != 0 && holds_keys).then(|| {
        let path = path.display();
        format!("{path} holds keys and others may read it: `chmod 600 {path}`")
    })
}

// === impl Config ===

impl Config {
    /// Whether an agent may be pointed at the proxy, once its owner said yes.
    pub(crate) fn wires_agent(&self) -> bool {
        self.claw_type.as_deref().is_none_or(|it| it == "openclaw")
    }

    /// Whether any agent is in `mode`, or all are.
    pub(crate) fn has_mode(&self, mode: Mode) -> bool {
        let own = self.agents.values().filter_map(|agent| agent.mode);
        own.chain([self.mode]).any(|it| it == mode)
    }
}

// === impl Loaded ===

impl Loaded {
    /// Lays layers over each other, the last on top.
    pub(crate) fn new(mut layers: Vec<Layer>) -> Result<Self, ConfigError> {
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
        Ok(loaded)
    }

    /// The settings of one room, as its own struct reads them from the whole tree.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Room`] when a value passed the table and the room still refuses it.
    pub(crate) fn room<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        extract(&self.merged)
    }

    /// One part of the tree; its defaults where nothing of it was set.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Room`] as for [`Self::room`].
    pub(crate) fn section<T: DeserializeOwned + Default>(
        &self,
        name: &str,
    ) -> Result<T, ConfigError> {
        if self.merged.contains(name) {
            self.merged.extract_inner(name).map_err(refused)
        } else {
            Ok(T::default())
        }
    }

    /// Where a key was set; none means its default stands.
    pub(crate) fn origin(&self, path: &str) -> Option<&Origin> {
        let holder = self.layers.iter().rev();
        holder
            .into_iter()
            .find(|layer| layer.values().contains_key(path))
            .map(Layer::origin)
    }

    /// Nobody listens to the world without a key.
    ///
    /// The original's default was 0.0.0.0 and stands in every file that it wrote, so that one
    /// address is taken back to this machine; any other was meant, and is refused.
    fn require_key_beyond_loopback(&mut self) -> Result<(), ConfigError> {
        let listen = &mut self.config.proxy;
        if listen.host.is_loopback() || listen.requires_key() {
            return Ok(());
        }
        if listen.host.is_unspecified() && listen.host.is_ipv4() {
            listen.host = std::net::Ipv4Addr::LOCALHOST.into();
            self.notices
                .push("proxy.host 0.0.0.0 without a key: listening on 127.0.0.1 only".to_owned());
            return Ok(());
        }
        let given = listen.host.to_string();
        Err(ConfigError::Values(vec![Problem {
            key: "proxy.host".to_owned(),
            origin: self
                .origin("proxy.host")
                .map_or_else(|| "the defaults".to_owned(), ToString::to_string),
            given,
            reason: "without a key, 127.0.0.1 or ::1; set proxy.api_key, or make one with `metaclaw keys add`, to be reached from elsewhere"
                .to_owned(),
        }]))
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
