//! ZeroClaw, by the documentation of its release 0.1: three keys of its `config.toml`.

use std::path::PathBuf;

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
pub(super) struct ZeroClaw;

// === impl ZeroClaw ===

impl AgentProfile for ZeroClaw {
    fn id(&self) -> &'static str {
        "zeroclaw"
    }

    fn name(&self) -> &'static str {
        "ZeroClaw"
    }

    fn programs(&self) -> &'static [&'static str] {
        // A package of PyPI has this name as well, and is another program: the folder tells it.
        &[]
    }

    fn traces(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        vec![folder(surroundings).join("config.toml")]
    }

    fn settings(
        &self,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Settings, WiringError> {
        let path = folder(surroundings).join("config.toml");
        let config = read(&path, Format::Toml)?;
        if config["providers"].is_object() {
            return Err(WiringError::NotWritten {
                path,
                what: "a table `providers`, as releases after 0.1 have it",
            });
        }
        let name = model(target, config["default_model"].as_str())?;
        let address = target.base_url(Api::OpenaiCompletions);
        let keys_to_set = vec![
            KeyToSet::is(&["default_provider"], format!("custom:{address}")),
            KeyToSet::is(&["default_model"], name),
            KeyToSet::is(&["api_key"], target.shown_key()),
        ];
        Ok(Settings::of(path, Format::Toml, keys_to_set))
    }

    fn facts(&self) -> Facts {
        Facts {
            fallback: NONE,
            session: BY_HISTORY,
            side_calls: "not known",
            takes_effect: "after `zeroclaw service restart`",
            tested: None,
        }
    }
}

fn folder(surroundings: &Surroundings) -> PathBuf {
    surroundings.folder("ZEROCLAW_CONFIG_DIR", ".zeroclaw")
}
