//! The settings in force, key by key, for `config show` and `config get`.

use metaclaw_chat::Secret;
use serde::Serialize;
use serde_json::Value;

use super::{
    Loaded,
    key::{Key, KeyState},
    table, unsupported_keys, yaml,
};

/// One key that has an effect, with the value in force.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effective {
    pub key: String,
    /// The value; null if there is none, masked if it is a secret.
    pub value: Value,
    /// The source of the value; `None` means the default.
    pub origin: Option<String>,
}

// === impl Loaded ===

impl Loaded {
    /// Returns every key that has an effect, in the order of the table.
    pub fn effective(&self) -> Vec<Effective> {
        table::working()
            .flat_map(|key| self.paths(key).into_iter().map(|path| self.one(key, &path)))
            .collect()
    }

    /// Returns where a key occurs: at its own path, or under each name that people chose.
    fn paths(&self, key: &Key) -> Vec<String> {
        if !key.path.contains('*') {
            return vec![key.path.clone()];
        }
        let set = self.layers.iter().flat_map(|layer| layer.values().keys());
        let mut paths: Vec<String> = set.filter(|path| key.is_at(path)).cloned().collect();
        paths.sort();
        paths.dedup();
        paths
    }

    /// Returns the value of one key, by its own or an older name.
    ///
    /// # Errors
    ///
    /// Returns a message if the key is unknown or has no effect.
    pub fn get(&self, path: &str) -> Result<Effective, String> {
        let key = table::find(path).ok_or_else(|| unknown(path))?;
        match &key.state {
            KeyState::Works => Ok(self.one(key, path)),
            KeyState::SameAs(target) => self.get(target),
            KeyState::WithoutEffect(reason) | KeyState::Refused(reason) => {
                Err(format!("{path} has no value in force: {reason}"))
            }
        }
    }

    fn one(&self, key: &Key, path: &str) -> Effective {
        let (origin, value) = match self.set_at(path) {
            Some((origin, value)) => (Some(origin.to_string()), value.clone()),
            None => (None, yaml::value(&key.default).unwrap_or_default()),
        };
        Effective {
            key: path.to_owned(),
            value: masked(key, value),
            origin,
        }
    }
}

fn masked(key: &Key, value: Value) -> Value {
    match (&key.kind, value) {
        (kind, Value::String(text)) if kind.is_secret() => Secret::from(text).to_string().into(),
        (kind, Value::Array(keys)) if kind.is_secret() => {
            keys.into_iter().map(|each| masked(key, each)).collect()
        }
        (_, value) => value,
    }
}

/// Returns the message about an unknown key.
pub(crate) fn unknown(path: &str) -> String {
    if let Some(reason) = unsupported_keys::reason(path) {
        return format!("{path} is no key here: {reason}");
    }
    match table::nearest(path) {
        Some(nearest) => format!("unknown key {path}: did you mean {nearest}?"),
        None => format!("unknown key {path}: `metaclaw config show` lists all"),
    }
}

/// Returns one value in one line.
pub fn one_line(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns why setting a key has no effect; `None` if it has one, or has another name that has one.
pub fn unbuilt(path: &str) -> Option<&'static str> {
    match &table::find(path)?.state {
        KeyState::WithoutEffect(reason) | KeyState::Refused(reason) => Some(reason),
        KeyState::Works | KeyState::SameAs(_) => None,
    }
}
