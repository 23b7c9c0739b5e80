//! NanoClaw, by its documentation: variables of the `.env` in the folder that it was cloned to.

use std::path::PathBuf;

use crate::{
    agent::Surroundings,
    format::Format,
    keys::KeyToSet,
    outcome::WiringError,
    profile::{AgentProfile, BY_HEADER, Facts, NONE, Settings},
    target::Target,
};

#[derive(Debug)]
pub(super) struct NanoClaw;

/// Where people clone it to.
const FOLDERS: [&str; 3] = ["nanoclaw", "code/nanoclaw", ".nanoclaw"];

// === impl NanoClaw ===

impl AgentProfile for NanoClaw {
    fn id(&self) -> &'static str {
        "nanoclaw"
    }

    fn name(&self) -> &'static str {
        "NanoClaw"
    }

    fn programs(&self) -> &'static [&'static str] {
        &[]
    }

    fn traces(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        FOLDERS
            .iter()
            .map(|it| surroundings.home.join(it))
            .collect()
    }

    fn settings(
        &self,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Settings, WiringError> {
        let folder = Surroundings::first_of(&surroundings.home, &FOLDERS);
        let mut keys_to_set = vec![KeyToSet::is(
            &["ANTHROPIC_BASE_URL"],
            target.origin.as_str(),
        )];
        if target.key.is_some() || target.has_provider_key {
            keys_to_set.push(KeyToSet::is(&["ANTHROPIC_API_KEY"], target.shown_key()));
        }
        let mut settings = Settings::of(folder.join(".env"), Format::Env, keys_to_set);
        let said = "it sends no name of its own: its turns are the agent's that nobody named";
        settings.notes.push(said.to_owned());
        Ok(settings)
    }

    fn facts(&self) -> Facts {
        Facts {
            fallback: NONE,
            session: BY_HEADER,
            side_calls: "those of Claude Code, whose SDK it is made of",
            takes_effect: "when its service is started again",
            tested: None,
        }
    }
}
