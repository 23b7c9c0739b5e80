//! opencode: a provider of its own in `opencode.json`, asked by chat completions.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    agent::Surroundings,
    format::Format,
    found::Api,
    keys::KeyToSet,
    outcome::WiringError,
    profile::{AgentProfile, BY_HEADER, Facts, NEXT_START, NONE, Settings, model, read},
    target::Target,
};

#[derive(Debug)]
pub(super) struct OpenCode;

/// What a model is taken to hold that the file does not describe: opencode asks for both numbers.
const CONTEXT: u64 = 200_000;
const OUTPUT: u64 = 32_000;

// === impl OpenCode ===

impl AgentProfile for OpenCode {
    fn id(&self) -> &'static str {
        "opencode"
    }

    fn name(&self) -> &'static str {
        "opencode"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["opencode"]
    }

    fn traces(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        let data = surroundings.folder("XDG_DATA_HOME", ".local/share");
        vec![folder(surroundings), data.join("opencode")]
    }

    fn settings(
        &self,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Settings, WiringError> {
        let path = match surroundings.get("OPENCODE_CONFIG") {
            Some(named) => surroundings.path(named),
            // Read after opencode.json, so that it counts where both are there.
            None => {
                Surroundings::first_of(&folder(surroundings), &["opencode.jsonc", "opencode.json"])
            }
        };
        let path = if path.exists() {
            path
        } else {
            path.with_extension("json")
        };
        let config = read(&path, Format::Json)?;
        let former = config["model"].as_str().and_then(|it| it.split_once('/'));
        let name = model(target, former.map(|(_, model)| model))?;
        let described = former.map_or(&Value::Null, |(provider, model)| {
            &config["provider"][provider]["models"][model]["limit"]
        });
        let limit = if described.is_object() {
            described.clone()
        } else {
            json!({"context": CONTEXT, "output": OUTPUT})
        };
        let options = json!({
            "baseURL": target.base_url(Api::OpenaiCompletions),
            "apiKey": target.shown_key(),
            "headers": {"X-Agent-Id": self.id()},
        });
        let mut models = json!({});
        models[&name] = json!({"name": name, "limit": limit});
        let provider = json!({
            "npm": "@ai-sdk/openai-compatible", "name": "MetaClaw", "options": options, "models": models,
        });
        let keys_to_set = vec![
            KeyToSet::is(&["model"], format!("metaclaw/{name}")),
            KeyToSet::own(&["provider", "metaclaw"], provider),
        ];
        let mut settings = Settings::of(path, Format::Json, keys_to_set);
        if let Some(small) = config["small_model"].as_str() {
            settings.notes.push(format!(
                "small_model stays {small}: titles do not come through MetaClaw"
            ));
        }
        Ok(settings)
    }

    fn facts(&self) -> Facts {
        Facts {
            fallback: NONE,
            session: BY_HEADER,
            side_calls: "sub-agents, titles, compaction, summaries",
            takes_effect: NEXT_START,
            tested: Some("opencode-ai@1.18.33"),
        }
    }
}

fn folder(surroundings: &Surroundings) -> PathBuf {
    surroundings
        .folder("XDG_CONFIG_HOME", ".config")
        .join("opencode")
}
