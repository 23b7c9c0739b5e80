//! `FILE.yaml`: which program is run on which tasks, how often, and what rewards it.

use std::{
    collections::BTreeMap,
    fs, io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    str::FromStr,
};

use metaclaw_chat::{AgentId, Span, excerpt};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use serde_saphyr::Spanned;

use crate::{address::HttpAddress, sandbox::SandboxChoice, tracks::Track};

/// The most letters of an unknown key that may differ from a known one: a third.
const LETTERS_PER_ERROR: usize = 3;

/// Every key with the values that it allows. docs/training/rollouts.md describes them.
pub const KEYS: [(&str, &str); 25] = [
    ("agent", "the name of an agent, as in `writer`"),
    ("tasks", "the path of a JSONL file"),
    ("eval_tasks", "the path of a JSONL file"),
    (
        "command",
        "a list of words, as in `[python3, agent.py]`, or with `shell: true` a text",
    ),
    ("shell", "true or false"),
    ("env", "names and texts, as in `{LANG: C}`"),
    ("track", "one of terminal, toolcall, swe, gui"),
    ("verifiers", "the name of an environment that is installed"),
    (
        "verifiers_args",
        "arguments of its load_environment, by name",
    ),
    (
        "python",
        "the path of a Python that has the package verifiers",
    ),
    (
        "environments",
        "a list of addresses of `metaclaw rollout serve`, as in `[http://10.0.0.7:30100]`",
    ),
    (
        "proxy_url",
        "the address at which programs reach the proxy, as in `http://10.0.0.5:30000`",
    ),
    (
        "reward",
        "exit_code, file, judge, {url: ADDRESS}, or {judge: {base_url: ADDRESS, model: NAME}}",
    ),
    ("success_at", "a number from -1 to 1"),
    ("group_size", "a whole number from 2 to 256"),
    ("tasks_per_step", "a whole number from 1 to 1024"),
    ("at_once", "a whole number from 1 to 1024"),
    ("timeout", "a duration from 1 s to 23 h, as in `5 min`"),
    ("max_turns", "a whole number from 1 to 1000"),
    ("steps", "a whole number from 1 to 1000000"),
    ("resample", "a whole number from 0 to 1024"),
    ("eval_every", "a whole number from 1 to 1000000"),
    ("eval_tries", "a whole number from 1 to 256"),
    ("sandbox", "one of auto, bubblewrap, podman, docker, none"),
    ("seed", "a whole number from 0 on"),
];

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
    #[serde(default)]
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
    #[serde(default)]
    pub key_env: Option<String>,
    /// What counts as success, in place of the task's own text.
    #[serde(default)]
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

/// The entries of a file that were not read yet.
struct FileEntries {
    path: PathBuf,
    entries: BTreeMap<String, Spanned<Value>>,
}

const fn a_minute() -> Span {
    Span::mins(1)
}

// === impl RolloutFile ===

impl RolloutFile {
    /// Reads a file. `verifiers` is the value of `--verifiers`, which stands above the file's.
    ///
    /// # Errors
    /// [`RolloutFileError`].
    pub fn read(path: &Path, verifiers: Option<&str>) -> Result<Self, RolloutFileError> {
        let text = fs::read_to_string(path).map_err(|source| RolloutFileError::Read {
            path: path.to_owned(),
            source,
        })?;
        let mut entries = FileEntries::parse(path, &text)?;
        if verifiers.is_some() {
            entries.entries.remove("verifiers");
        }
        entries.file(verifiers)
    }

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

// === impl FileEntries ===

impl FileEntries {
    fn parse(path: &Path, text: &str) -> Result<Self, RolloutFileError> {
        let read: Result<Option<BTreeMap<String, Spanned<Value>>>, _> =
            serde_saphyr::from_str(text);
        let entries = read.map_err(|error| {
            let message = error.to_string();
            let first = message.lines().next().unwrap_or_default();
            RolloutFileError::Yaml {
                path: path.to_owned(),
                message: first.strip_prefix("error: ").unwrap_or(first).to_owned(),
            }
        })?;
        let entries = entries.unwrap_or_default();
        let of_file = Self {
            path: path.to_owned(),
            entries,
        };
        let known = |key: &String| KEYS.iter().any(|(name, _)| name == key);
        match of_file.entries.iter().find(|(key, _)| !known(key)) {
            None => Ok(of_file),
            Some((key, entry)) => Err(RolloutFileError::Unknown {
                path: path.to_owned(),
                line: entry.defined.line(),
                key: excerpt(key).into_owned(),
                nearest: nearest(key),
            }),
        }
    }

