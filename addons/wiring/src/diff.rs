//! The diff of a change, with keys masked.

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;
use similar::TextDiff;

use crate::format::Format;

const MASK: &str = "(not shown)";
/// Shorter texts, in bytes, are never taken for a key.
const MIN_SECRET: usize = 6;
/// A value is masked if its name contains one of these.
const SECRET: [&str; 6] = [
    "key",
    "token",
    "secret",
    "password",
    "authorization",
    "header",
];
/// Names that match [`SECRET`] although their values are no secrets.
const OPEN: [&str; 3] = ["env_key", "key_env", "x-agent-id"];

pub(crate) fn secrets(format: Format, text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(&format.values(text).unwrap_or_default(), false, &mut found);
    found
}

pub(crate) fn masked(path: &Path, before: &str, after: &str, secrets: &BTreeSet<String>) -> String {
    let name = path.display().to_string();
    let diff = TextDiff::from_lines(before, after);
    let mut diff = diff.unified_diff();
    let mut text = diff.header(&name, &name).context_radius(2).to_string();
    // The longest first: one may be a part of another.
    let mut secrets: Vec<&String> = secrets.iter().collect();
    secrets.sort_by_key(|it| std::cmp::Reverse(it.len()));
    for secret in secrets {
        let quoted = Value::from(secret.as_str()).to_string();
        text = text.replace(quoted.trim_matches('"'), MASK);
        text = text.replace(secret.as_str(), MASK);
    }
    text
}

fn collect(value: &Value, is_secret: bool, found: &mut BTreeSet<String>) {
    match value {
        // Shorter ones are words, and no keys.
        Value::String(text) if text.len() >= MIN_SECRET && (is_secret || has_login(text)) => {
            found.insert(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|it| collect(it, is_secret, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.to_lowercase();
                let is_open = OPEN.contains(&name.as_str());
                let is_named = SECRET.iter().any(|part| name.contains(part));
                collect(value, !is_open && (is_secret || is_named), found);
            }
        }
        _ => {}
    }
}

/// Returns whether a text is an address with a password, for example `postgres://me:word@host`.
fn has_login(text: &str) -> bool {
    text.split_once("://")
        .is_some_and(|(_, rest)| rest.contains('@'))
}
