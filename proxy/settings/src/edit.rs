//! `config set`: changes one value in the file, and keeps every comment and other line.

use std::{collections::BTreeMap, io, path::Path, str::FromStr};

use serde_json::Value;
use yaml_edit::{
    Document,
    path::{PathError, YamlPath},
};

use super::{
    Layer, Origin,
    key::{Key, KeyState},
    layer::text_or_none,
    refusal, show, table,
};
use metaclaw_skills::write_private;

mod comment;

const BEYOND: &str = "its layout is beyond the editor";

/// Why a value was not set. The file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The key is unknown.
    #[error("{0}")]
    Unknown(String),
    /// The value is not allowed.
    #[error("{key}: {given:?} is not allowed: {allowed}")]
    Value {
        key: String,
        given: String,
        /// What is allowed, or why this value is not.
        allowed: String,
    },
    /// The value is allowed, but a start with it would be refused.
    #[error("{0}")]
    Refused(String),
    /// The file cannot be edited.
    #[error("cannot change {key} in the file: {message}; edit it by hand")]
    Edit { key: String, message: String },
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The key that was set: the new name if an older one was given.
    pub key: &'static str,
    /// Why the key has no effect, if it has none.
    pub note: Option<&'static str>,
}

/// Sets a key in the file, which is created if it does not exist.
///
/// # Errors
///
/// Returns [`EditError`]; the file is then unchanged.
pub fn set_in_file(path: &Path, key: &str, given: &str) -> Result<Edited, EditError> {
    change(path, |before| set(before, key, given))
}

/// Sets several keys in the file at once.
///
/// # Errors
///
/// Returns [`EditError`]; the file is then unchanged.
pub fn set_all_in_file(path: &Path, keys: &[(String, String)]) -> Result<(), EditError> {
    change(path, |before| {
        let mut text = before.to_owned();
        for (key, given) in keys {
            text = set(&text, key, given)?.0;
        }
        Ok((text, ()))
    })
}

/// Sets several keys with a comment above each new one; removes keys without a value.
///
/// # Errors
///
/// Returns [`EditError`]; the file is then unchanged.
pub fn answer_in_file(path: &Path, keys: &[(String, Option<String>)]) -> Result<(), EditError> {
    change(path, |before| {
        let mut text = before.to_owned();
        for (key, given) in keys {
            text = match given {
                Some(given) => set(&text, key, given)?.0,
                None => remove(&text, key)?,
            };
        }
        let old = values(before).map_err(unchanged("keys"))?;
        let new = keys.iter().filter(|(key, _)| !old.contains_key(key));
        Ok((new.fold(text, |text, (key, _)| commented(text, key)), ()))
    })
}

/// Removes a key or a section from the file; returns whether it was there.
///
/// # Errors
///
/// Returns [`EditError`]; the file is then unchanged.
pub fn unset_in_file(path: &Path, key: &str) -> Result<bool, EditError> {
    change(path, |before| {
        let document = Document::from_str(before);
        if document.is_ok_and(|document| document.try_get_path(key).is_ok()) {
            Ok((remove(before, key)?, true))
        } else {
            Ok((before.to_owned(), false))
        }
    })
}

/// Removes a section with all its keys from the file, even if a start is refused without it.
///
/// # Errors
///
/// Returns [`EditError`]; the file is then unchanged.
pub fn remove_in_file(path: &Path, section: &str) -> Result<(), EditError> {
    write_changed(path, |before| Ok((remove(before, section)?, ())))
}

fn change<T>(
    path: &Path,
    edit: impl FnOnce(&str) -> Result<(String, T), EditError>,
) -> Result<T, EditError> {
    write_changed(path, |before| {
        let (after, changed) = edit(before)?;
        check_start(before, &after)?;
        Ok((after, changed))
    })
}

fn write_changed<T>(
    path: &Path,
    edit: impl FnOnce(&str) -> Result<(String, T), EditError>,
) -> Result<T, EditError> {
    let io_error = |source| EditError::Io {
        path: path.display().to_string(),
        source,
    };
    let before = text_or_none(path).map_err(io_error)?;
    let (after, changed) = edit(&before)?;
    if after != before {
        write_private(path, after.as_bytes()).map_err(io_error)?;
    }
    Ok(changed)
}

/// Checks that a start with the new text works, or did not work with the old one either, because a person repairs a file
/// line by line.
fn check_start(before: &str, after: &str) -> Result<(), EditError> {
    match refusal(after) {
        Some(why) if refusal(before).is_none() => Err(EditError::Refused(why)),
        _ => Ok(()),
    }
}

fn commented(text: String, key: &str) -> String {
    let meaning = table::find(key).map_or("", |key| &*key.help);
    comment::above(&text, key, meaning)
        .filter(|commented| values(commented) == values(&text))
        .unwrap_or(text)
}

