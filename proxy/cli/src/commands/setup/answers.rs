//! The answers so far: what was said, and beneath it what the settings say already.

use metaclaw_chat::Secret;
use metaclaw_settings::{Loaded, Origin, address::host, providers};

use super::detected::Detected;

/// What was answered, key by key, in the order of the questions.
pub(super) struct Answers {
    /// `None` takes the key out of the file.
    given: Vec<(String, Option<String>)>,
    /// What the file, the environment or a provider's name say already.
    before: Vec<(String, String)>,
    /// What an agent is set to: preset, and new where it is taken.
    found: Option<Detected>,
}

/// How the model's server wants its key.
const DIALECT: &str = "upstreams.llm.dialect";
/// The keys that setup may ask for.
const KEYS: &[&str] = &[
    "mode",
    "llm.provider",
    "llm.api_base",
    "llm.model_id",
    "llm.auth_method",
    DIALECT,
    "proxy.port",
    "skills.enabled",
    "skills.dir",
    "skills.auto_evolve",
    "trainer.model",
    "judge.kind",
    "judge.url",
    "judge.model",
    "rl.lora_rank",
    "rl.backend",
    "rl.tinker_base_url",
    "rl.model",
    "rl.tokenizer",
    "rl.method",
    "gate.accept_without",
    "rl.price_train",
    "rl.price_read",
    "rl.price_sample",
    "scheduler.idle_minutes",
    "scheduler.sleep_start",
    "scheduler.sleep_end",
];

// === impl Answers ===

impl Answers {
    /// Nothing said yet but what flags say; `found` is preset where the settings say nothing.
    pub(super) fn new(
        loaded: &Loaded,
        flags: Vec<(&'static str, String)>,
        found: Option<Detected>,
    ) -> Self {
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
        let secrets = [
            ("llm.api_key", &loaded.config.llm.api_key),
            ("rl.tinker_api_key", &loaded.config.rl.tinker_api_key),
        ];
        for (name, key) in secrets {
            if let (Some(key), Some(Origin::File(_))) = (key, loaded.origin(name)) {
                before.push((name.to_owned(), key.expose().to_owned()));
            }
        }
        let given = flags.into_iter();
        Self {
            given: given
                .map(|(key, value)| (key.to_owned(), Some(value)))
                .collect(),
            before,
            found,
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
            None => self.before(key).or_else(|| self.found(key)),
        }
    }

    /// What an agent is set to; what it asks of one server is asked of no other.
    fn found(&self, key: &str) -> Option<&str> {
        let found = self.found.as_ref()?;
        match key {
            "llm.api_base" => {
                let is_named = self.before("llm.provider").is_some();
                (!is_named).then_some(found.api_base.as_str())
            }
            "llm.provider" => found.provider.as_deref().filter(|_| self.is_at_found()),
            "llm.model_id" => self.is_at_found().then_some(found.model.as_str()),
            DIALECT => found.dialect.filter(|_| self.is_at_found()),
            _ => None,
        }
    }

    /// The agent's own key, where its own server is asked.
    pub(super) fn found_key(&self) -> Option<Secret> {
        let key = self.found.as_ref()?.key.clone();
        key.filter(|_| self.is_at_found())
    }

    fn is_at_found(&self) -> bool {
        let found = self.found.as_ref().map(|it| host(&it.api_base));
        found.is_some() && self.get("llm.api_base").map(host) == found
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
        let before = llm.api_base.as_deref().map(host);
        let is_same = before == self.get("llm.api_base").map(host);
        let key = llm.api_key.as_ref().filter(|_| is_same)?;
        Some(key.expose().to_owned())
    }

    /// Takes what an agent is set to as its answers, where nothing was said.
    pub(super) fn take_found(&mut self, loaded: &Loaded) {
        for key in ["llm.api_base", "llm.provider", "llm.model_id"] {
            let found = self.found(key).map(str::to_owned);
            if found.is_some() && self.get(key) == found.as_deref() {
                self.set(key, found);
            }
        }
        if let Some(key) = self.found_key().filter(|_| self.key(loaded).is_none()) {
            self.set("llm.api_key", Some(key.expose().to_owned()));
        }
        self.take_dialect();
    }

    /// How an agent's own server wants its key, where that is asked.
    pub(super) fn take_dialect(&mut self) {
        if let Some(dialect) = self.get(DIALECT).map(str::to_owned) {
            self.set(DIALECT, Some(dialect));
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
    use metaclaw_settings::Layer;

    fn loaded(text: &str) -> Loaded {
        let layer = Layer::text("config.yaml".into(), text).unwrap();
        Loaded::new(vec![layer]).unwrap()
    }

    fn openclaw() -> Detected {
        Detected {
            provider: None,
            api_base: "https://a.example/v1".to_owned(),
            model: "other".to_owned(),
            dialect: Some("anthropic"),
            key: Some("sk-1".to_owned().into()),
        }
    }

    #[test]
    fn what_an_agent_is_set_to_is_preset_and_written_where_it_is_taken() {
        let loaded = loaded("llm: {model_id: mine}\n");
        let mut answers = Answers::new(&loaded, Vec::new(), Some(openclaw()));
        assert_eq!(answers.get("llm.model_id"), Some("mine"));
        assert_eq!(answers.get("llm.api_base"), Some("https://a.example/v1"));
        assert_eq!(answers.changes(), [], "nothing was answered yet");
        answers.take_found(&loaded);
        let written = answers.changes();
        let written: Vec<(&str, Option<&str>)> = written
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_deref()))
            .collect();
        assert_eq!(
            written,
            [
                ("llm.api_base", Some("https://a.example/v1")),
                ("llm.api_key", Some("sk-1")),
                (DIALECT, Some("anthropic")),
            ]
        );
    }

    #[test]
    fn what_an_agent_asks_of_one_server_is_offered_to_no_other() {
        for other in [
            ("llm: {api_base: 'https://b.example/v1'}\n", Vec::new()),
            ("llm: {provider: openai}\n", Vec::new()),
            (
                "",
                vec![("llm.api_base", "https://b.example/v1".to_owned())],
            ),
        ] {
            let loaded = loaded(other.0);
            let mut answers = Answers::new(&loaded, other.1, Some(openclaw()));
            assert_ne!(answers.get("llm.api_base"), Some("https://a.example/v1"));
            assert_eq!(answers.get("llm.model_id"), None, "{}", other.0);
            assert_eq!(answers.found_key(), None, "{}", other.0);
            answers.take_found(&loaded);
            let model_or_key = ["llm.model_id", "llm.api_key", DIALECT];
            assert!(model_or_key.iter().all(|key| !answers.is_given(key)));
        }
    }

    #[test]
    fn a_key_stays_with_its_address() {
        let file = "llm: {api_base: 'https://a.example/v1', api_key: k1}\n";
        let loaded = loaded(file);
        let mut answers = Answers::new(&loaded, Vec::new(), None);
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
