//! Describes where settings come from, and finds out whether the file has changed.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use super::{Layer, Loaded, Origin};

/// The keys that take effect without a restart, whatever the file says, because `metaclaw keys` tells the running
/// process.
const AT_ONCE: &str = "proxy.keys.";

// === impl Loaded ===

impl Loaded {
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
}

/// Returns a hash of a file's keys: the same number means the same settings. Comments and keys that take effect at once
/// do not count.
pub fn fingerprint(file: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    match Layer::file(file.to_owned(), false) {
        Ok(layer) => {
            let keys = layer
                .values()
                .iter()
                .filter(|it| !it.0.starts_with(AT_ONCE));
            for (key, value) in keys {
                (key, value.to_string()).hash(&mut hasher);
            }
            for problem in &layer.problems {
                problem.to_string().hash(&mut hasher);
            }
        }
        Err(error) => error.to_string().hash(&mut hasher),
    }
    hasher.finish()
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
            fingerprint(&file)
        };
        let absent = fingerprint(&file);
        assert_eq!(after("# nothing\n"), absent);
        let before = after("mode: rl\n");
        assert_ne!(before, absent);
        assert_eq!(after("# mine\nmode: rl # for now\n"), before);
        let keys = "proxy: {keys: {phone: {key: k, agents: [main]}}}\n";
        assert_eq!(
            after(&format!("mode: rl\n{keys}")),
            before,
            "in force at once"
        );
        for changed in [
            "mode: auto\n",
            "mode: rl\nllm: {model_id: m}\n",
            "mode: [",
            "mode: fast\n",
        ] {
            assert_ne!(after(changed), before, "{changed}");
        }
    }

    #[test]
    fn all_that_has_set_something_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        let variables = [("METACLAW__LLM__API_KEY", "sk-1"), ("METACLAW__MODE", "rl")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let load = |flags| {
            let sources = super::super::Sources {
                file: file.clone(),
                profiles: folder.path().join("auth-profiles.json"),
                file_asked: false,
                variables: variables.to_vec(),
                flags,
            };
            super::super::load(sources).unwrap()
        };
        let shown = |loaded: &Loaded| {
            let said = loaded.sources(&file);
            said.replace(&*file.to_string_lossy(), "FILE")
        };
        let both = load(vec![("proxy.port", "1".to_owned())]);
        assert_eq!(
            shown(&both),
            "the defaults (FILE is not there), and from the environment: llm.api_key, mode, and from the command line: proxy.port"
        );
        std::fs::write(&file, "routing: {order: [claude]}\n").unwrap();
        let loaded = load(Vec::new());
        assert_eq!(
            shown(&loaded),
            "FILE, and from the environment: llm.api_key, mode"
        );
        std::fs::write(&file, "llm: {provider: openai}\n").unwrap();
        assert_eq!(
            shown(&load(Vec::new())),
            "FILE, and from the environment: llm.api_key, mode",
            "what a provider stands for is no source"
        );
        let told = loaded.with_origin("routing.order: \"claude\" is no upstream");
        assert_eq!(
            told.replace(&*file.to_string_lossy(), "FILE"),
            "routing.order in FILE: \"claude\" is no upstream"
        );
        assert_eq!(loaded.with_origin("rl.method is odd"), "rl.method is odd");
    }
}
