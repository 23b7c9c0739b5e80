//! PicoClaw, by its documentation: one entry more in its list of models, and the name of it.

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
pub(super) struct PicoClaw;

// === impl PicoClaw ===

impl AgentProfile for PicoClaw {
    fn id(&self) -> &'static str {
        "picoclaw"
    }

    fn name(&self) -> &'static str {
        "PicoClaw"
    }

    fn programs(&self) -> &'static [&'static str] {
        // A package of PyPI has this name as well, and is another program: the folder tells it.
        &[]
    }

    fn traces(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        vec![folder(surroundings).join("config.json")]
    }

    fn settings(
        &self,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Settings, WiringError> {
        let path = match surroundings.get("PICOCLAW_CONFIG") {
            Some(named) => surroundings.path(named),
            None => folder(surroundings).join("config.json"),
        };
        let config = read(&path, Format::Json)?;
        let former = config["agents"]["defaults"]["model_name"].as_str();
        let mut listed = config["model_list"].as_array().into_iter().flatten();
        let current = listed.find(|it| it["model_name"].as_str() == former);
        let current = current.and_then(|it| it["model"].as_str());
        // As in `openai/gpt-5.2`: the API, and the name.
        let name = model(
            target,
            current.map(|it| it.split_once('/').map_or(it, |(_, name)| name)),
        )?;
        let entry = json!({
            "model_name": "metaclaw",
            "model": format!("openai/{name}"),
            "api_base": target.base_url(Api::OpenaiCompletions),
            "api_key": target.shown_key(),
        });
        let keys_to_set = vec![
            KeyToSet::first(&["model_list"], entry),
            KeyToSet::is(&["agents", "defaults", "model_name"], "metaclaw"),
        ];
        Ok(Settings::of(path, Format::Json, keys_to_set))
    }

    fn facts(&self) -> Facts {
        Facts {
            fallback: NONE,
            session: BY_HISTORY,
            side_calls: "not known",
            takes_effect: "after `picoclaw gateway restart`",
            tested: None,
        }
    }
}

fn folder(surroundings: &Surroundings) -> PathBuf {
    surroundings.folder("PICOCLAW_HOME", ".picoclaw")
}
