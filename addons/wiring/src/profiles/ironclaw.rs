//! IronClaw, by its documentation: variables of its `.env`.

use std::path::PathBuf;

use crate::{
    agent::Surroundings,
    format::Format,
    found::Api,
    keys::KeyToSet,
    outcome::WiringError,
    profile::{
        AgentProfile, BY_HISTORY, Facts, NEXT_START, NONE, Settings, model, read, with_header,
    },
    target::Target,
};

#[derive(Debug)]
pub(super) struct IronClaw;

// === impl IronClaw ===

impl AgentProfile for IronClaw {
    fn id(&self) -> &'static str {
        "ironclaw"
    }

    fn name(&self) -> &'static str {
        "IronClaw"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["ironclaw"]
    }

    fn traces(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        vec![folder(surroundings)]
    }

    fn settings(
        &self,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Settings, WiringError> {
        let path = folder(surroundings).join(".env");
        let now = read(&path, Format::Env)?;
        let name = model(target, now["LLM_MODEL"].as_str())?;
        let header = format!("X-Agent-Id:{}", self.id());
        let headers = with_header(now["LLM_EXTRA_HEADERS"].as_str(), ",", &header);
        let keys_to_set = vec![
            KeyToSet::is(&["LLM_BACKEND"], "openai_compatible"),
            KeyToSet::is(&["LLM_BASE_URL"], target.base_url(Api::OpenaiCompletions)),
            KeyToSet::is(&["LLM_API_KEY"], target.shown_key()),
            KeyToSet::is(&["LLM_MODEL"], name),
            KeyToSet::is(&["LLM_EXTRA_HEADERS"], headers),
        ];
        Ok(Settings::of(path, Format::Env, keys_to_set))
    }

    fn facts(&self) -> Facts {
        Facts {
            fallback: NONE,
            session: BY_HISTORY,
            side_calls: "not known",
            takes_effect: NEXT_START,
            tested: None,
        }
    }
}

fn folder(surroundings: &Surroundings) -> PathBuf {
    surroundings.home.join(".ironclaw")
}
