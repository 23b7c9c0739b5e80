//! Takes the settings of another home's file into this home's: `metaclaw migrate`.

use std::{collections::BTreeMap, io, path::Path};

use metaclaw_skills::read_text;
use serde_json::Value;

use super::{
    Layer, Loaded, SettingsError, edit,
    layer::{MAX_FILE, text_or_none},
    yaml,
};
use metaclaw_skills::write_private;

/// What Python MetaClaw listened on by default.
const EVERY_ADDRESS: &str = "0.0.0.0";

/// What becomes of a key of the other file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdoptedKey {
    /// It is written into this home's file.
    Taken,
    /// This home's file has the same value.
    Present,
    /// This home's file has another value, which stays.
    Kept,
    /// It is not taken, for this reason.
    Left(String),
}

/// The keys of the other file, by their names there, and the new text of this home's file.
#[derive(Debug)]
pub struct AdoptedSettings {
    pub keys: Vec<(String, AdoptedKey)>,
    text: String,
    changed: bool,
}

/// Decides which keys of `from` go into `to`, which need not exist. Keys in `without` stay out for the given reason, and
/// so do paths inside the folder of `from`. Nothing is written yet.
///
/// # Errors
/// [`SettingsError`] if one of the files cannot be read, or is not YAML.
pub fn adopt(
    from: &Path,
    to: &Path,
    without: &[(&str, &str)],
) -> Result<AdoptedSettings, SettingsError> {
    let old = Layer::file(from.to_owned(), true)?;
    let text = text_or_none(to).map_err(SettingsError::unread(to))?;
    let new = Layer::text(to.to_owned(), &text)?;
    let mut adopted = AdoptedSettings {
        keys: without_values(&old),
        text,
        changed: false,
    };
    let left = left(&old, from, without);
    let mut wanted = Vec::new();
    for (key, value) in old.values() {
        let outcome = match (left.get(key.as_str()), new.values().get(key)) {
            (Some(reason), _) => AdoptedKey::Left((*reason).to_owned()),
            (None, Some(own)) if own == value => AdoptedKey::Present,
            (None, Some(_)) => AdoptedKey::Kept,
            (None, None) => {
                wanted.push((key.as_str(), value));
                continue;
            }
        };
        adopted.keys.push((key.clone(), outcome));
    }
    adopted.take(wanted);
    adopted.keys.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(adopted)
}

/// Keys of the other file that have no effect here, that nobody knows, or whose values are not allowed.
fn without_values(old: &Layer) -> Vec<(String, AdoptedKey)> {
    let inert = old
        .inert
        .iter()
        .map(|inert| (&inert.key, inert.reason.to_owned()));
    let unknown = old.unknown.iter().map(|unknown| {
        let nearest = unknown.nearest.map(|key| format!("; did it mean {key}?"));
        let why = format!("there is no such key{}", nearest.unwrap_or_default());
        (&unknown.key, why)
    });
    let wrong = old.problems.iter().map(|problem| {
        let why = format!("{:?} is not allowed: {}", problem.given, problem.reason);
        (&problem.key, why)
    });
    let all = inert.chain(unknown).chain(wrong);
    all.map(|(key, why)| (key.clone(), AdoptedKey::Left(why)))
        .collect()
}

fn left<'a>(old: &Layer, from: &Path, without: &[(&str, &'a str)]) -> BTreeMap<String, &'a str> {
    let mut left = BTreeMap::new();
    let mut leave = |key: &str, why| left.insert(key.to_owned(), why);
    let home = from.with_file_name("");
    for (key, value) in old.values() {
        if value
            .as_str()
            .is_some_and(|path| Path::new(path).starts_with(&home))
        {
            leave(key, "it is a place in the old home, which stays as it is");
        }
    }
    let host = old.values().get("proxy.host").and_then(Value::as_str);
    if host == Some(EVERY_ADDRESS) && !old.values().contains_key("proxy.api_key") {
        leave(
            "proxy.host",
            "without a key nobody else is let in, so the address of this machine alone is used",
        );
    }
    // Keys that have no effect because of what else the file says.
    let mut alone = old.clone();
    alone.problems.clear();
    let loaded = Loaded::new(vec![alone]);
    let all = loaded.iter().flat_map(|loaded| &loaded.inert);
    for inert in all.filter(|inert| !old.inert.contains(inert)) {
        if inert.key == "judge.url" {
            leave("judge.model", inert.reason);
        }
        leave(&inert.key, inert.reason);
    }
    for &(key, why) in without {
        leave(key, why);
    }
    left
}

// === impl AdoptedSettings ===

impl AdoptedSettings {
    /// Writes the file, for its owner alone, if it changes.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&self, to: &Path) -> io::Result<()> {
        if self.changed {
            write_private(to, self.text.as_bytes())?;
        }
        Ok(())
    }

    /// Adds keys to the text. A key with which a start would be refused is tried again after the others, because it may
    /// need them.
    fn take(&mut self, mut wanted: Vec<(&str, &Value)>) {
        for is_last in [false, true] {
            wanted.retain(|(key, value)| {
                let outcome = match edit::added(&self.text, key, value) {
                    Ok(text) => {
                        self.text = text;
                        self.changed = true;
                        AdoptedKey::Taken
                    }
                    Err(error) if is_last => AdoptedKey::Left(error.to_string()),
                    Err(_) => return true,
                };
                self.keys.push(((*key).to_owned(), outcome));
                false
            });
        }
    }
}

/// Returns all texts of a YAML file by their dotted paths, with keys that have no effect here too.
///
/// # Errors
/// [`SettingsError`] if the file cannot be read, or is not YAML.
pub fn texts(file: &Path) -> Result<BTreeMap<String, String>, SettingsError> {
    let text = read_text(file, MAX_FILE).map_err(SettingsError::unread(file))?;
    let read = yaml::parse(&text, &|_| true).map_err(|message| SettingsError::Yaml {
        path: file.to_owned(),
        message,
    })?;
    let mut found = BTreeMap::new();
    collect("", &read, &mut found);
    Ok(found)
}

fn collect(path: &str, value: &Value, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(below) => {
            for (name, value) in below {
                let path = [path, name.as_str()].join(".");
                collect(path.trim_start_matches('.'), value, found);
            }
        }
        Value::String(text) if !text.trim().is_empty() => {
            found.insert(path.to_owned(), text.trim().to_owned());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
