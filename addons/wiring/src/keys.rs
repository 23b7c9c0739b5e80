//! Sets keys in one file of an agent, and reverts them, even if others wrote the file in the meantime.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    document::{Path, PlaceError, named},
    format::Format,
    tree,
};

const PRIMARY: &str = "primary";
const FALLBACKS: &str = "fallbacks";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeyToSet {
    pub(crate) path: Path,
    pub(crate) value: ValueToSet,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ValueToSet {
    /// The key has this value.
    Is(Value),
    /// The key belongs to MetaClaw because of its name, for example a provider called `metaclaw`. Others may add to the
    /// value.
    Own(Value),
    /// The value is a list, and this is its first item.
    First(Value),
    /// The value names a model and those that are asked where it fails: ours is asked first, the former one next.
    Model(Models),
}

/// A model through the proxy, and the one in whose place it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Models {
    /// For example `metaclaw/gpt-5.2`.
    pub ours: String,
    /// For example `openai/gpt-5.2`.
    pub former: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SetKey {
    pub(crate) key: KeyToSet,
    /// The value before, or none if the key was missing.
    before: Option<Value>,
    /// Objects above the key that were added for it, from the outside in.
    made: Vec<AddedObject>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct AddedObject {
    path: Path,
    /// Whether the key existed before with the value null.
    was_null: bool,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Reverted {
    pub(crate) text: String,
    /// Keys that somebody else changed in the meantime. They keep their values.
    pub(crate) left: Vec<String>,
}

/// Sets all keys in a text. Returns the new text, and the keys with their former values.
///
/// # Errors
///
/// Returns [`PlaceError`] if the editors cannot handle the layout, or if a name of ours is taken.
pub(crate) fn apply(
    format: Format,
    text: &str,
    keys_to_set: &[KeyToSet],
) -> Result<(String, Vec<SetKey>), PlaceError> {
    let mut after = text.to_owned();
    let mut all = Vec::new();
    for key in keys_to_set {
        let values = format.values(&after)?;
        let made = tree::missing_above(&values, &key.path).into_iter();
        let made = made.map(|path| AddedObject {
            was_null: tree::has(&values, &path),
            path,
        });
        let before = tree::has(&values, &key.path).then(|| tree::get(&values, &key.path).clone());
        // An empty file counts as missing.
        let before = before.filter(|it| !(key.path.is_empty() && it.is_null()));
        after = match &key.value {
            ValueToSet::Own(_) if before.is_some() => {
                return Err(PlaceError::Taken(named(&key.path)));
            }
            ValueToSet::Is(value) | ValueToSet::Own(value) => {
                format.set(&after, &key.path, value)?
            }
            ValueToSet::First(item) => format.insert(&after, &key.path, item)?,
            ValueToSet::Model(models) => models.set(format, &after, &key.path)?,
        };
        all.push(SetKey {
            key: key.clone(),
            before,
            made: made.collect(),
        });
    }
    let is_right = stands(format, &after, keys_to_set)
        && tree::is_same(
            &format.values(&undo(format, &after, &all)?.text)?,
            &format.values(text)?,
        );
    if is_right {
        Ok((after, all))
    } else {
        Err(PlaceError::Beyond)
    }
}

pub(crate) fn stands(format: Format, text: &str, keys_to_set: &[KeyToSet]) -> bool {
    let Ok(values) = format.values(text) else {
        return false;
    };
    keys_to_set.iter().all(|key| {
        let now = tree::get(&values, &key.path);
        match &key.value {
            ValueToSet::Is(value) => now == value,
            ValueToSet::Own(value) => now.is_object() && has_addresses(now, value),
            ValueToSet::First(item) => now.as_array().is_some_and(|items| {
                let mut same = items.iter().filter(|found| is_item(found, item));
                same.any(|found| has_addresses(found, item))
            }),
            ValueToSet::Model(models) => {
                let next = now[FALLBACKS].as_array();
                now[PRIMARY] == models.ours.as_str()
                    && next.is_some_and(|next| next.iter().any(|it| *it == models.former.as_str()))
            }
        }
    })
}

/// Returns whether `found` is our `item`, to which others may have added.
fn is_item(found: &Value, item: &Value) -> bool {
    found == item || !item["id"].is_null() && found["id"] == item["id"]
}

/// Whether the addresses of a value of ours still stand in it. An agent may add fields of its own, and write a key in a
/// form of its own.
fn has_addresses(now: &Value, ours: &Value) -> bool {
    match ours {
        Value::String(text) if text.starts_with("http") => now == ours,
        Value::Object(fields) => fields
            .iter()
            .all(|(name, value)| has_addresses(&now[name], value)),
        _ => true,
    }
}

/// Takes all of it back, the last first.
///
/// # Errors
///
/// As for [`apply`].
pub(crate) fn undo(format: Format, text: &str, all: &[SetKey]) -> Result<Reverted, PlaceError> {
    let mut undone = Reverted {
        text: text.to_owned(),
        left: Vec::new(),
    };
    for done in all.iter().rev() {
        done.undo(format, &mut undone)?;
    }
    Ok(undone)
}

// === impl SetKey ===

impl SetKey {
    fn undo(&self, format: Format, undone: &mut Reverted) -> Result<(), PlaceError> {
        let values = format.values(&undone.text)?;
        let path = &self.key.path;
        let now = tree::get(&values, path);
        match &self.key.value {
            ValueToSet::Is(value) if now != value => {
                // A key that somebody removed needs no restoration. One that somebody changed keeps its value.
                if tree::has(&values, path) {
                    undone.left.push(named(path));
                }
            }
            ValueToSet::First(item) => {
                let at = now
                    .as_array()
                    .and_then(|items| items.iter().position(|found| is_item(found, item)));
                if let Some(at) = at {
                    undone.text = format.remove_item(&undone.text, path, at)?;
                    let values = format.values(&undone.text)?;
                    if *tree::get(&values, path) == json!([]) {
                        self.restore(format, undone)?;
                    }
                }
            }
            ValueToSet::Model(models) => {
                let before = self.before.as_ref().unwrap_or(&Value::Null);
                let is_set_whole = *now == models.whole() || *now == models.ours.as_str();
                if is_set_whole && !before.is_object() {
                    self.restore(format, undone)?;
                } else if now.is_object() {
                    undone.text = models.take_back(format, &undone.text, path, before)?;
                }
            }
            ValueToSet::Is(_) | ValueToSet::Own(_) => self.restore(format, undone)?,
        }
        self.prune(format, undone)
    }

    fn restore(&self, format: Format, undone: &mut Reverted) -> Result<(), PlaceError> {
        let path = &self.key.path;
        undone.text = match &self.before {
            Some(before) => format.set(&undone.text, path, before)?,
            None => format.remove(&undone.text, path)?,
        };
        Ok(())
    }

    fn prune(&self, format: Format, undone: &mut Reverted) -> Result<(), PlaceError> {
        for made in self.made.iter().rev() {
            let values = format.values(&undone.text)?;
            let now = tree::get(&values, &made.path).as_object();
            if now.is_none_or(|it| !it.is_empty()) {
                continue;
            }
            undone.text = if made.was_null && format != Format::Toml {
                format.set(&undone.text, &made.path, &Value::Null)?
            } else {
                format.remove(&undone.text, &made.path)?
            };
        }
        Ok(())
    }
}

// === impl Models ===

impl Models {
    fn whole(&self) -> Value {
        json!({PRIMARY: self.ours, FALLBACKS: [self.former]})
    }

    fn set(&self, format: Format, text: &str, path: &[String]) -> Result<String, PlaceError> {
        if !tree::get(&format.values(text)?, path).is_object() {
            return format.set(text, path, &self.whole());
        }
        let first = format.set(text, &below(path, PRIMARY), &json!(self.ours))?;
        format.insert(&first, &below(path, FALLBACKS), &json!(self.former))
    }

    /// Removes our model, and keeps a model that somebody chose in the meantime.
    fn take_back(
        &self,
        format: Format,
        text: &str,
        path: &[String],
        before: &Value,
    ) -> Result<String, PlaceError> {
        let (primary, fallbacks) = (below(path, PRIMARY), below(path, FALLBACKS));
        let values = format.values(text)?;
        let is_first = *tree::get(&values, &primary) == self.ours.as_str();
        let listed = tree::get(&values, &fallbacks).as_array();
        let listed = listed.map_or(&[][..], Vec::as_slice);
        let mut after = text.to_owned();
        for (index, model) in listed.iter().enumerate().rev() {
            if *model == self.ours.as_str()
                || is_first && index == 0 && *model == self.former.as_str()
            {
                after = format.remove_item(&after, &fallbacks, index)?;
            }
        }
        if is_first {
            let former = before.as_str().or_else(|| before[PRIMARY].as_str());
            after = format.set(&after, &primary, &json!(former.unwrap_or(&self.former)))?;
        }
        let is_empty = *tree::get(&format.values(&after)?, &fallbacks) == json!([]);
        if is_empty && before[FALLBACKS].is_null() {
            return format.remove(&after, &fallbacks);
        }
        Ok(after)
    }
}

fn below(path: &[String], name: &str) -> Vec<String> {
    path.iter().cloned().chain([name.to_owned()]).collect()
}
