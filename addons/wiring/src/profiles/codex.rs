//! Codex: a provider of its own in `config.toml`, asked by Responses.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    agent::Surroundings,
    format::Format,
    found::Api,
    keys::KeyToSet,
    outcome::WiringError,
    profile::{AgentProfile, BY_HEADER, Facts, NEXT_START, NONE, Settings},
    target::Target,
};

#[derive(Debug)]
pub(super) struct Codex;

// === impl Codex ===

impl AgentProfile for Codex {
    fn id(&self) -> &'static str {
        "codex"
    }

    fn name(&self) -> &'static str {
        "Codex"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["codex"]
    }

    fn traces(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        vec![folder(surroundings)]
    }

    fn settings(
        &self,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Settings, WiringError> {
        let mut provider = json!({
            "name": "MetaClaw",
            "base_url": target.base_url(Api::OpenaiResponses),
            "wire_api": "responses",
            "http_headers": {"X-Agent-Id": self.id()},
        });
        let mut notes = Vec::new();
        if let Some(key) = &target.key {
            provider["experimental_bearer_token"] = json!(key.expose());
        } else if !target.has_provider_key {
            provider["env_key"] = json!("OPENAI_API_KEY");
            let upstream = target.upstream.as_deref().unwrap_or("its upstream");
            notes.push(format!(
                "MetaClaw has no key of its own: it passes what OPENAI_API_KEY holds on to {upstream}"
            ));
        }
        let keys_to_set = vec![
            KeyToSet::is(&["model_provider"], "metaclaw"),
            KeyToSet::own(&["model_providers", "metaclaw"], provider),
        ];
        let path = folder(surroundings).join("config.toml");
        let config = crate::profile::read(&path, Format::Toml)?;
        let profiles = config["profiles"].as_object().into_iter().flatten();
        let of_profiles = profiles.filter(|(_, it)| !matches!(it["model_provider"], Value::Null));
        notes.extend(of_profiles.map(|(name, _)| {
            format!("profile {name} names a provider of its own, which is left as it is")
        }));
        let mut settings = Settings::of(path, Format::Toml, keys_to_set);
        settings.notes = notes;
        Ok(settings)
    }

    fn facts(&self) -> Facts {
        Facts {
            fallback: NONE,
            session: BY_HEADER,
            side_calls: "sub-agents, compaction, reviews",
            takes_effect: NEXT_START,
            tested: Some("@openai/codex@0.169.0"),
        }
    }
}

fn folder(surroundings: &Surroundings) -> PathBuf {
    surroundings.folder("CODEX_HOME", ".codex")
}
