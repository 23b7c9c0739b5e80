//! nanobot: a provider and a preset of its own, and the former model next.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    agent::Surroundings,
    format::Format,
    found::Api,
    keys::KeyToSet,
    outcome::WiringError,
    profile::{AgentProfile, Facts, Settings, model, read},
    target::Target,
};

#[derive(Debug)]
pub(super) struct Nanobot;

/// Of the defaults, what a preset has as well.
const OF_PRESET: [&str; 4] = [
    "maxTokens",
    "contextWindowTokens",
    "temperature",
    "reasoningEffort",
];

// === impl Nanobot ===

impl AgentProfile for Nanobot {
    fn id(&self) -> &'static str {
        "nanobot"
    }

    fn name(&self) -> &'static str {
        "nanobot"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["nanobot"]
    }

    fn traces(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        vec![folder(surroundings)]
    }

    fn settings(
        &self,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Settings, WiringError> {
        let path = folder(surroundings).join("config.json");
        let config = read(&path, Format::Json)?;
        let defaults = &config["agents"]["defaults"];
        let preset = defaults["modelPreset"]
            .as_str()
            .filter(|it| !it.is_empty() && *it != "default");
        let former = preset.map_or(defaults, |it| &config["modelPresets"][it]);
        let name = model(target, former["model"].as_str())?;
        let mut ours = json!({"model": name, "provider": "metaclaw"});
        for field in OF_PRESET {
            if !former[field].is_null() {
                ours[field] = former[field].clone();
            }
        }
        let provider = json!({
            "apiBase": target.base_url(Api::OpenaiCompletions),
            "apiKey": target.shown_key(),
            "extraHeaders": {"X-Agent-Id": self.id()},
        });
        let mut keys_to_set = vec![
            KeyToSet::own(&["providers", "metaclaw"], provider),
            KeyToSet::own(&["modelPresets", "metaclaw"], ours),
            KeyToSet::is(&["agents", "defaults", "modelPreset"], "metaclaw"),
        ];
        if let Some(next) = fallback(preset, defaults) {
            keys_to_set.push(KeyToSet::first(
                &["agents", "defaults", "fallbackModels"],
                next,
            ));
        }
        Ok(Settings::of(path, Format::Json, keys_to_set))
    }

    fn facts(&self) -> Facts {
        Facts {
            fallback: "the former model",
            session: "by what was said: the name that it sends is one for a whole process",
            side_calls: "sub-agents, checkpoints, Dream, notification gate, calendar",
            takes_effect: "at its next start, or the gateway's",
            tested: Some("nanobot-ai==0.3.5"),
        }
    }
}

/// The model that was asked; none where the file names none.
fn fallback(preset: Option<&str>, defaults: &Value) -> Option<Value> {
    if let Some(preset) = preset {
        return Some(json!(preset));
    }
    let model = defaults["model"].as_str()?;
    let provider = defaults["provider"].as_str().unwrap_or("auto");
    Some(json!({"model": model, "provider": provider}))
}

fn folder(surroundings: &Surroundings) -> PathBuf {
    surroundings.home.join(".nanobot")
}
