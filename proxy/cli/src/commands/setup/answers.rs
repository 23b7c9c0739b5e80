//! The answers so far: what was said, and beneath it what the settings say already.

use metaclaw_chat::Secret;

use super::detected::Detected;
use crate::config::{Loaded, Origin, providers};

/// What was answered, key by key, in the order of the questions.
pub(super) struct Answers {
    /// `None` takes the key out of the file.
    given: Vec<(String, Option<String>)>,
    /// What the file, the environment or a provider's name say already.
    before: Vec<(String, String)>,
    /// What an agent is set to: preset, and new where it is taken.
    found: Vec<(String, String)>,
}

/// The keys that setup may ask for.
const KEYS: &[&str] = &[
    "mode",
    "llm.provider",
    "llm.api_base",
    "llm.model_id",
    "llm.auth_method",
    "proxy.port",
    "skills.enabled",
    "skills.dir",
    "skills.auto_evolve",
    "trainer.model",
    "judge.url",
    "judge.model",
    "rl.lora_rank",
    "scheduler.idle_minutes",
    "scheduler.sleep_start",
    "scheduler.sleep_end",
];

// === impl Answers ===

impl Answers {
    /// Nothing said yet but what flags say.
    pub(super) fn new(loaded: &Loaded, flags: Vec<(&'static str, String)>) -> Self {
        let set = |key: &&&str| {
            let origin = loaded.origin(key);
            origin.is_some_and(|origin| *origin != Origin::Provider)
        };
        let value = |key: &&str| {
            let value = loaded.get(key).ok()?.value;
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            Some(((*key).to_owned(), value))
        };
        let mut before: Vec<(String, String)> = KEYS.iter().filter(set).filter_map(value).collect();
        let key = loaded.config.llm.api_key.as_ref();
        if let (Some(key), Some(Origin::File(_))) = (key, loaded.origin("llm.api_key")) {
            before.push(("llm.api_key".to_owned(), key.expose().to_owned()));
        }
        let given = flags.into_iter();
        Self {
            given: given
                .map(|(key, value)| (key.to_owned(), Some(value)))
                .collect(),
            before,
            found: Vec::new(),
        }
    }

    /// Whether a flag, or an answer, has said it.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.given.iter().any(|(known, _)| known == key)
    }

    /// What holds: what was answered, else what the settings say, else what an agent is set to.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let given = self.given.iter().find(|(known, _)| known == key);
        match given {
            Some((_, value)) => value.as_deref(),
            None => self.before(key).or_else(|| value_of(&self.found, key)),
        }
    }

    /// What the settings say.
    pub(super) fn before(&self, key: &str) -> Option<&str> {
        value_of(&self.before, key)
    }

    /// Takes an answer, in place of an earlier one.
    pub(super) fn set(&mut self, key: &str, value: Option<String>) {
        self.given.retain(|(known, _)| known != key);
        self.given.push((key.to_owned(), value));
    }

    /// The address that goes without saying where a provider is named.
    pub(super) fn complete(&mut self) {
        let is_named = self.is_given("llm.provider") && !self.is_given("llm.api_base");
        let named = self.get("llm.provider").and_then(providers::named);
        if let Some(known) = named
            && (is_named || self.get("llm.api_base").is_none())
        {
            self.set("llm.api_base", Some(known.api_base.to_owned()));
        }
    }

    /// The key that would be sent: what was answered, else what is in force for the same address.
    pub(super) fn key(&self, loaded: &Loaded) -> Option<String> {
        if self.is_given("llm.api_key") {
            return self.get("llm.api_key").map(str::to_owned);
        }
        let llm = &loaded.config.llm;
        let host = |url: &str| crate::address::host(url).to_owned();
        let before = llm.api_base.as_deref().map(host);
        let is_same = before == self.get("llm.api_base").map(host);
        let key = llm.api_key.as_ref().filter(|_| is_same)?;
        Some(key.expose().to_owned())
    }

    /// Takes what an agent is set to, where nothing was said.
    pub(super) fn preset(&mut self, detected: &Detected) {
        let found = [
            ("llm.api_base", Some(&detected.api_base)),
            ("llm.model_id", Some(&detected.model)),
            ("llm.provider", detected.provider.as_ref()),
        ];
        for (key, value) in found {
            if let Some(value) = value
                && self.get(key).is_none()
            {
                self.found.push((key.to_owned(), value.clone()));
            }
        }
    }

    /// What is to be written: what is other than the settings say.
    pub(super) fn changes(&self) -> Vec<(String, Option<String>)> {
        let is_new =
            |(key, value): &&(String, Option<String>)| self.before(key) != value.as_deref();
        self.given.iter().filter(is_new).cloned().collect()
    }
}

fn value_of<'a>(values: &'a [(String, String)], key: &str) -> Option<&'a str> {
    let found = values.iter().find(|(known, _)| known == key);
    found.map(|(_, value)| value.as_str())
}

/// A change, as it may be shown.
pub(super) fn shown(key: &str, value: Option<&str>) -> String {
    match value {
        None => "taken out".to_owned(),
        Some(secret) if key.ends_with("key") => Secret::from(secret).to_string(),
        Some(value) => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layer;

    fn answers(text: &str, flags: Vec<(&'static str, String)>) -> (Answers, Loaded) {
        let layer = Layer::text("config.yaml".into(), text).unwrap();
        let loaded = Loaded::new(vec![layer]).unwrap();
        (Answers::new(&loaded, flags), loaded)
    }

    #[test]
    fn what_an_agent_is_set_to_is_preset_and_written_where_it_is_taken() {
        let (mut answers, _) = answers("llm: {model_id: mine}\n", Vec::new());
        answers.preset(&Detected {
            agent: "OpenClaw".to_owned(),
            provider: None,
            api_base: "https://a.example/v1".to_owned(),
            model: "other".to_owned(),
            key: None,
        });
        assert_eq!(answers.get("llm.model_id"), Some("mine"));
        assert_eq!(answers.get("llm.api_base"), Some("https://a.example/v1"));
        assert_eq!(answers.changes(), [], "nothing was answered yet");
        let base = answers.get("llm.api_base").map(str::to_owned);
        answers.set("llm.api_base", base);
        answers.set("llm.model_id", Some("mine".to_owned()));
        assert_eq!(answers.changes().len(), 1);
    }

    #[test]
    fn a_key_stays_with_its_address() {
        let file = "llm: {api_base: 'https://a.example/v1', api_key: k1}\n";
        let (mut answers, loaded) = answers(file, Vec::new());
        assert_eq!(answers.key(&loaded).as_deref(), Some("k1"));
        answers.set("llm.provider", Some("openai".to_owned()));
        answers.complete();
        assert_eq!(
            answers.get("llm.api_base"),
            Some("https://api.openai.com/v1")
        );
        assert_eq!(answers.key(&loaded), None);
    }
}
