//! Keys as OpenClaw writes them: in full, as a variable (`${NAME}`, `$NAME`, the name alone), as a secret reference, or
//! not at all if a login is in its own store.

use std::{collections::BTreeMap, path::Path};

use metaclaw_chat::{is_variable, substituted};
use serde_json::Value;

use super::known;
use crate::{files::read_bounded, format::pairs, found::Credential, surroundings::Surroundings};

pub(super) struct Secrets<'a> {
    config: &'a Value,
    surroundings: &'a Surroundings,
    env_file: BTreeMap<String, String>,
}

// === impl Secrets ===

impl<'a> Secrets<'a> {
    pub(super) fn new(file: &Path, config: &'a Value, surroundings: &'a Surroundings) -> Self {
        let beside = file.with_file_name(".env");
        let text = read_bounded(&beside).unwrap_or_default();
        Self {
            config,
            surroundings,
            env_file: pairs(&text),
        }
    }

    pub(super) fn credential(&self, provider: &str, entry: &Value) -> Credential {
        let given = &entry["apiKey"];
        if let Some(text) = given.as_str().filter(|it| !it.trim().is_empty()) {
            return self.written(text, given);
        }
        if given.is_object() {
            let is_variable = given["source"] == "env";
            let name = given["id"].as_str().filter(|_| is_variable);
            let key = name.and_then(|name| self.variable(name));
            return key.unwrap_or_else(|| Credential::Reference(given.clone()));
        }
        let known = known::provider(provider).filter(|_| !self.has_profile(provider));
        let key = known.and_then(|known| self.variable(known.variable));
        key.unwrap_or(Credential::Login)
    }

    pub(super) fn substituted(&self, text: &str) -> String {
        substituted(text, |name| {
            let name = Some(name).filter(|name| is_variable(name))?;
            self.lookup(name).map(|(value, _)| value)
        })
    }

    fn written(&self, text: &str, given: &Value) -> Credential {
        let braced = text.strip_prefix("${").and_then(|it| it.strip_suffix('}'));
        let named = braced.or_else(|| text.strip_prefix('$'));
        if let Some(name) = named.filter(|name| is_variable(name)) {
            let key = self.variable(name);
            return key.unwrap_or_else(|| Credential::Reference(given.clone()));
        }
        if is_variable(text)
            && let Some(key) = self.variable(text)
        {
            return key;
        }
        Credential::Key {
            key: self.substituted(text).into(),
            from: "OpenClaw's file".to_owned(),
        }
    }

    fn variable(&self, name: &str) -> Option<Credential> {
        let (key, place) = self.lookup(name)?;
        Some(Credential::Key {
            key: key.into(),
            from: format!("{name} in {place}"),
        })
    }

    /// Returns a variable's value and source, searched like OpenClaw searches it.
    fn lookup(&self, name: &str) -> Option<(String, &'static str)> {
        let own = self.surroundings.get(name);
        let beside = || self.env_file.get(name).map(String::as_str);
        let env = &self.config["env"];
        let inside = || env["vars"][name].as_str().or_else(|| env[name].as_str());
        let found = own.map(|it| (it, "the environment"));
        let found = found.or_else(|| Some((beside()?, "OpenClaw's .env")));
        let (value, place) = found.or_else(|| Some((inside()?, "OpenClaw's file")))?;
        (!value.is_empty()).then(|| (value.to_owned(), place))
    }

    /// Returns whether OpenClaw's own store has a login of this provider, which takes precedence.
    fn has_profile(&self, provider: &str) -> bool {
        let profiles = self.config["auth"]["profiles"].as_object();
        let mut profiles = profiles.into_iter().flatten();
        profiles.any(|(_, profile)| profile["provider"].as_str() == Some(provider))
    }
}
