//! Keys that are not ours, or no longer: what becomes of each, and why. `unsupported_keys.yaml` has them.
//!
//! Nobody reads their values. A person who brings such a key along should hear why it does nothing, and not only that it
//! is unknown.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    key::{Key, KeyState},
    kind::ValueKind,
    yaml,
};

pub(crate) static UNSUPPORTED: LazyLock<UnsupportedKeys> =
    LazyLock::new(|| read().unwrap_or_default());

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnsupportedKeys {
    /// Each with the key that it stands for.
    pub(crate) older_names: BTreeMap<String, String>,
    pub(crate) without_effect: Vec<InertKeys>,
    pub(crate) refused_keys: Vec<InertKeys>,
    values: BTreeMap<String, BTreeMap<String, KeyState>>,
    other_systems: Vec<ForeignNames>,
    whole_paths: BTreeMap<String, String>,
    variables: Vec<ForeignNames>,
    refused: Vec<ForeignNames>,
    off: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct InertKeys {
    pub(crate) reason: String,
    /// By their paths: the schema of their values.
    pub(crate) keys: BTreeMap<String, Value>,
}

/// Names of other systems' settings, in which `*` stands for any beginning or end.
#[derive(Debug, Deserialize)]
struct ForeignNames {
    reason: String,
    names: Vec<String>,
}

fn read() -> Option<UnsupportedKeys> {
    let file = yaml::value(include_str!("../data/unsupported_keys.yaml"))?;
    serde_json::from_value(file).ok()
}

pub(crate) fn values(path: &str) -> BTreeMap<String, KeyState> {
    UNSUPPORTED.values.get(path).cloned().unwrap_or_default()
}

/// All keys of the file that are checked as ours are, of which older names take what `ours` take.
pub(crate) fn keys(ours: &[Key]) -> Vec<Key> {
    let older = UNSUPPORTED.older_names.iter().filter_map(|(path, target)| {
        let kind = ours.iter().find(|key| key.path == *target)?.kind.clone();
        Some(unread(path, kind, KeyState::SameAs(target.clone())))
    });
    let without_effect = keys_of(&UNSUPPORTED.without_effect, KeyState::WithoutEffect);
    let refused = keys_of(&UNSUPPORTED.refused_keys, KeyState::Refused);
    older.chain(without_effect).chain(refused).collect()
}

fn unread(path: &str, kind: ValueKind, state: KeyState) -> Key {
    Key {
        path: path.to_owned(),
        kind,
        default: String::new(),
        help: String::new(),
        state,
        values: values(path),
    }
}

fn keys_of(groups: &[InertKeys], state: fn(String) -> KeyState) -> impl Iterator<Item = Key> {
    groups.iter().flat_map(move |group| {
        group.keys.iter().map(move |(path, schema)| {
            unread(
                path,
                ValueKind::from_schema(schema),
                state(group.reason.clone()),
            )
        })
    })
}

/// Why a setting cannot be, with what is allowed; none where it is off, or is none of those.
pub(crate) fn refusal(path: &str, given: &str) -> Option<&'static str> {
    let name = path.strip_prefix("rl.")?;
    let given = given.trim().to_lowercase();
    let is_on = !UNSUPPORTED.off.contains(&given);
    let found = UNSUPPORTED.refused.iter().find(|refusal| refusal.has(name));
    found.filter(|_| is_on).map(|refusal| &*refusal.reason)
}

/// Why a setting of another system does nothing here; none where nobody knows it at all.
pub(crate) fn reason(path: &str) -> Option<&'static str> {
    if let Some(reason) = UNSUPPORTED.whole_paths.get(path) {
        return Some(reason);
    }
    let name = path.rsplit('.').next().unwrap_or(path);
    let top = path.split('.').next().unwrap_or(path);
    let mut all = UNSUPPORTED.other_systems.iter();
    let found = all.find(|group| group.has(name) || group.has(top));
    found.map(|it| &*it.reason)
}

/// Returns what says the same here as another system's variable, or why nothing does; none of a variable that nobody
/// knows.
pub(crate) fn variable_reason(name: &str) -> Option<&'static str> {
    let found = UNSUPPORTED.variables.iter().find(|it| it.has(name));
    found.map(|it| &*it.reason)
}

// === impl ForeignNames ===

impl ForeignNames {
    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|pattern| fits(pattern, name))
    }
}

/// Whether a name fits a pattern with `*` at its beginning or end.
fn fits(pattern: &str, name: &str) -> bool {
    match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
        (Some(start), _) => name.starts_with(start),
        (None, Some(end)) => name.ends_with(end),
        (None, None) => name == pattern,
    }
}

#[cfg(test)]
mod tests;
