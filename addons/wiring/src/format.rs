//! The formats of agents' files. A file is read as values and edited in place, so that comments, order, quotes and
//! unknown keys stay. Each edited text is parsed again, and refused if anything else has changed.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    document::{PlaceError, named},
    tree,
};

mod env;
mod json;
mod toml;
mod yaml;

pub(crate) use self::env::pairs;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// JSON with comments, and everything else that JSON5 allows.
    Json,
    Toml,
    /// YAML with one document.
    Yaml,
    /// Lines of `NAME=value`.
    Env,
    /// One line of text, which is the only value of the file.
    Line,
}

// === impl Format ===

impl Format {
    pub(crate) fn values(self, text: &str) -> Result<Value, PlaceError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        match self {
            Self::Json => json::values(text),
            Self::Toml => toml::values(text),
            Self::Yaml => yaml::values(text),
            Self::Env => env::values(text),
            Self::Line => Ok(match text.trim_end() {
                "" => Value::Null,
                line => json!(line),
            }),
        }
    }

    pub(crate) fn set(
        self,
        text: &str,
        path: &[String],
        value: &Value,
    ) -> Result<String, PlaceError> {
        let mut wanted = self.values(text)?;
        if !tree::set(&mut wanted, path, value.clone()) {
            return Err(PlaceError::NoObject(named(path)));
        }
        self.edited(text, &wanted, |text| match self {
            Self::Json => json::set(text, path, value),
            Self::Toml => toml::set(text, path, value),
            Self::Yaml => yaml::set(text, path, value),
            Self::Env => env::set(text, path, value),
            Self::Line => Ok(format!("{}\n", value.as_str().unwrap_or_default())),
        })
    }

    pub(crate) fn remove(self, text: &str, path: &[String]) -> Result<String, PlaceError> {
        let mut wanted = self.values(text)?;
        if !tree::has(&wanted, path) {
            return Ok(text.to_owned());
        }
        if path.is_empty() {
            return Ok(String::new());
        }
        tree::remove(&mut wanted, path);
        self.edited(text, &wanted, |text| match self {
            Self::Json => json::remove(text, path),
            Self::Toml => toml::remove(text, path),
            Self::Yaml => yaml::remove(text, path),
            Self::Env => env::remove(text, path),
            Self::Line => Ok(String::new()),
        })
    }

    pub(crate) fn insert(
        self,
        text: &str,
        path: &[String],
        item: &Value,
    ) -> Result<String, PlaceError> {
        let mut wanted = self.values(text)?;
        if is_vacant(tree::get(&wanted, path)) {
            return self.set(text, path, &json!([item]));
        }
        let list = tree::list_mut(&mut wanted, path);
        let list = list.ok_or_else(|| PlaceError::NoList(named(path)))?;
        list.insert(0, item.clone());
        self.edited(text, &wanted, |text| match self {
            Self::Json => json::insert(text, path, item),
            Self::Yaml => yaml::insert(text, path, item),
            Self::Toml | Self::Env | Self::Line => Err(PlaceError::Beyond),
        })
    }

    pub(crate) fn remove_item(
        self,
        text: &str,
        path: &[String],
        index: usize,
    ) -> Result<String, PlaceError> {
        let mut wanted = self.values(text)?;
        let list = tree::list_mut(&mut wanted, path).filter(|it| index < it.len());
        let list = list.ok_or_else(|| PlaceError::NoList(named(path)))?;
        list.remove(index);
        if list.is_empty() {
            return self.set(text, path, &json!([]));
        }
        self.edited(text, &wanted, |text| match self {
            Self::Json => json::remove_item(text, path, index),
            Self::Yaml => yaml::remove_item(text, path, index),
            Self::Toml | Self::Env | Self::Line => Err(PlaceError::Beyond),
        })
    }

    /// Returns the text after `edit`, if it has the wanted values. Line ends stay the same.
    fn edited(
        self,
        text: &str,
        wanted: &Value,
        edit: impl FnOnce(&str) -> Result<String, PlaceError>,
    ) -> Result<String, PlaceError> {
        let (mark, body) = match text.strip_prefix('\u{feff}') {
            Some(body) => ("\u{feff}", body),
            None => ("", text),
        };
        let is_crlf =
            body.contains("\r\n") && body.matches('\n').count() == body.matches("\r\n").count();
        let mut after = if is_crlf {
            edit(&body.replace("\r\n", "\n"))?.replace('\n', "\r\n")
        } else {
            edit(body)?
        };
        after.insert_str(0, mark);
        let now = self.values(&after)?;
        // A table of tables has no line of its own in TOML, so that an empty one is none.
        let is_right = match self {
            Self::Toml => tree::without_empty(&now) == tree::without_empty(wanted),
            _ => tree::is_same(&now, wanted),
        };
        if is_right {
            Ok(after)
        } else {
            Err(PlaceError::Beyond)
        }
    }
}

fn is_vacant(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests;
