//! The answers so far. A key without an answer has the value of the settings, else the agent's.

use metaclaw_chat::Secret;
use metaclaw_settings::{Loaded, Origin, address::host, providers};
use metaclaw_wiring::{Api, Credential, Found};

pub(crate) const MODE: &str = "mode";
pub(super) const PROVIDER: &str = "llm.provider";
pub(super) const ADDRESS: &str = "llm.api_base";
pub(super) const MODEL: &str = "llm.model_id";
pub(super) const KEY: &str = "llm.api_key";
pub(super) const DIALECT: &str = "upstreams.llm.dialect";

/// The answers by key, in the order of the questions.
pub(crate) struct SetupAnswers<'a> {
    pub(super) loaded: &'a Loaded,
    found: Option<&'a Found>,
    /// `None` removes the key from the file.
    given: Vec<(String, Option<String>)>,
}

// === impl SetupAnswers ===

impl<'a> SetupAnswers<'a> {
    pub(super) fn new(
        loaded: &'a Loaded,
        flags: Vec<(&'static str, String)>,
        found: Option<&'a Found>,
    ) -> Self {
        let answer = |(key, value): (&str, String)| (key.to_owned(), Some(value));
        Self {
            loaded,
            found,
            given: flags.into_iter().map(answer).collect(),
        }
    }

    /// Creates answers with the agent's own values, which replace those of the settings.
    pub(crate) fn of_agent(loaded: &'a Loaded, found: &'a Found) -> Self {
        let mut answers = Self::new(loaded, Vec::new(), Some(found));
        for key in [ADDRESS, PROVIDER, MODEL, KEY, DIALECT] {
            answers.set(key, value_of(found, key));
        }
        answers
    }

    pub(super) fn is_given(&self, key: &str) -> bool {
        self.given.iter().any(|(known, _)| known == key)
    }

    /// Returns the value in force: the answer, else the settings' value, else the agent's.
    pub(super) fn get(&self, key: &str) -> Option<String> {
        match self.given.iter().find(|(known, _)| known == key) {
            Some((_, value)) => value.clone(),
            None => self.before(key).or_else(|| self.found(key)),
        }
    }

    /// Returns the settings' value, unless it only follows from the provider's name. A secret counts only if it is in
    /// the file.
    pub(super) fn before(&self, key: &str) -> Option<String> {
        let origin = self.loaded.origin(key)?;
        if key == KEY {
            let is_in_file = matches!(origin, Origin::File(_));
            let secret = self.loaded.config.llm.api_key.as_ref();
            return Some(secret.filter(|_| is_in_file)?.expose().to_owned());
        }
        if *origin == Origin::Provider {
            return None;
        }
        let value = self.loaded.get(key).ok()?.value;
        let text = value.as_str().map(str::to_owned);
        Some(text.unwrap_or_else(|| value.to_string()))
    }

    /// Returns the agent's value. It is used only with the agent's own server.
    fn found(&self, key: &str) -> Option<String> {
        let found = self.found?;
        let is_same_server = if key == ADDRESS {
            self.before(PROVIDER).is_none()
        } else {
            let address = self.get(ADDRESS)?;
            host(&address) == host(&found.base_url)
        };
        value_of(found, key).filter(|_| is_same_server)
    }

    /// Records an answer, and replaces an earlier one.
    pub(crate) fn set(&mut self, key: &str, value: Option<String>) {
        self.given.retain(|(known, _)| known != key);
        self.given.push((key.to_owned(), value));
    }

    pub(super) fn complete(&mut self) {
        let is_named = self.is_given(PROVIDER) && !self.is_given(ADDRESS);
        let name = self.get(PROVIDER);
        if let Some(known) = name.as_deref().and_then(providers::named)
            && (is_named || self.get(ADDRESS).is_none())
        {
            self.set(ADDRESS, Some(known.api_base.to_owned()));
        }
    }

    /// Returns the key that would be sent: the answer, else the one in force for the same address.
    pub(super) fn key(&self) -> Option<Secret> {
        if self.is_given(KEY) {
            return self.get(KEY).map(Secret::from);
        }
        let llm = &self.loaded.config.llm;
        let (before, now) = (llm.api_base.as_deref(), self.get(ADDRESS));
        let is_same = before.map(host) == now.as_deref().map(host);
        llm.api_key.clone().filter(|_| is_same)
    }

    pub(super) fn found_key(&self) -> Option<Secret> {
        self.found(KEY).map(Secret::from)
    }

    pub(super) fn take_found(&mut self) {
        for key in [ADDRESS, PROVIDER, MODEL] {
            let found = self.found(key);
            if found.is_some() && self.get(key) == found {
                self.set(key, found);
            }
        }
        if let Some(key) = self.found_key().filter(|_| self.key().is_none()) {
            self.set(KEY, Some(key.expose().to_owned()));
        }
        self.take_dialect();
    }

    pub(super) fn take_dialect(&mut self) {
        if let Some(dialect) = self.get(DIALECT) {
            self.set(DIALECT, Some(dialect));
        }
    }

    /// Returns what has to be written: the values that differ from the settings.
    pub(crate) fn changes(self) -> Vec<(String, Option<String>)> {
        let is_new = |(key, value): &&(String, Option<String>)| match value {
            Some(_) => self.before(key) != *value,
            None => matches!(self.loaded.origin(key), Some(Origin::File(_))),
        };
        self.given.iter().filter(is_new).cloned().collect()
    }
}

fn value_of(found: &Found, key: &str) -> Option<String> {
    let known = providers::at(&found.base_url);
    match key {
        ADDRESS => Some(found.base_url.clone()),
        PROVIDER => known.map(|provider| provider.name.to_owned()),
        MODEL => Some(found.model.clone()),
        KEY => match &found.credential {
            Credential::Key { key, .. } => Some(key.expose().to_owned()),
            Credential::Reference(_) | Credential::Login => None,
        },
        DIALECT if found.api == Api::AnthropicMessages && known.is_none() => {
            Some("anthropic".to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use metaclaw_settings::{Layer, edit};
    use metaclaw_wiring::{Surroundings, detect};

    fn loaded(text: &str) -> Loaded {
        let layer = Layer::text("config.yaml".into(), text).unwrap();
        Loaded::new(vec![layer]).unwrap()
    }

    fn openclaw(provider: &str) -> Found {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("openclaw.json");
        let text = format!(
            "{{agents: {{defaults: {{model: 'p/m: #1'}}}}, models: {{providers: {{p: {provider}}}}}}}"
        );
        std::fs::write(&file, text).unwrap();
        let file = file.display().to_string();
        let environment = Environment::from_pairs([("OPENCLAW_CONFIG_PATH", file.as_str())]);
        let surroundings = Surroundings {
            variables: environment.variables.clone(),
            home: folder.path().to_owned(),
        };
        detect(&surroundings).unwrap().unwrap()
    }

    fn written(answers: SetupAnswers<'_>) -> Vec<(String, String)> {
        let changes = answers.changes().into_iter();
        changes
            .filter_map(|(key, value)| Some((key, value?)))
            .collect()
    }

    fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    const MESSAGES: &str =
        "{baseUrl: 'https://a.example/v1', apiKey: 'sk-\"1', api: 'anthropic-messages'}";

    #[test]
    fn what_an_agent_asks_is_written_where_it_is_taken() {
        for (provider, expected) in [
            (
                MESSAGES,
                pairs([
                    (ADDRESS, "https://a.example/v1"),
                    (MODEL, "m: #1"),
                    (KEY, "sk-\"1"),
                    (DIALECT, "anthropic"),
                ]),
            ),
            (
                "{baseUrl: 'https://api.anthropic.com', api: 'anthropic-messages'}",
                pairs([
                    (ADDRESS, "https://api.anthropic.com"),
                    (PROVIDER, "anthropic"),
                    (MODEL, "m: #1"),
                ]),
            ),
        ] {
            let (found, loaded) = (openclaw(provider), loaded(""));
            assert_eq!(written(SetupAnswers::of_agent(&loaded, &found)), expected);
            let mut answers = SetupAnswers::new(&loaded, Vec::new(), Some(&found));
            answers.take_found();
            assert_eq!(written(answers), expected);
        }
    }

    #[test]
    fn the_agents_next_model_replaces_the_one_before_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        let text = || std::fs::read_to_string(&file).unwrap_or_default();
        let login = "{baseUrl: 'https://api.anthropic.com', api: 'anthropic-messages'}";
        for provider in [MESSAGES, login, MESSAGES] {
            let (found, before) = (openclaw(provider), loaded(&text()));
            let answers = SetupAnswers::of_agent(&before, &found);
            edit::answer_in_file(&file, &answers.changes()).unwrap();
            let after = loaded(&text());
            assert!(after.unknown.is_empty() && after.inert.is_empty());
            let answers = SetupAnswers::new(&after, Vec::new(), None);
            for key in [ADDRESS, PROVIDER, MODEL, KEY, DIALECT] {
                let expected = value_of(&found, key);
                assert_eq!(answers.before(key), expected, "{key}: {}", text());
            }
        }
    }

    #[test]
    fn an_agents_values_are_proposed_for_what_the_settings_do_not_say() {
        let (found, loaded) = (openclaw(MESSAGES), loaded("llm: {model_id: mine}\n"));
        let mut answers = SetupAnswers::new(&loaded, Vec::new(), Some(&found));
        assert_eq!(answers.get(MODEL).as_deref(), Some("mine"));
        assert_eq!(
            answers.get(ADDRESS).as_deref(),
            Some("https://a.example/v1")
        );
        answers.take_found();
        let expected = pairs([
            (ADDRESS, "https://a.example/v1"),
            (KEY, "sk-\"1"),
            (DIALECT, "anthropic"),
        ]);
        assert_eq!(written(answers), expected);
    }

    #[test]
    fn what_an_agent_asks_of_one_server_is_offered_to_no_other() {
        let found = openclaw(MESSAGES);
        let other = "https://b.example/v1".to_owned();
        for (file, flags) in [
            ("llm: {api_base: 'https://b.example/v1'}\n", Vec::new()),
            ("llm: {provider: openai}\n", Vec::new()),
            ("", vec![(ADDRESS, other)]),
        ] {
            let loaded = loaded(file);
            let mut answers = SetupAnswers::new(&loaded, flags, Some(&found));
            assert_ne!(
                answers.get(ADDRESS),
                Some("https://a.example/v1".to_owned())
            );
            assert_eq!(
                (answers.get(MODEL), answers.found_key()),
                (None, None),
                "{file}"
            );
            answers.take_found();
            let others = [MODEL, KEY, DIALECT];
            assert!(others.iter().all(|key| !answers.is_given(key)), "{file}");
        }
    }

    #[test]
    fn a_key_stays_with_its_address() {
        let loaded = loaded("llm: {api_base: 'https://a.example/v1', api_key: k1}\n");
        let mut answers = SetupAnswers::new(&loaded, Vec::new(), None);
        assert_eq!(answers.key(), Some("k1".into()));
        answers.set(PROVIDER, Some("openai".to_owned()));
        answers.complete();
        let address = answers.get(ADDRESS);
        assert_eq!(address.as_deref(), Some("https://api.openai.com/v1"));
        assert_eq!(answers.key(), None);
    }
}