/// Returns the text with a new key in its normal form, and a comment above it.
///
/// # Errors
///
/// Returns [`EditError`] if a start with the key would be refused.
pub(super) fn added(before: &str, key: &str, value: &Value) -> Result<String, EditError> {
    let after = write(before, key, value, true)?;
    check_start(before, &after)?;
    Ok(commented(after, key))
}

fn unchanged(key: &str) -> impl FnOnce(String) -> EditError {
    let key = key.to_owned();
    |message| EditError::Edit { key, message }
}

pub(super) fn set(before: &str, path: &str, given: &str) -> Result<(String, Edited), EditError> {
    let asked = table::find(path).ok_or_else(|| EditError::Unknown(show::unknown(path)))?;
    let (key, target) = match &asked.state {
        KeyState::SameAs(target) => (table::find(target).unwrap_or(asked), target.as_str()),
        KeyState::Works | KeyState::WithoutEffect(_) | KeyState::Refused(_) => (asked, path),
    };
    let (value, note) = check(key, target, given)?;
    let after = write(before, target, &value, note.is_none())?;
    let key = &key.path;
    Ok((after, Edited { key, note }))
}

/// Returns a value as it would be written, if the key allows it.
///
/// # Errors
///
/// Returns [`EditError`] with what is allowed.
pub fn allowed(path: &str, given: &str) -> Result<String, EditError> {
    let key = table::find(path).ok_or_else(|| EditError::Unknown(show::unknown(path)))?;
    check(key, path, given)?;
    Ok(given.trim().to_owned())
}

/// Returns the value in its normal form, and why it has no effect if so.
fn check(
    key: &'static Key,
    path: &str,
    given: &str,
) -> Result<(Value, Option<&'static str>), EditError> {
    let refuse = |allowed: String| EditError::Value {
        key: path.to_owned(),
        given: given.to_owned(),
        allowed,
    };
    let value = key.kind.parse(&Value::from(given));
    let value = value.ok_or_else(|| refuse(key.allowed()))?;
    match key.state_of(value.as_str().unwrap_or_default()) {
        KeyState::Refused(reason) => Err(refuse(reason.clone())),
        KeyState::WithoutEffect(reason) => Ok((value, Some(reason))),
        KeyState::SameAs(word) if key.state == KeyState::Works => Ok((word.as_str().into(), None)),
        KeyState::Works | KeyState::SameAs(_) => Ok((value, None)),
    }
}

/// Changes the text and reads it again, to check that nothing else changed.
fn write(before: &str, path: &str, value: &Value, works: bool) -> Result<String, EditError> {
    let rewritten = || {
        let document = Document::from_str(before).map_err(|error| error.to_string())?;
        put(&document, path, value).map_err(|error| error.to_string())?;
        let after = ended(document.to_string());
        let (mut old, mut new) = (values(before)?, values(&after)?);
        old.remove(path);
        let (wanted, written) = (read(path, value), new.remove(path));
        let is_meant = wanted.is_some() == works && written == wanted && old == new;
        is_meant.then_some(after).ok_or_else(|| BEYOND.to_owned())
    };
    rewritten().map_err(unchanged(path))
}

fn remove(before: &str, section: &str) -> Result<String, EditError> {
    let rewritten = || {
        let document = Document::from_str(before).map_err(|error| error.to_string())?;
        let removed = document.try_remove_path(section);
        removed.map_err(|error| error.to_string())?;
        let after = ended(document.to_string());
        let mut old = values(before)?;
        let target = match table::find(section).map(|key| &key.state) {
            Some(KeyState::SameAs(target)) => target.as_str(),
            _ => section,
        };
        old.retain(|path, _| path != target && !path.starts_with(&format!("{section}.")));
        let is_meant = old == values(&after)?;
        is_meant.then_some(after).ok_or_else(|| BEYOND.to_owned())
    };
    rewritten().map_err(unchanged(section))
}

fn values(text: &str) -> Result<BTreeMap<String, Value>, String> {
    let layer = Layer::text("config.yaml".into(), text).map_err(|error| error.to_string())?;
    Ok(layer.values().clone())
}

/// Returns the value as the file has it, if it has an effect.
fn read(path: &str, value: &Value) -> Option<Value> {
    let mut layer = Layer::empty(Origin::File("config.yaml".into()));
    layer.set(path, value);
    layer.values().get(path).cloned()
}

fn ended(mut text: String) -> String {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn put(document: &Document, path: &str, value: &Value) -> Result<(), PathError> {
    if let Some(text) = value.as_str() {
        return document.try_set_path(path, text);
    }
    // JSON is also YAML, in one line.
    let holder = Document::from_str(&format!("tree: {value}"));
    match holder.ok().and_then(|holder| holder.get("tree")) {
        Some(node) => document.try_set_path(path, node),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
