//! A home of the Python MetaClaw, as it is found.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use metaclaw_chat::AgentId;
use metaclaw_settings::adopt;

use crate::home::Home;

/// Files of which a home of the Python MetaClaw has at least one.
const SIGNS: [&str; 4] = ["config.yaml", "skills", "auth-profiles.json", "memory"];
/// Files that only a home of this program has.
const OURS: [&str; 3] = ["metaclaw.lock", "turns", "wiring"];
/// OpenClaw's own name for its first agent.
const OPENCLAWS: &str = "main";

/// What is migrated, and how.
#[derive(Debug, Clone)]
pub struct MigrationRequest {
    /// The old home.
    pub from: PathBuf,
    /// More folders of records; the Python MetaClaw wrote them into the folder in which it was started.
    pub records: Vec<PathBuf>,
    /// More folders with adapters, as a training server's checkpoint folder.
    pub adapters: Vec<PathBuf>,
    /// The agent that records and adapters belong to, where nothing says whose they are.
    pub agent: Option<AgentId>,
    /// Whether only the report is made, and nothing is written.
    pub dry_run: bool,
}

/// Why a folder is not migrated. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum OldHomeError {
    #[error("cannot read {}: {source}", dir.display())]
    Read { dir: PathBuf, source: io::Error },
    #[error(
        "{} is no home of the Python MetaClaw: it has none of {}", dir.display(), SIGNS.join(", ")
    )]
    Foreign { dir: PathBuf },
    #[error(
        "{dir} is this program's own home folder, and nothing is migrated onto itself. Either move the old home away and migrate it from there (`mv {dir} {dir}-python`, then `metaclaw migrate {dir}-python`), or name a new home: `metaclaw --home DIR migrate {dir}`",
        dir = dir.display()
    )]
    Itself { dir: PathBuf },
    #[error(
        "{dir} is already a home of this program, and works as it is: `metaclaw --home {dir} start`",
        dir = dir.display()
    )]
    Ours { dir: PathBuf },
    #[error("a proxy runs in {}: `metaclaw stop` first", dir.display())]
    Runs { dir: PathBuf },
}

/// The old home with what its settings say about other places.
#[derive(Debug)]
pub(super) struct OldHome {
    pub(super) dir: PathBuf,
    /// All texts of its config.yaml, by dotted path.
    pub(super) texts: BTreeMap<String, String>,
    /// Folders of records.
    pub(super) records: Vec<PathBuf>,
    /// Folders in which adapters may be, with the agent that they belong to.
    pub(super) adapters: Vec<(AgentId, PathBuf)>,
    /// The agent of what names none.
    pub(super) agent: AgentId,
}

// === impl OldHome ===

impl OldHome {
    /// Opens the home that is to be migrated into `home`.
    ///
    /// # Errors
    /// [`OldHomeError`]; a config.yaml that is not YAML.
    pub(super) fn open(request: &MigrationRequest, home: &Home) -> anyhow::Result<Self> {
        let dir = std::fs::canonicalize(&request.from).map_err(|source| OldHomeError::Read {
            dir: request.from.clone(),
            source,
        })?;
        if OURS.iter().any(|name| dir.join(name).exists()) {
            return Err(OldHomeError::Ours { dir }.into());
        }
        if dir == real(home.dir()) {
            return Err(OldHomeError::Itself { dir }.into());
        }
        if !SIGNS.iter().any(|name| dir.join(name).exists()) {
            return Err(OldHomeError::Foreign { dir }.into());
        }
        if home.holder()?.is_some() {
            let dir = home.dir().to_owned();
            return Err(OldHomeError::Runs { dir }.into());
        }
        let config = dir.join("config.yaml");
        let texts = if config.exists() {
            adopt::texts(&config)?
        } else {
            BTreeMap::new()
        };
        let agent = match (&request.agent, texts.get("claw_type").map(String::as_str)) {
            (Some(agent), _) => agent.clone(),
            (None, None | Some("openclaw")) => OPENCLAWS.parse()?,
            (None, Some(_)) => AgentId::default_agent(),
        };
        let mut old = Self {
            records: vec![dir.join("records")],
            adapters: vec![(agent.clone(), dir.join("adapters"))],
            dir,
            texts,
            agent,
        };
        old.records.extend(request.records.iter().cloned());
        let named = request.adapters.iter().cloned();
        let agent = old.agent.clone();
        old.adapters.extend(named.map(|dir| (agent.clone(), dir)));
        let of_agents = old.of_agents("lora_output");
        old.adapters.extend(of_agents);
        Ok(old)
    }

    /// Returns the folders that a key of each agent names, as `agents.ana.skills_dir`.
    pub(super) fn of_agents(&self, key: &str) -> Vec<(AgentId, PathBuf)> {
        let texts = self.texts.iter();
        let named = texts.filter_map(|(path, text)| {
            let agent = path.strip_prefix("agents.")?;
            let agent = agent.strip_suffix(key)?.strip_suffix('.')?;
            Some((agent.parse().ok()?, self.place(text)))
        });
        named.collect()
    }

    /// Returns the folder that a text of the settings names.
    pub(super) fn place(&self, text: &str) -> PathBuf {
        match text.strip_prefix("~/") {
            Some(below) => metaclaw_settings::address::user_folder().join(below),
            None => self.dir.join(Path::new(text)),
        }
    }
}

/// A path without links, where it exists.
pub(super) fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
