//! The agents whose files are changed key by key. Each is a row of `data/agents.yaml`, which explains its columns.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use metaclaw_chat::{AgentId, Secret, substituted};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    format::Format,
    found::Api,
    keys::{KeyToSet, ValueToSet},
    openclaw,
    outcome::WiringError,
    settings::{FileSettings, Settings},
    surroundings::Surroundings,
    target::Target,
};

mod quirks;

/// The id of OpenClaw. Its keys depend on what it asks today, so that `openclaw.rs` says them.
pub const OPENCLAW: &str = "openclaw";

/// All agents of `data/agents.yaml`, in the order of the documentation.
pub static PROFILES: LazyLock<Vec<AgentProfile>> = LazyLock::new(|| {
    let rows = Format::Yaml.values(include_str!("../data/agents.yaml"));
    serde_json::from_value(rows.unwrap_or_default()).unwrap_or_default()
});

/// An agent: where its settings are, and which keys make it use the proxy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentProfile {
    /// The name on the command line, for example `codex`.
    pub id: String,
    /// The name as its makers write it, for example `Claude Code`.
    pub name: String,
    /// The name that it sends to the proxy, if that is another than `id`.
    caller: Option<String>,
    /// Whether it remembers facts by itself.
    #[serde(default)]
    keeps_memory: bool,
    programs: Vec<String>,
    folder: Vec<String>,
    traces: Vec<Vec<String>>,
    pub(crate) files: Vec<FileRow>,
    #[serde(default)]
    notes: Vec<String>,
    pub(crate) today: Option<TodayRow>,
    pub(crate) credential: Option<String>,
    /// The model that the agent uses if the proxy does not answer.
    pub fallback: String,
    /// How the proxy distinguishes the agent's conversations.
    pub session: String,
    /// Which requests the proxy recognises as not written by the owner.
    pub side_calls: String,
    /// When a change takes effect.
    pub takes_effect: String,
    /// The package and version that was tested.
    pub tested: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileRow {
    pub(crate) path: Vec<String>,
    pub(crate) format: Format,
    keys: Vec<KeyRow>,
}

/// Places where the agent's settings are. The first one that says something counts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TodayRow {
    #[serde(default)]
    pub(crate) unless: Vec<String>,
    #[serde(default)]
    pub(crate) provider: Vec<String>,
    pub(crate) address: Vec<String>,
    #[serde(default)]
    pub(crate) address_of: BTreeMap<String, Vec<String>>,
    pub(crate) api: Option<Api>,
    #[serde(default)]
    pub(crate) model: Vec<String>,
    #[serde(default)]
    pub(crate) key: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct KeyRow {
    when: Option<String>,
    #[serde(default)]
    name: String,
    #[serde(flatten)]
    value: ValueToSet,
}

/// Returns the profile whose [`AgentProfile::id`] is `id`.
pub fn profile(id: &str) -> Option<&'static AgentProfile> {
    PROFILES.iter().find(|agent| agent.id == id)
}

/// Returns the agents that remember facts by themselves, by the names that they send to the proxy.
pub fn remembering() -> impl Iterator<Item = AgentId> {
    let agents = PROFILES.iter().filter(|agent| agent.keeps_memory);
    agents.filter_map(|agent| agent.caller().parse().ok())
}

// === impl Surroundings ===

impl Surroundings {
    /// Returns whether this machine has the agent: its program, or files that it writes when it is used.
    pub fn has(&self, agent: &AgentProfile) -> bool {
        let mut programs = agent.programs.iter();
        let mut traces = agent.traces.iter();
        programs.any(|program| self.has_program(program))
            || traces.any(|names| self.place(Path::new(""), names).exists())
            || agent.id == OPENCLAW && openclaw::config_file(self).is_some()
    }
}

// === impl AgentProfile ===

impl AgentProfile {
    /// Returns the name that the agent sends to the proxy.
    pub fn caller(&self) -> &str {
        self.caller.as_deref().unwrap_or(&self.id)
    }

    pub(crate) fn folder(&self, surroundings: &Surroundings) -> PathBuf {
        surroundings.place(Path::new(""), &self.folder)
    }

    /// Returns the keys that make the agent use `target`.
    ///
    /// # Errors
    ///
    /// Returns [`WiringError`] if a file cannot be read, or if no model name is known.
    pub fn settings(
        &self,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Settings, WiringError> {
        let folder = self.folder(surroundings);
        let files = self.files.iter().map(|row| FileSettings {
            path: surroundings.place(&folder, &row.path),
            format: row.format,
            keys_to_set: Vec::new(),
        });
        let mut settings = Settings {
            files: files.collect(),
            asks: None,
            own_key: None,
            notes: Vec::new(),
        };
        let has_key = target.key.is_some() || target.has_provider_key;
        if let Some(credential) = self.credential.as_ref().filter(|_| !has_key) {
            let upstream = target.upstream.as_deref().unwrap_or("its upstream");
            settings.notes.push(format!(
                "MetaClaw passes {credential} on to {upstream}, and adds no key of its own"
            ));
        }
        let mut words = json!({
            "id": self.id,
            "origin": target.origin,
            "chat": target.base_url(Api::OpenaiCompletions),
            "key": target.shown_key(),
            "experimental_bearer_token": target.key.as_ref().map(Secret::expose),
            "sufficient_key": has_key.then(|| target.shown_key()),
            "env_key": (!has_key).then_some("OPENAI_API_KEY"),
        });
        if self.id == OPENCLAW {
            openclaw::entry::add(surroundings, target, &mut settings)?;
        }
        quirks::add(&self.id, target, &mut words, &mut settings)?;
        for (row, file) in self.files.iter().zip(&mut settings.files) {
            let keys_to_set = row.keys.iter().filter_map(|key| key.filled(&words));
            file.keys_to_set = keys_to_set.collect();
        }
        settings.files.retain(|file| !file.keys_to_set.is_empty());
        settings.notes.extend(self.notes.iter().cloned());
        Ok(settings)
    }
}

// === impl KeyRow ===

impl KeyRow {
    fn filled(&self, words: &Value) -> Option<KeyToSet> {
        if self.when.as_ref().is_some_and(|word| words[word].is_null()) {
            return None;
        }
        let value = match &self.value {
            ValueToSet::Is(value) => ValueToSet::Is(filled(value, words)?),
            ValueToSet::Own(value) => ValueToSet::Own(filled(value, words)?),
            ValueToSet::First(item) => ValueToSet::First(filled(item, words)?),
            ValueToSet::Model(models) => ValueToSet::Model(models.clone()),
        };
        let names = self.name.split('.').filter(|name| !name.is_empty());
        Some(KeyToSet {
            path: names.map(str::to_owned).collect(),
            value,
        })
    }
}

/// Returns a value with each `${word}` replaced, or `None` if the value is a single word that has no value.
fn filled(template: &Value, words: &Value) -> Option<Value> {
    let text = |text: &str| substituted(text, |word| words[word].as_str().map(str::to_owned));
    Some(match template {
        Value::String(whole) => {
            let word = whole
                .strip_prefix("${")
                .and_then(|rest| rest.strip_suffix('}'));
            match word {
                Some(word) => Some(words[word].clone()).filter(|value| !value.is_null())?,
                None => json!(text(whole)),
            }
        }
        Value::Array(items) => items
            .iter()
            .filter_map(|item| filled(item, words))
            .collect(),
        Value::Object(fields) => {
            let field =
                |(name, value): (&String, &Value)| Some((text(name), filled(value, words)?));
            Value::Object(fields.iter().filter_map(field).collect())
        }
        other => other.clone(),
    })
}
