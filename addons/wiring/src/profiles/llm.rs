//! llm: a model more, which is the default.

use std::path::PathBuf;

use serde_json::json;

use crate::{
    agent::Surroundings,
    format::Format,
    found::Api,
    keys::KeyToSet,
    outcome::WiringError,
    profile::{AgentProfile, BY_HISTORY, Facts, NONE, Settings, model, read},
    target::Target,
};

#[derive(Debug)]
pub(super) struct Llm;

// === impl Llm ===

impl AgentProfile for Llm {
    fn id(&self) -> &'static str {
        "llm"
    }

    fn name(&self) -> &'static str {
        "llm"
    }

    fn programs(&self) -> &'static [&'static str] {
        // Other programs are called so as well: its folder tells it.
        &[]
    }

    fn traces(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        vec![folder(surroundings)]
    }

    fn settings(
        &self,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Settings, WiringError> {
        let folder = folder(surroundings);
        let default = folder.join("default_model.txt");
        let current = read(&default, Format::Line)?;
        let name = model(target, current.as_str())?;
        let entry = json!({
            "model_id": "metaclaw",
            "model_name": name,
            "api_base": target.base_url(Api::OpenaiCompletions),
            "headers": {"X-Agent-Id": self.id(), "Authorization": format!("Bearer {}", target.shown_key())},
            "supports_tools": true,
        });
        let models = folder.join("extra-openai-models.yaml");
        Ok(
            Settings::of(models, Format::Yaml, vec![KeyToSet::first(&[], entry)]).and(
                default,
                Format::Line,
                vec![KeyToSet::is(&[], "metaclaw")],
            ),
        )
    }

    fn facts(&self) -> Facts {
        Facts {
            fallback: NONE,
            session: BY_HISTORY,
            side_calls: "it makes none",
            takes_effect: "at once",
            tested: Some("llm==0.36"),
        }
    }
}

fn folder(surroundings: &Surroundings) -> PathBuf {
    match surroundings.get("LLM_USER_PATH") {
        Some(named) => surroundings.path(named),
        None => surroundings
            .folder("XDG_CONFIG_HOME", ".config")
            .join("io.datasette.llm"),
    }
}
