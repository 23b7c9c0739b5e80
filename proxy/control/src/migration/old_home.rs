//! A home of the Python MetaClaw, as it is found.

use std::{
    collections::BTreeMap,
    fs::{self, DirEntry},
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use metaclaw_chat::AgentId;
use metaclaw_settings::adopt;

use crate::home::Home;

/// Files of which a home of the Python MetaClaw has at least one.
const SIGNS: [&str; 4] = ["config.yaml", "skills", "auth-profiles.json", "memory"];
const OURS: [&str; 3] = ["metaclaw.lock", "turns", "wiring"];
/// OpenClaw's own name for its first agent.
const OPENCLAWS: &str = "main";

/// What is migrated, and how.
#[derive(Debug, Clone)]
pub struct MigrationRequest {
    /// The old home.
    pub from: PathBuf,
    /// More folders with adapters, as a training server's checkpoint folder.
    pub adapters: Vec<PathBuf>,
    /// The agent of adapters whose agent is not known otherwise.
    pub agent: Option<AgentId>,
    /// Whether only the report is made, and nothing is written.
    pub dry_run: bool,
}

#[derive(Debug)]
pub(super) struct OldHome {
    pub(super) dir: PathBuf,
    /// All texts of its config.yaml, by dotted path.
    pub(super) texts: BTreeMap<String, String>,
    pub(super) adapters: Vec<(AgentId, PathBuf)>,
}

// === impl OldHome ===

impl OldHome {
    /// Opens the home that is to be migrated into `home`.
    ///
    /// # Errors
    /// Says why the folder is not migrated. Nothing was written.
    pub(super) fn open(request: &MigrationRequest, home: &Home) -> anyhow::Result<Self> {
        let from = &request.from;
        let opened = fs::canonicalize(from);
        let dir = opened.with_context(|| format!("cannot read {}", from.display()))?;
        let shown = dir.display();
        let has_one_of = |names: &[&str]| names.iter().any(|name| dir.join(name).exists());
        ensure!(
            !has_one_of(&OURS),
            "{shown} is already a home of this program, and works as it is: `metaclaw --home {shown} start`"
        );
        ensure!(
            dir != real(home.dir()),
            "{shown} is this program's own home folder, and nothing is migrated onto itself. Either move the old home away and migrate it from there (`mv {shown} {shown}-python`, then `metaclaw migrate {shown}-python`), or name a new home: `metaclaw --home DIR migrate {shown}`"
        );
        ensure!(
            has_one_of(&SIGNS),
            "{shown} is no home of the Python MetaClaw: it has none of {}",
            SIGNS.join(", ")
        );
        ensure!(
            home.holder()?.is_none(),
            "a proxy runs in {}: `metaclaw stop` first",
            home.dir().display()
        );
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
        let unnamed = std::iter::once(dir.join("adapters")).chain(request.adapters.iter().cloned());
        let mut old = Self {
            adapters: unnamed.map(|folder| (agent.clone(), folder)).collect(),
            dir,
            texts,
        };
        let named = old.folders_of_agents("lora_output");
        old.adapters.extend(named);
        Ok(old)
    }

    pub(super) fn folders_of_agents(&self, key: &str) -> Vec<(AgentId, PathBuf)> {
        let named = self.texts.iter().filter_map(|(path, text)| {
            let agent = path.strip_prefix("agents.")?;
            let agent = agent.strip_suffix(key)?.strip_suffix('.')?;
            Some((agent.parse().ok()?, self.place(text)))
        });
        named.collect()
    }

    pub(super) fn place(&self, text: &str) -> PathBuf {
        match text.strip_prefix("~/") {
            Some(below) => metaclaw_settings::address::user_folder().join(below),
            None => self.dir.join(text),
        }
    }
}

/// Returns a path with its links resolved, or the path itself if it does not exist.
pub(super) fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

pub(super) fn entry_names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    let name = |entry: &DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = entries.iter().map(name).collect();
    names.sort();
    Ok(names)
}
