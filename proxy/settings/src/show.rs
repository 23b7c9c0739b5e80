//! The settings in force, key by key, and where they come from.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use metaclaw_chat::Secret;
use serde::Serialize;
use serde_json::Value;

use super::{
    Layer, Loaded, Origin,
    key::{Key, KeyState},
    table, unsupported_keys, yaml,
};

/// The keys that take effect without a restart, whatever the file says, because `metaclaw keys` tells the running
/// process.
const AT_ONCE: &str = "proxy.keys.";

/// One key that has an effect, with the value in force.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effective {
    pub key: String,
    /// The value; null if there is none, masked if it is a secret.
    pub value: Value,
    /// The source of the value; `None` means the default.
    pub origin: Option<String>,
}

// === impl Loaded ===

impl Loaded {
    /// Returns every key that has an effect, in the order of the table.
    pub fn effective(&self) -> Vec<Effective> {
        table::working()
            .flat_map(|key| self.paths(key).into_iter().map(|path| self.one(key, &path)))
            .collect()
    }

    fn paths(&self, key: &Key) -> Vec<String> {
        if !key.path.contains('*') {
            return vec![key.path.clone()];
        }
        let set = self.layers.iter().flat_map(|layer| layer.values().keys());
        let mut paths: Vec<String> = set.filter(|path| key.is_at(path)).cloned().collect();
        paths.sort();
        paths.dedup();
        paths
    }

    /// Returns the value of one key, by its own or an older name.
    ///
    /// # Errors
    ///
    /// Returns a message if the key is unknown or has no effect.
    pub fn get(&self, path: &str) -> Result<Effective, String> {
        let key = table::find(path).ok_or_else(|| unknown(path))?;
        match &key.state {
            KeyState::Works => Ok(self.one(key, path)),
            KeyState::SameAs(target) => self.get(target),
            KeyState::WithoutEffect(reason) | KeyState::Refused(reason) => {
                Err(format!("{path} has no value in force: {reason}"))
            }
        }
    }

    /// Names the file, or says that there is none, and the other sources that set something.
    pub fn sources(&self, file: &Path) -> String {
        let name = file.display();
        let mut said = if file.exists() {
            name.to_string()
        } else {
            format!("the defaults ({name} is not there)")
        };
        let is_told = |layer: &&Layer| {
            !matches!(
                layer.origin(),
                Origin::File(_) | Origin::Provider | Origin::Key(_)
            )
        };
        for layer in self.layers.iter().filter(is_told) {
            let keys: Vec<&str> = layer.values().keys().map(String::as_str).collect();
            if !keys.is_empty() {
                said = format!("{said}, and from {}: {}", layer.origin(), keys.join(", "));
            }
        }
        said
    }

    /// Returns a section's message about a key, which begins with the key, with the place where it was set.
    pub fn with_origin(&self, message: &str) -> String {
        let end = message.find([' ', ':']).unwrap_or(message.len());
        let (key, rest) = message.split_at(end);
        match self.origin(key) {
            Some(origin) => format!("{key} in {origin}{rest}"),
            None => message.to_owned(),
        }
    }

    fn one(&self, key: &Key, path: &str) -> Effective {
        let (origin, value) = match self.set_at(path) {
            Some((origin, value)) => (Some(origin.to_string()), value.clone()),
            None => (None, yaml::value(&key.default).unwrap_or_default()),
        };
        Effective {
            key: path.to_owned(),
            value: masked(key, value),
            origin,
        }
    }
}

fn masked(key: &Key, value: Value) -> Value {
    match (&key.kind, value) {
        (kind, Value::String(text)) if kind.is_secret() => Secret::from(text).to_string().into(),
        (kind, Value::Array(keys)) if kind.is_secret() => {
            keys.into_iter().map(|each| masked(key, each)).collect()
        }
        (_, value) => value,
    }
}

pub(crate) fn unknown(path: &str) -> String {
    if let Some(reason) = unsupported_keys::reason(path) {
        return format!("{path} is no key here: {reason}");
    }
    let keys: Vec<&str> = table::working()
        .filter_map(|key| key.path.strip_prefix(path)?.strip_prefix('.'))
        .collect();
    if !keys.is_empty() {
        return format!("{path} is a section; its keys are {}", keys.join(", "));
    }
    match table::nearest(path) {
        Some(nearest) => format!("unknown key {path}: did you mean {nearest}?"),
        None => format!("unknown key {path}: `metaclaw config show` lists all"),
    }
}

