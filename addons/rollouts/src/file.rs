//! `FILE.yaml`: which program is run on which tasks, how often, and what rewards it.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use metaclaw_chat::{AgentId, Span};
use serde::Deserialize;
use serde_json::Value;

use crate::{address::HttpAddress, tracks::Track};

mod entries;

/// Returns every key with the values that it allows.
pub(crate) fn keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("../data/keys.txt").lines();
    let rows = lines.filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| row.split_once(": "))
}

/// What is run, read and checked. Paths are absolute or start at the working folder.
#[derive(Debug, Clone)]
pub struct RolloutFile {
    pub path: PathBuf,
    /// The agent whose turns the episodes' turns are, and whose weights learn from them.
    pub agent: AgentId,
    pub tasks: Option<PathBuf>,
    pub eval_tasks: Option<PathBuf>,
    /// What is run for an episode. `None` if only `environments` run programs.
    pub program: Option<EpisodeProgram>,
    /// Variables that the program gets beside those of the episode.
    pub env: BTreeMap<String, String>,
    /// The addresses of `metaclaw rollout serve`. If there are any, no program runs here.
    pub environments: Vec<HttpAddress>,
    /// The address at which programs reach the proxy, if it is not the one that the proxy gives.
    pub proxy_url: Option<HttpAddress>,
    pub reward: RewardSource,
    /// The least score of an episode that counts as a success.
    pub success_at: f64,
    pub group_size: u32,
    pub tasks_per_step: usize,
    /// How many episodes run at the same time.
    pub at_once: usize,
    pub timeout: Span,
    pub max_turns: Option<u32>,
    /// How many training steps are made; without a number, as many as use each task once.
    pub steps: Option<u64>,
    /// How many groups of a step may be replaced because all their rewards are equal.
    pub resample: usize,
    /// After how many steps the held-out tasks are run; without a number, never.
    pub eval_every: Option<u64>,
    /// How often each held-out task is run then.
    pub eval_tries: u32,
    /// What keeps the commands of a track apart from this machine, by its name.
    pub sandbox: String,
    /// The seed of the order of tasks.
    pub seed: u64,
}

/// The program of an episode.
#[derive(Debug, Clone, PartialEq)]
pub enum EpisodeProgram {
    /// These words are run.
    Command(Vec<String>),
    /// `sh -c` runs this text.
    Shell(String),
    /// A program that MetaClaw brings.
    Track(Track),
    /// An environment of the Python package `verifiers`.
    Verifiers(VerifiersProgram),
}

/// An environment of the Python package `verifiers`.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifiersProgram {
    pub environment: String,
    /// Arguments of `load_environment`.
    pub arguments: serde_json::Map<String, Value>,
    pub python: PathBuf,
}

/// What gives an episode its reward.
#[derive(Debug, Clone, PartialEq)]
pub enum RewardSource {
    /// 1 if the program ends with code 0, else 0.
    ExitCode,
    /// The program writes `{"score": x, "steps": [..]}` to the file that METACLAW_REWARD names.
    File,
    /// A reward function answers over HTTP.
    Function(FunctionSource),
    /// The judge of config.yaml.
    Judge,
    /// Another chat model.
    JudgeModel(JudgeSource),
}

/// A reward function.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionSource {
    pub url: HttpAddress,
    /// The environment variable with its key.
    pub key_env: Option<String>,
    #[serde(default = "a_minute")]
    pub timeout: Span,
}

/// A chat model that judges episodes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgeSource {
    /// The base URL of an OpenAI-compatible server, as in `http://127.0.0.1:8000/v1`.
    pub base_url: HttpAddress,
    pub model: String,
    /// The environment variable with its key.
    pub key_env: Option<String>,
    /// What counts as success, in place of the task's own text.
    pub instructions: Option<String>,
    #[serde(default = "a_minute")]
    pub timeout: Span,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RolloutFileError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not YAML: {message}", path.display())]
    Yaml { path: PathBuf, message: String },
    #[error("{}, line {line}: unknown key {key}{nearest}", path.display())]
    Unknown {
        path: PathBuf,
        line: u64,
        key: String,
        /// Names the most similar key, or all keys.
        nearest: String,
    },
    #[error("{}, line {line}: {key}: {given} is not allowed: {allowed}", path.display())]
    Field {
        path: PathBuf,
        line: u64,
        key: &'static str,
        given: String,
        allowed: String,
    },
    #[error("{}: {message}", path.display())]
    Missing { path: PathBuf, message: String },
}

const fn a_minute() -> Span {
    Span::mins(1)
}

// === impl RolloutFile ===

impl RolloutFile {
    /// The folder in which programs run, and at which paths of the file begin.
    pub fn folder(&self) -> &Path {
        folder(&self.path)
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests;
