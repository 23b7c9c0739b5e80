//! One source of settings, checked against the table of keys: the file, the environment, the flags.
//!
//! A layer contains only known keys in their normal form; wrong, unknown and ineffective keys are recorded beside it.
//! Layers are laid over each other, the last on top.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use metaclaw_chat::{Secret, if_there};
use metaclaw_skills::read_text;
use serde_json::{Map, Value};

use crate::address::user_folder;

use super::{
    environment::{self, ENV_PREFIX},
    error::{InertUse, Problem, SettingsError, Unknown},
    key::{Key, KeyState},
    kind::{self, ValueForm, ValueKind},
    model_name, table, unsupported_keys, yaml,
};

pub(crate) const MAX_FILE: u64 = 4 << 20;
/// The key that `metaclaw auth` may keep.
const LLM_KEY: &str = "llm.api_key";
/// What a name means: a file, or a name at a server.
const MODEL: &str = "rl.model";

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum Origin {
    #[display("{}", _0.display())]
    File(PathBuf),
    #[display("the environment")]
    Environment,
    #[display("the command line")]
    Flags,
    /// The values that `llm.provider` stands for.
    #[display("llm.provider")]
    Provider,
    /// The value that an older key stands for.
    Key(&'static str),
    /// The profiles that `metaclaw auth` keeps.
    #[display("{}", _0.display())]
    Profiles(PathBuf),
}

/// The known keys of one source in their normal form, and what else was found there.
#[derive(Debug, Clone)]
pub struct Layer {
    origin: Origin,
    values: BTreeMap<String, Value>,
    /// Unknown keys.
    pub unknown: Vec<Unknown>,
    /// Keys that were set and have no effect.
    pub inert: Vec<InertUse>,
    /// Values that are not allowed.
    pub problems: Vec<Problem>,
}

// === impl Layer ===

impl Layer {
    /// Creates a source without a value.
    pub fn empty(origin: Origin) -> Self {
        Self {
            origin,
            values: BTreeMap::new(),
            unknown: Vec::new(),
            inert: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Reads a file. One that is not there is empty, unless it was `asked` for by name.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Read`], and as [`Self::text`].
    pub fn file(path: PathBuf, asked: bool) -> Result<Self, SettingsError> {
        let text = if asked {
            read_text(&path, MAX_FILE)
        } else {
            text_or_none(&path)
        };
        let text = text.map_err(SettingsError::unread(&path))?;
        Self::text(path, &text)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Yaml`].
    pub fn text(path: PathBuf, text: &str) -> Result<Self, SettingsError> {
        let is_text = |path: &str| table::find(path).is_some_and(|key| key.kind.is_text());
        let root = match yaml::parse(text, &is_text) {
            Ok(Value::Null) => Ok(Map::new()),
            Ok(Value::Object(root)) => Ok(root),
            Ok(_) => Err("the whole of it must be keys with values".to_owned()),
            Err(message) => Err(message),
        };
        match root {
            Ok(root) => {
                let mut layer = Self::empty(Origin::File(path));
                layer.walk("", &root);
                Ok(layer)
            }
            Err(message) => Err(SettingsError::Yaml { path, message }),
        }
    }

    /// Reads environment variables: `METACLAW__RL__BATCH_SIZE` is `rl.batch_size`.
    pub fn environment(variables: impl Iterator<Item = (String, String)>) -> Self {
        let mut layer = Self::empty(Origin::Environment);
        // An empty variable is one that was left out: Docker and systemd set those of a list without a value.
        for (name, text) in variables.filter(|(_, text)| !text.trim().is_empty()) {
            if let Some(path) = name.strip_prefix(ENV_PREFIX) {
                layer.set(&path.to_lowercase().replace("__", "."), &text.into());
            }
        }
        layer
    }

    pub(crate) fn put_in(&mut self, variables: &[(String, String)]) {
        for (path, before) in self.values.clone() {
            let key = table::find(&path).filter(|key| key.kind.may_name_variables());
            let Some(key) = key else { continue };
            let put_in = |text: &Value| {
                environment::put_in(text.as_str().unwrap_or_default(), variables).map(Value::from)
            };
            let whole: Result<Value, String> = match &before {
                Value::Array(items) => items.iter().map(put_in).collect(),
                one => put_in(one),
            };
            let own = environment::variable_of(&path);
            let auth = if path == LLM_KEY {
                ", or keep the key with `metaclaw auth`"
            } else {
                ""
            };
            match whole {
                Ok(text) => match key.kind.parse(&text) {
                    Some(value) if value == "" => {
                        self.values.remove(&path);
                    }
                    Some(value) => {
                        let value = self.resolved(key, &path, value);
                        self.insert(&path, value);
                    }
                    None => self.problem(&path, &shown(key, &before), key.allowed()),
                },
                Err(why) => {
                    let reason = format!("{why}: set it, or set {own}{auth}");
                    self.problem(&path, &shown(key, &before), reason);
                }
            }
        }
    }

    /// Takes one value for one key. An unknown key is walked through if one of the keys below it belongs to another system,
    /// so that each is answered by its own name.
    pub fn set(&mut self, path: &str, value: &Value) {
        match (table::find(path), value) {
            (_, Value::Null) => {}
            (Some(key), _) => self.set_known(key, path, value),
            (None, Value::Object(below))
                if table::is_section(path) || is_answered_below(path, below) =>
            {
                self.walk(path, below);
            }
            (None, _) if table::is_section(path) => {
                self.problem(path, "", "keys with values stand below this one".to_owned());
            }
            (None, _) => self.set_unknown(path, value),
        }
    }

    fn set_unknown(&mut self, path: &str, value: &Value) {
        let given = text_or_tree(value);
        if let Some(reason) = unsupported_keys::refusal(path, &given) {
            self.problem(path, &given, reason.to_owned());
        } else if let Some(reason) = unsupported_keys::reason(path) {
            self.inert(path, reason);
        } else {
            self.unknown.push(Unknown {
                key: path.to_owned(),
                origin: self.origin.to_string(),
                nearest: match value {
                    Value::Object(_) => table::nearest_section(path),
                    _ => table::nearest(path),
                },
            });
        }
    }

    pub fn values(&self) -> &BTreeMap<String, Value> {
        &self.values
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns whether any part of it is never shown in full.
    pub fn holds_keys(&self) -> bool {
        let mut keys = self.values.keys().filter_map(|path| table::find(path));
        keys.any(|key| key.kind.is_secret())
    }

    fn walk(&mut self, prefix: &str, below: &Map<String, Value>) {
        for (name, value) in below {
            let path = if prefix.is_empty() {
                name.clone()
            } else {
                format!("{prefix}.{name}")
            };
            self.set(&path, value);
        }
    }

    fn set_known(&mut self, key: &'static Key, path: &str, value: &Value) {
        let Some(read) = key.kind.parse(value) else {
            let blank = value.as_str().is_some_and(|text| text.trim().is_empty());
            // The Python original wrote "" where nothing was chosen. A key that controls access deserves a warning.
            if blank && key.path == "proxy.api_key" && matches!(self.origin, Origin::File(_)) {
                self.inert(path, "it is empty, so callers of this machine need no key, and others cannot come in");
            } else if !(blank && key.may_be_blank()) {
                self.problem(path, &shown(key, value), key.allowed());
            }
            return;
        };
        if read == "" {
            return;
        }
        match key.state_of(read.as_str().unwrap_or_default()) {
            KeyState::Works => {
                let resolved = self.resolved(key, path, read);
                self.insert(path, resolved);
            }
            // A setting that is off and has no effect needs no warning.
            KeyState::WithoutEffect(_) if read == false => {}
            KeyState::WithoutEffect(reason) => self.inert(path, reason),
            KeyState::Refused(reason) => {
                self.problem(path, &shown(key, value), reason.clone());
            }
            KeyState::SameAs(target) if key.state != KeyState::Works => {
                let resolved = self.resolved(key, path, read);
                self.values.entry(target.clone()).or_insert(resolved);
            }
            KeyState::SameAs(word) => self.insert(path, word.as_str().into()),
        }
    }

    fn resolved(&self, key: &Key, path: &str, value: Value) -> Value {
        match (&key.kind, &value) {
            // Its variable is put in first.
            (_, Value::String(given)) if given.contains("${") => value,
            (ValueKind::One(ValueForm::Path), Value::String(given)) => {
                // Servers with Tinker's API have models of one word.
                let is_word = path == MODEL && model_name::is_word(given);
                self.resolve(given, is_word || model_name::is_name(Path::new(given)))
                    .into()
            }
            (ValueKind::List(ValueForm::Calendar, _), Value::Array(given)) => {
                let places = given.iter().filter_map(Value::as_str);
                let is_address = |place: &str| place.contains("://") || place.starts_with("${");
                let full = |place| {
                    if is_address(place) {
                        place.to_owned()
                    } else {
                        self.resolve(place, false)
                    }
                };
                places.map(full).collect()
            }
            _ => value,
        }
    }

    /// Returns the full path: `~/` is the user's home, and a relative path starts at the folder of the file that names
    /// it. `demo` is a name and no path, and so is what may be a model's name, unless such a file or folder is there.
    fn resolve(&self, given: &str, may_be_name: bool) -> String {
        let path = if let Ok(below) = Path::new(given).strip_prefix("~") {
            user_folder().join(below)
        } else if let Origin::File(file) = &self.origin
            && given != "demo"
        {
            // An absolute path is joined to nothing.
            file.with_file_name("").join(given)
        } else {
            return given.to_owned();
        };
        if may_be_name && !path.exists() {
            given.to_owned()
        } else {
            path.to_string_lossy().into_owned()
        }
    }

    fn inert(&mut self, key: &str, reason: &'static str) {
        self.inert.push(InertUse {
            key: key.to_owned(),
            reason,
        });
    }

    fn insert(&mut self, path: &str, value: Value) {
        self.values.insert(path.to_owned(), value);
    }

    pub(crate) fn problem(&mut self, key: &str, given: &str, reason: String) {
        self.problems.push(Problem {
            key: key.to_owned(),
            origin: self.origin.to_string(),
            given: given.to_owned(),
            reason,
        });
    }
}

/// Reads the text of a file, which is empty if there is no file.
pub(crate) fn text_or_none(path: &Path) -> io::Result<String> {
    Ok(if_there(read_text(path, MAX_FILE))?.unwrap_or_default())
}

fn is_answered_below(path: &str, below: &Map<String, Value>) -> bool {
    below.iter().any(|(name, value)| {
        let path = format!("{path}.{name}");
        match value {
            Value::Object(below) if !below.is_empty() => is_answered_below(&path, below),
            _ => unsupported_keys::reason(&path).is_some(),
        }
    })
}

/// Returns a value in a form that a message may contain.
fn shown(key: &Key, value: &Value) -> String {
    let one = |value: &Value| {
        let text = text_or_tree(value);
        if key.kind.is_secret() {
            Secret::from(text).to_string()
        } else {
            text
        }
    };
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(one).collect();
            format!("[{}]", items.join(", "))
        }
        value => one(value),
    }
}

fn text_or_tree(value: &Value) -> String {
    kind::text(value).unwrap_or_else(|| "a tree".to_owned())
}

#[cfg(test)]
mod tests;