/// Returns one value in one line.
pub fn one_line(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Hashes of a file's keys: the same numbers mean the same settings. Comments and keys that take effect at once do not
/// count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint {
    /// The hash of the keys that choose upstreams: `upstreams.*` and `agents.*.upstream`. A running process can adopt
    /// changes of these keys.
    pub routes: u64,
    /// The hash of all other keys that need a restart.
    pub others: u64,
}

// === impl Fingerprint ===

impl Fingerprint {
    pub fn of(file: &Path) -> Self {
        let [mut routes, mut others] = [DefaultHasher::new(), DefaultHasher::new()];
        match Layer::file(file.to_owned(), false) {
            Ok(layer) => {
                let keys = layer.values().iter();
                for (key, value) in keys.filter(|set| !set.0.starts_with(AT_ONCE)) {
                    let is_agents = key.starts_with("agents.") && key.ends_with(".upstream");
                    let hasher = if is_agents || key.starts_with("upstreams.") {
                        &mut routes
                    } else {
                        &mut others
                    };
                    (key, value.to_string()).hash(hasher);
                }
                for problem in &layer.problems {
                    problem.to_string().hash(&mut others);
                }
            }
            Err(error) => error.to_string().hash(&mut others),
        }
        Self {
            routes: routes.finish(),
            others: others.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_file_sets_makes_another_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        let after = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Fingerprint::of(&file)
        };
        let absent = Fingerprint::of(&file);
        assert_eq!(after("# nothing\n"), absent);
        let before = after("mode: rl\n");
        assert_ne!(before, absent);
        assert_eq!(after("# mine\nmode: rl # for now\n"), before);
        let keys = "mode: rl\nproxy: {keys: {phone: {key: k, agents: [main]}}}\n";
        assert_eq!(after(keys), before, "in force at once");
        let with_model = "mode: rl\nllm: {model_id: m}\n";
        for changed in ["mode: auto\n", with_model, "mode: [", "mode: fast\n"] {
            assert_ne!(after(changed), before, "{changed}");
        }
        let wired = "mode: rl\nupstreams: {codex: {url: 'http://127.0.0.1:9'}}\nagents: {codex: {upstream: codex}}\n";
        let wired = after(wired);
        assert_ne!(wired.routes, before.routes);
        assert_eq!(wired.others, before.others, "the process takes them");
        let other = after("mode: rl\nagents: {codex: {mode: auto}}\n");
        assert_ne!(other.others, before.others, "learning does not");
    }

    #[test]
    fn a_section_is_answered_with_its_keys_and_a_typo_with_the_key() {
        for (path, said) in [
            ("log", "log is a section; its keys are level"),
            ("ui", "ui is a section; its keys are host, port"),
            ("log.levl", "unknown key log.levl: did you mean log.level?"),
        ] {
            assert_eq!(unknown(path), said);
        }
        assert!(unknown("skills").starts_with("skills is a section; its keys are "));
    }

    #[test]
    fn all_that_has_set_something_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        let variables = [("METACLAW__LLM__API_KEY", "sk-1"), ("METACLAW__MODE", "rl")];
        let load = |flags| {
            let sources = crate::Sources::in_folder(folder.path(), &variables);
            let with_flags = crate::Sources {
                flags,
                file_asked: false,
                ..sources
            };
            crate::load(with_flags).unwrap()
        };
        let neutral = |said: String| said.replace(&*file.to_string_lossy(), "FILE");
        let shown = |loaded: &Loaded| neutral(loaded.sources(&file));
        let both = load(vec![("proxy.port", "1".to_owned())]);
        insta::assert_snapshot!(shown(&both), @"the defaults (FILE is not there), and from the environment: llm.api_key, mode, and from the command line: proxy.port");
        std::fs::write(&file, "routing: {order: [claude]}\n").unwrap();
        let loaded = load(Vec::new());
        let expected = "FILE, and from the environment: llm.api_key, mode";
        assert_eq!(shown(&loaded), expected);
        std::fs::write(&file, "llm: {provider: openai}\n").unwrap();
        let provider = load(Vec::new());
        assert_eq!(
            shown(&provider),
            expected,
            "what a provider stands for is no source"
        );
        let told = loaded.with_origin("routing.order: \"claude\" is no upstream");
        insta::assert_snapshot!(neutral(told), @r#"routing.order in FILE: "claude" is no upstream"#);
        assert_eq!(loaded.with_origin("rl.method is odd"), "rl.method is odd");
    }
}
