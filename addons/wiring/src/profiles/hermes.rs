//! Hermes: its one model, and a list of those that it asks next.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::{
    agent::Surroundings,
    format::Format,
    found::Api,
    keys::KeyToSet,
    outcome::WiringError,
    profile::{AgentProfile, BY_HISTORY, Facts, NEXT_START, Settings, model, read},
    target::Target,
};

#[derive(Debug)]
pub(super) struct Hermes;

/// Of a model, what its fallback needs as well.
const OF_PROVIDER: [&str; 4] = ["base_url", "api_key", "key_env", "api_mode"];

// === impl Hermes ===

impl AgentProfile for Hermes {
    fn id(&self) -> &'static str {
        "hermes"
    }

    fn name(&self) -> &'static str {
        "Hermes"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["hermes"]
    }

    fn traces(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        vec![folder(surroundings)]
    }

    fn settings(
        &self,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Settings, WiringError> {
        let path = folder(surroundings).join("config.yaml");
        let config = read(&path, Format::Yaml)?;
        let former = &config["model"];
        let current = former.as_str().or_else(|| former["default"].as_str());
        let name = model(target, current)?;
        let ours = [
            ("default", json!(name)),
            ("provider", json!("custom")),
            ("base_url", json!(target.base_url(Api::OpenaiCompletions))),
            ("api_key", json!(target.shown_key())),
        ];
        let mut keys_to_set = Vec::new();
        if former.is_null() || former.is_object() {
            keys_to_set.extend(ours.map(|(key, value)| KeyToSet::is(&["model", key], value)));
            // The API follows from the address, unless it is named.
            if !former["api_mode"].is_null() {
                keys_to_set.push(KeyToSet::is(&["model", "api_mode"], "chat_completions"));
            }
            keys_to_set.push(KeyToSet::is(
                &["model", "default_headers", "X-Agent-Id"],
                self.id(),
            ));
        } else {
            let mut whole: Map<String, Value> = ours
                .map(|(key, value)| (key.to_owned(), value))
                .into_iter()
                .collect();
            whole.insert(
                "default_headers".to_owned(),
                json!({"X-Agent-Id": self.id()}),
            );
            keys_to_set.push(KeyToSet::is(&["model"], Value::Object(whole)));
        }
        if let Some(next) = fallback(former) {
            keys_to_set.push(KeyToSet::first(&["fallback_providers"], next));
        }
        Ok(Settings::of(path, Format::Yaml, keys_to_set))
    }

    fn facts(&self) -> Facts {
        Facts {
            fallback: "the former model, where `model.provider` named its provider",
            session: BY_HISTORY,
            side_calls: "sub-agents, titles, compaction, reviews of memory and skills",
            takes_effect: NEXT_START,
            tested: Some("hermes-agent==0.19.0"),
        }
    }
}

/// The model that was asked, as an entry of `fallback_providers`; none where its provider is not named.
fn fallback(former: &Value) -> Option<Value> {
    let provider = former["provider"]
        .as_str()
        .filter(|it| !it.is_empty() && *it != "auto")?;
    let model = former["default"].as_str().filter(|it| !it.is_empty())?;
    let mut entry = json!({"provider": provider, "model": model});
    for name in OF_PROVIDER {
        if let Some(value) = former[name].as_str().filter(|it| !it.is_empty()) {
            entry[name] = json!(value);
        }
    }
    Some(entry)
}

fn folder(surroundings: &Surroundings) -> PathBuf {
    surroundings.folder("HERMES_HOME", ".hermes")
}
