//! Typed access to a JSON object. Errors name the file, the field, the value and the allowed values.

use std::path::{Path, PathBuf};

use metaclaw_trainer_text::regular;
use serde_json::{Map, Value};

use super::error::ModelConfigError;

/// Sizes beyond this are typing errors or attacks; products of three still fit an `i64`.
pub(super) const LARGEST: i64 = 1 << 20;

pub(super) struct ConfigFields {
    file: PathBuf,
    /// The prefix of field names in errors: `rope_scaling.`.
    prefix: String,
    map: Map<String, Value>,
}

impl ConfigFields {
    pub(super) fn read(file: &Path) -> Result<Self, ModelConfigError> {
        let read = regular(file).and_then(std::fs::read_to_string);
        let text = read.map_err(|source| ModelConfigError::Read {
            file: file.to_owned(),
            source,
        })?;
        let json = serde_json::from_str(&text).map_err(|error| ModelConfigError::Json {
            file: file.to_owned(),
            detail: error.to_string(),
        })?;
        Self::from_value(file, json)
    }

    pub(super) fn from_value(file: &Path, json: Value) -> Result<Self, ModelConfigError> {
        match json {
            Value::Object(map) => Ok(Self {
                file: file.to_owned(),
                prefix: String::new(),
                map,
            }),
            other => Err(ModelConfigError::Json {
                file: file.to_owned(),
                detail: format!("it holds {}", shorten(&other.to_string())),
            }),
        }
    }

    /// The value, with `null` read as absent, as HF writers mean it.
    fn get(&self, name: &str) -> Option<&Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Whether config.json contains the field `name`, even if its value is `null`.
    pub(super) fn is_written(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// Sets the fields that config.json does not contain.
    pub(super) fn fill_in(&mut self, defaults: Value) {
        if let Value::Object(defaults) = defaults {
            for (name, value) in defaults {
                self.map.entry(name).or_insert(value);
            }
        }
    }

    /// Takes some fields of another object, where that has them.
    pub(super) fn take_from(&mut self, other: &Self, names: &[&str]) {
        for name in names {
            if let Some(value) = other.get(name) {
                self.map.insert((*name).to_owned(), value.clone());
            }
        }
    }

    pub(super) fn wrong(&self, name: &str, allowed: &str) -> ModelConfigError {
        self.wrong_because(name, None, allowed)
    }

    /// As [`Self::wrong`], with the reason why the value is not supported.
    pub(super) fn wrong_because(
        &self,
        name: &str,
        reason: Option<&str>,
        allowed: &str,
    ) -> ModelConfigError {
        let value = self
            .get(name)
            .map_or_else(|| "missing".into(), |v| shorten(&v.to_string()));
        ModelConfigError::Field {
            file: self.file.clone(),
            field: format!("{}{name}", self.prefix),
            value: match reason {
                Some(reason) => format!("{value} ({reason})"),
                None => value,
            },
            allowed: allowed.into(),
        }
    }

    pub(super) fn size(&self, name: &str) -> Result<i64, ModelConfigError> {
        self.get(name)
            .and_then(Value::as_i64)
            .filter(|n| (1..=LARGEST).contains(n))
            .ok_or_else(|| self.wrong(name, &format!("a whole number from 1 to {LARGEST}")))
    }

    pub(super) fn size_or(&self, name: &str, default: i64) -> Result<i64, ModelConfigError> {
        if self.has(name) {
            self.size(name)
        } else {
            Ok(default)
        }
    }

    /// A whole number that may be 0.
    pub(super) fn count_or(&self, name: &str, default: i64) -> Result<usize, ModelConfigError> {
        let value = self.get(name).map_or(Some(default), Value::as_i64);
        let count = value.filter(|n| (0..=LARGEST).contains(n));
        count
            .and_then(|n| usize::try_from(n).ok())
            .ok_or_else(|| self.wrong(name, &format!("a whole number from 0 to {LARGEST}")))
    }

    pub(super) fn positive(
        &self,
        name: &str,
        default: Option<f64>,
    ) -> Result<f64, ModelConfigError> {
        match (self.get(name), default) {
            (None, Some(default)) => Ok(default),
            (value, _) => value
                .and_then(Value::as_f64)
                .filter(|x| x.is_finite() && *x > 0.0)
                .ok_or_else(|| self.wrong(name, "a number above 0")),
        }
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, ModelConfigError> {
        match self.get(name) {
            None => Ok(default),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| self.wrong(name, "true or false")),
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, ModelConfigError> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => value
                .as_str()
                .map(Some)
                .ok_or_else(|| self.wrong(name, "a string")),
        }
    }

    /// A list of strings.
    pub(super) fn texts(&self, name: &str) -> Result<Option<Vec<String>>, ModelConfigError> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        match self.get(name) {
            None => Ok(None),
            Some(value) => value
                .as_array()
                .and_then(|list| list.iter().map(text).collect::<Option<_>>())
                .map(Some)
                .ok_or_else(|| self.wrong(name, "a list of strings")),
        }
    }

    /// Whether any of its values is an object.
    pub(super) fn has_objects(&self) -> bool {
        self.map.values().any(Value::is_object)
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<Self>, ModelConfigError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Self {
                file: self.file.clone(),
                prefix: format!("{}{name}.", self.prefix),
                map: map.clone(),
            })),
            Some(_) => Err(self.wrong(name, "an object")),
        }
    }

    /// One id or a list of ids. A missing field is an empty list.
    pub(super) fn ids(&self, name: &str) -> Result<Vec<u32>, ModelConfigError> {
        let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = match self.get(name) {
            None => Some(Vec::new()),
            Some(Value::Array(list)) => list.iter().map(one).collect(),
            Some(value) => one(value).map(|id| vec![id]),
        };
        ids.ok_or_else(|| self.wrong(name, "a token id or a list of token ids"))
    }
}

fn shorten(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
