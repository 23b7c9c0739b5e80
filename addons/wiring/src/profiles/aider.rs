//! aider: its own settings, and a header for all models.

use std::path::PathBuf;

use serde_json::json;

use crate::{
    agent::Surroundings,
    format::Format,
    found::Api,
    keys::KeyToSet,
    outcome::WiringError,
    profile::{AgentProfile, BY_HISTORY, Facts, NEXT_START, NONE, Settings, model, read},
    target::Target,
};

#[derive(Debug)]
pub(super) struct Aider;

// === impl Aider ===

impl AgentProfile for Aider {
    fn id(&self) -> &'static str {
        "aider"
    }

    fn name(&self) -> &'static str {
        "aider"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["aider"]
    }

    fn traces(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        let home = &surroundings.home;
        vec![home.join(".aider"), home.join(".aider.conf.yml")]
    }

    fn settings(
        &self,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Settings, WiringError> {
        let path = surroundings.home.join(".aider.conf.yml");
        let config = read(&path, Format::Yaml)?;
        let current = config["model"].as_str();
        let name = model(
            target,
            current.map(|it| it.strip_prefix("openai/").unwrap_or(it)),
        )?;
        let keys_to_set = vec![
            KeyToSet::is(
                &["openai-api-base"],
                target.base_url(Api::OpenaiCompletions),
            ),
            KeyToSet::is(&["openai-api-key"], target.shown_key()),
            KeyToSet::is(&["model"], format!("openai/{name}")),
        ];
        let header = json!({
            "name": "aider/extra_params",
            "extra_params": {"extra_headers": {"X-Agent-Id": self.id()}},
        });
        let of_models = surroundings.home.join(".aider.model.settings.yml");
        let mut settings = Settings::of(path, Format::Yaml, keys_to_set);
        let others = read(&of_models, Format::Yaml)?;
        let mut others = others.as_array().into_iter().flatten();
        if others.any(|it| it["name"] == header["name"]) {
            let said = "extra_params for all models are set already: add the header X-Agent-Id: aider to them";
            settings
                .notes
                .push(format!("{}: {said}", of_models.display()));
        } else {
            settings = settings.and(of_models, Format::Yaml, vec![KeyToSet::first(&[], header)]);
        }
        settings
            .notes
            .push("a repository's own .aider.conf.yml goes before".to_owned());
        Ok(settings)
    }

    fn facts(&self) -> Facts {
        Facts {
            fallback: NONE,
            session: BY_HISTORY,
            side_calls: "commit messages, summaries",
            takes_effect: NEXT_START,
            tested: Some("aider-chat==0.86.2"),
        }
    }
}
