//! Reads a file entry by entry. An error names the line, the key, the value and what is allowed.

use std::{
    collections::BTreeMap,
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    str::FromStr,
};

use metaclaw_chat::{AgentId, Span, excerpt, regular};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::{
    EpisodeProgram, JudgeSource, RewardSource, RolloutFile, RolloutFileError, VerifiersProgram,
    folder, keys,
};
use crate::{address::HttpAddress, sandbox::SandboxChoice, tracks::Track};

/// The most letters of an unknown key that may differ from a known one: a third.
const LETTERS_PER_ERROR: usize = 3;

pub(super) struct FileEntries {
    path: PathBuf,
    entries: BTreeMap<String, Spanned<Value>>,
}

// === impl RolloutFile ===

impl RolloutFile {
    /// Reads a file. `verifiers` is the value of `--verifiers`, which stands above the file's.
    ///
    /// # Errors
    /// [`RolloutFileError`].
    pub fn read(path: &Path, verifiers: Option<&str>) -> Result<Self, RolloutFileError> {
        let text = regular(path).and_then(fs::read_to_string);
        let text = text.map_err(|source| RolloutFileError::Read {
            path: path.to_owned(),
            source,
        })?;
        FileEntries::parse(path, &text)?.file(verifiers)
    }
}

// === impl FileEntries ===

impl FileEntries {
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, RolloutFileError> {
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
        let known = |key: &String| keys().any(|(name, _)| name == key);
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

    pub(super) fn file(mut self, verifiers: Option<&str>) -> Result<RolloutFile, RolloutFileError> {
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

fn allowed(key: &str) -> &'static str {
    let known = keys().find(|(name, _)| *name == key);
    known.map_or("", |(_, allowed)| allowed)
}

fn nearest(given: &str) -> String {
    let distance = |name: &str| strsim::damerau_levenshtein(name, given);
    let best = keys().map(|(name, _)| (distance(name), name)).min();
    match best {
        Some((distance, name)) if distance <= given.len().div_ceil(LETTERS_PER_ERROR) => {
            format!(": did you mean {name}?")
        }
        _ => {
            let names: Vec<&str> = keys().map(|(name, _)| name).collect();
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