    fn file(mut self, verifiers: Option<&str>) -> Result<RolloutFile, RolloutFileError> {
        let program = self.program(verifiers)?;
        let environments: Vec<HttpAddress> = self.take("environments")?.unwrap_or_default();
        if program.is_none() && environments.is_empty() {
            return Err(self.missing(
                "there is nothing to run: set one of command, track, verifiers, environments",
            ));
        }
        let brings_file = matches!(
            program,
            Some(EpisodeProgram::Track(_) | EpisodeProgram::Verifiers(_))
        );
        let own = if brings_file {
            RewardSource::File
        } else {
            RewardSource::ExitCode
        };
        let within = |least: Span, most: Span| move |it: &Span| (least..=most).contains(it);
        let file = RolloutFile {
            agent: self.take("agent")?.unwrap_or_else(AgentId::default_agent),
            tasks: self.file_path("tasks")?,
            eval_tasks: self.file_path("eval_tasks")?,
            program,
            env: self.take("env")?.unwrap_or_default(),
            environments,
            proxy_url: self.take("proxy_url")?,
            reward: self.reward()?.unwrap_or(own),
            success_at: self
                .checked("success_at", |it: &f64| (-1.0..=1.0).contains(it))?
                .unwrap_or(1.0),
            group_size: self.number("group_size", 2..=256)?.unwrap_or(8),
            tasks_per_step: self.number("tasks_per_step", 1..=1024)?.unwrap_or(4),
            at_once: self.number("at_once", 1..=1024)?.unwrap_or(8),
            timeout: self
                .checked("timeout", within(Span::secs(1), Span::hours(23)))?
                .unwrap_or(Span::mins(5)),
            max_turns: self.number("max_turns", 1..=1000)?,
            steps: self.number("steps", 1..=1_000_000)?,
            resample: self.number("resample", 0..=1024)?.unwrap_or(3),
            eval_every: self.number("eval_every", 1..=1_000_000)?,
            eval_tries: self.number("eval_tries", 1..=256)?.unwrap_or(1),
            sandbox: self
                .checked("sandbox", |it: &String| it.parse::<SandboxChoice>().is_ok())?
                .unwrap_or_else(|| "auto".to_owned()),
            seed: self.take("seed")?.unwrap_or(0),
            path: self.path.clone(),
        };
        if file.eval_every.is_some() && file.eval_tasks.is_none() {
            return Err(self.missing("eval_every needs eval_tasks: a JSONL file of held-out tasks"));
        }
        Ok(file)
    }

    /// The one program that the file names, if it names one.
    fn program(
        &mut self,
        verifiers: Option<&str>,
    ) -> Result<Option<EpisodeProgram>, RolloutFileError> {
        let shell: bool = self.take("shell")?.unwrap_or_default();
        let track: Option<Track> = self.parsed("track")?;
        let verifiers = match verifiers {
            Some(name) => Some(name.to_owned()),
            None => self.take("verifiers")?,
        };
        let arguments = self.take("verifiers_args")?.unwrap_or_default();
        let python = self.take::<PathBuf>("python")?;
        let command = self.command(shell)?;
        let n_given = [command.is_some(), track.is_some(), verifiers.is_some()];
        if n_given.into_iter().filter(|it| *it).count() > 1 {
            return Err(self.missing("only one of command, track, verifiers may be set"));
        }
        let python = python.unwrap_or_else(|| "python3".into());
        let verifiers = verifiers.map(|environment| {
            // A bare name is looked for in PATH.
            let is_path = python.components().count() > 1;
            EpisodeProgram::Verifiers(VerifiersProgram {
                environment,
                arguments,
                python: if is_path {
                    folder(&self.path).join(&python)
                } else {
                    python
                },
            })
        });
        let track = track.map(EpisodeProgram::Track);
        Ok(command.or(track).or(verifiers))
    }

    fn command(&mut self, shell: bool) -> Result<Option<EpisodeProgram>, RolloutFileError> {
        let is_allowed = |given: &Value| match given {
            Value::String(text) => shell && !text.trim().is_empty(),
            Value::Array(words) => !shell && !words.is_empty() && words.iter().all(is_word),
            _ => false,
        };
        let command = self.checked("command", is_allowed)?;
        Ok(command.map(|command| match command {
            Value::Array(words) => EpisodeProgram::Command(words.iter().map(word).collect()),
            other => EpisodeProgram::Shell(word(&other)),
        }))
    }

