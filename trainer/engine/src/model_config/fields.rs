//! Typed access to a JSON object. Errors name the file, the field, the value and the allowed values.

use std::path::{Path, PathBuf};

use metaclaw_trainer_text::{ModelFileError, regular};
use serde_json::{Map, Value};

/// Sizes beyond this are typing errors or attacks; products of three still fit an `i64`.
pub(super) const LARGEST: i64 = 1 << 20;

pub(super) type Result<T, E = ModelFileError> = std::result::Result<T, E>;

pub(super) struct ConfigFields {
    file: PathBuf,
    /// The prefix of field names in errors: `rope_scaling.`.
    prefix: String,
    map: Map<String, Value>,
}

impl ConfigFields {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let read = regular(file).and_then(std::fs::read_to_string);
        let text = read.map_err(ModelFileError::reading(file))?;
        let read = serde_json::from_str(&text);
        let json = read.map_err(|error| ModelFileError::no_object(file, error));
        Self::from_value(file, json?)
    }

    pub(super) fn from_value(file: &Path, json: Value) -> Result<Self> {
        let Value::Object(map) = json else {
            let detail = format!("it holds {}", shorten(&json.to_string()));
            return Err(ModelFileError::no_object(file, detail));
        };
        let (file, prefix) = (file.to_owned(), String::new());
        Ok(Self { file, prefix, map })
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

    pub(super) fn fill_in(&mut self, defaults: Value) {
        if let Value::Object(defaults) = defaults {
            for (name, value) in defaults {
                self.map.entry(name).or_insert(value);
            }
        }
    }

    /// Removes a field here and in the object `within`.
    pub(super) fn forget(&mut self, name: &str, within: &str) {
        self.map.remove(name);
        if let Some(Value::Object(inner)) = self.map.get_mut(within) {
            inner.remove(name);
        }
    }

    pub(super) fn take_from(&mut self, other: &Self, names: &[&str]) {
        for name in names {
            if let Some(value) = other.get(name) {
                self.map.insert((*name).to_owned(), value.clone());
            }
        }
    }

    pub(super) fn wrong(&self, name: &str, allowed: &str) -> ModelFileError {
        self.wrong_because(name, None, allowed)
    }

    pub(super) fn wrong_because(
        &self,
        name: &str,
        reason: Option<&str>,
        allowed: &str,
    ) -> ModelFileError {
        let value = self.get(name);
        let found = value.map_or_else(|| "missing".into(), |value| shorten(&value.to_string()));
        let value = match reason {
            Some(reason) => format!("{found} ({reason})"),
            None => found,
        };
        let field = format!("{}{name}", self.prefix);
        ModelFileError::unsupported(&self.file, field, value, allowed)
    }

    fn read_as<'a, T>(
        &'a self,
        name: &str,
        allowed: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let wrong = || self.wrong(name, allowed);
        read(value).map(Some).ok_or_else(wrong)
    }

    fn whole(&self, name: &str, least: i64) -> Result<Option<i64>> {
        let allowed = format!("a whole number from {least} to {LARGEST}");
        let is_allowed = |n: &i64| (least..=LARGEST).contains(n);
        self.read_as(name, &allowed, |value| value.as_i64().filter(is_allowed))
    }

    pub(super) fn size(&self, name: &str) -> Result<i64> {
        let missing = || self.wrong(name, &format!("a whole number from 1 to {LARGEST}"));
        self.whole(name, 1)?.ok_or_else(missing)
    }

    pub(super) fn size_or(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.whole(name, 1)?.unwrap_or(default))
    }

    /// A whole number that may be 0.
    pub(super) fn count_or(&self, name: &str, default: i64) -> Result<usize> {
        let count = self.whole(name, 0)?.unwrap_or(default);
        Ok(usize::try_from(count).unwrap_or(0))
    }

    pub(super) fn positive(&self, name: &str, default: Option<f64>) -> Result<f64> {
        const ALLOWED: &str = "a number above 0";
        let is_positive = |x: &f64| x.is_finite() && *x > 0.0;
        let given = self.read_as(name, ALLOWED, |value| value.as_f64().filter(is_positive))?;
        given.or(default).ok_or_else(|| self.wrong(name, ALLOWED))
    }

    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool> {
        let given = self.read_as(name, "true or false", Value::as_bool)?;
        Ok(given.unwrap_or(default))
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&str>> {
        self.read_as(name, "a string", Value::as_str)
    }

    pub(super) fn texts(&self, name: &str) -> Result<Option<Vec<String>>> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        self.read_as(name, "a list of strings", |value| {
            value.as_array()?.iter().map(text).collect()
        })
    }

    pub(super) fn has_objects(&self) -> bool {
        self.map.values().any(Value::is_object)
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<Self>> {
        self.read_as(name, "an object", |value| {
            Some(Self {
                file: self.file.clone(),
                prefix: format!("{}{name}.", self.prefix),
                map: value.as_object()?.clone(),
            })
        })
    }

    /// One id or a list of ids. A missing field is an empty list.
    pub(super) fn ids(&self, name: &str) -> Result<Vec<u32>> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let given = self.read_as(
            name,
            "a token id or a list of token ids",
            |value| match value {
                Value::Array(list) => list.iter().map(id).collect(),
                value => id(value).map(|id| vec![id]),
            },
        )?;
        Ok(given.unwrap_or_default())
    }
}

fn shorten(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