    fn reward(&mut self) -> Result<Option<RewardSource>, RolloutFileError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct JudgeEntry {
            judge: JudgeSource,
        }
        let key = "reward";
        let Some(entry) = self.entries.get(key) else {
            return Ok(None);
        };
        let line = entry.defined.line();
        let value: Value = self.take(key)?.unwrap_or_default();
        let named = match value.as_str() {
            Some("exit_code") => Some(RewardSource::ExitCode),
            Some("file") => Some(RewardSource::File),
            Some("judge") => Some(RewardSource::Judge),
            _ => None,
        };
        if named.is_some() {
            return Ok(named);
        }
        let given = shown(&value);
        let read = if value.get("url").is_some() {
            serde_json::from_value(value).map(RewardSource::Function)
        } else if value.get("judge").is_some_and(Value::is_object) {
            serde_json::from_value(value).map(|it: JudgeEntry| RewardSource::JudgeModel(it.judge))
        } else {
            return Err(self.refused(key, line, given, allowed(key).to_owned()));
        };
        let read = read.map_err(|error| {
            let allowed = format!("{error}; {}", allowed(key));
            self.refused(key, line, given, allowed)
        })?;
        Ok(Some(read))
    }

    fn file_path(&mut self, key: &'static str) -> Result<Option<PathBuf>, RolloutFileError> {
        let path: Option<PathBuf> = self.take(key)?;
        Ok(path.map(|path| folder(&self.path).join(path)))
    }

    fn number<T: DeserializeOwned + PartialOrd>(
        &mut self,
        key: &'static str,
        allowed: RangeInclusive<T>,
    ) -> Result<Option<T>, RolloutFileError> {
        self.checked(key, move |it: &T| allowed.contains(it))
    }

    /// Takes a text that has a type of its own.
    fn parsed<T: FromStr>(&mut self, key: &'static str) -> Result<Option<T>, RolloutFileError> {
        let text = self.checked(key, |text: &String| text.parse::<T>().is_ok())?;
        Ok(text.and_then(|text| text.parse().ok()))
    }

    fn take<T: DeserializeOwned>(
        &mut self,
        key: &'static str,
    ) -> Result<Option<T>, RolloutFileError> {
        self.checked(key, |_| true)
    }

    /// Takes the value of a key, if it is there, has the right type and is allowed.
    fn checked<T: DeserializeOwned>(
        &mut self,
        key: &'static str,
        is_allowed: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, RolloutFileError> {
        let Some(entry) = self.entries.remove(key) else {
            return Ok(None);
        };
        if entry.value.is_null() {
            return Ok(None);
        }
        let line = entry.defined.line();
        let given = shown(&entry.value);
        match serde_json::from_value(entry.value) {
            Ok(value) if is_allowed(&value) => Ok(Some(value)),
            _ => Err(self.refused(key, line, given, allowed(key).to_owned())),
        }
    }

    fn refused(
        &self,
        key: &'static str,
        line: u64,
        given: String,
        allowed: String,
    ) -> RolloutFileError {
        RolloutFileError::Field {
            path: self.path.clone(),
            line,
            key,
            given,
            allowed,
        }
    }

    fn missing(&self, message: &str) -> RolloutFileError {
        RolloutFileError::Missing {
            path: self.path.clone(),
            message: message.to_owned(),
        }
    }
}

/// What a key allows, in words that end an error message.
fn allowed(key: &str) -> &'static str {
    let known = KEYS.iter().find(|(name, _)| *name == key);
    known.map_or("", |(_, allowed)| allowed)
}

/// The question whether the most similar key was meant, or the list of all keys.
fn nearest(given: &str) -> String {
    let distance = |name: &str| strsim::damerau_levenshtein(name, given);
    let best = KEYS.iter().map(|(name, _)| (distance(name), name)).min();
    match best {
        Some((distance, name)) if distance <= given.len().div_ceil(LETTERS_PER_ERROR) => {
            format!(": did you mean {name}?")
        }
        _ => {
            let names: Vec<&str> = KEYS.iter().map(|(name, _)| *name).collect();
            format!(": the keys are {}", names.join(", "))
        }
    }
}

fn shown(value: &Value) -> String {
    excerpt(&value.to_string()).into_owned()
}

fn is_word(value: &Value) -> bool {
    value.is_string() || value.is_number()
}

fn word(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests;
