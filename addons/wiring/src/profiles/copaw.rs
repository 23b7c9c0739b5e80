//! CoPaw and QwenPaw, which is its newer name: a provider in a file of its own, and the file that says which is asked.

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

/// One of the two names.
#[derive(Debug)]
pub(super) struct Paw {
    id: &'static str,
    name: &'static str,
    programs: &'static [&'static str],
    /// Variables that name its folder, and the folder of its keys.
    variables: [&'static str; 2],
    /// Its folder below the user's own; the first that is there counts.
    folders: &'static [&'static str],
    side_calls: &'static str,
    package: &'static str,
}

pub(super) const COPAW: Paw = Paw {
    id: "copaw",
    name: "CoPaw",
    programs: &["copaw"],
    variables: ["COPAW_WORKING_DIR", "COPAW_SECRET_DIR"],
    folders: &[".copaw"],
    side_calls: "none seen",
    package: "copaw==1.0.2",
};

pub(super) const QWENPAW: Paw = Paw {
    id: "qwenpaw",
    name: "QwenPaw",
    programs: &["qwenpaw"],
    variables: ["QWENPAW_WORKING_DIR", "QWENPAW_SECRET_DIR"],
    // It goes on with CoPaw's, where there is one.
    folders: &[".copaw", ".qwenpaw"],
    side_calls: "titles",
    package: "qwenpaw==2.2.2.post1",
};

// === impl Paw ===

impl Paw {
    fn folder(&self, surroundings: &Surroundings) -> PathBuf {
        let [variable, _] = self.variables;
        if let Some(named) = surroundings.get(variable) {
            return surroundings.path(named);
        }
        let mut usual = self.folders.iter().map(|it| surroundings.home.join(it));
        let is_there = usual.clone().find(|it| it.exists());
        is_there.or_else(|| usual.next_back()).unwrap_or_default()
    }

    /// Where its keys are: beside its folder.
    fn providers(&self, surroundings: &Surroundings) -> PathBuf {
        let [_, variable] = self.variables;
        let secret = surroundings.get(variable).map(|it| surroundings.path(it));
        let beside = || {
            let mut folder = self.folder(surroundings).into_os_string();
            folder.push(".secret");
            folder.into()
        };
        secret.unwrap_or_else(beside).join("providers")
    }
}

impl AgentProfile for Paw {
    fn id(&self) -> &'static str {
        self.id
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn programs(&self) -> &'static [&'static str] {
        self.programs
    }

    fn traces(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        let own = self.folders.last().map(|it| surroundings.home.join(it));
        let mut traces: Vec<PathBuf> = own.into_iter().collect();
        let [variable, _] = self.variables;
        traces.extend(surroundings.get(variable).map(|it| surroundings.path(it)));
        traces
    }

    fn settings(
        &self,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Settings, WiringError> {
        let providers = self.providers(surroundings);
        let active = providers.join("active_model.json");
        let now = read(&active, Format::Json)?;
        let name = model(target, now["model"].as_str())?;
        let headers = json!({"X-Agent-Id": self.id});
        let provider = json!({
            "id": "metaclaw",
            "name": "MetaClaw",
            "base_url": target.base_url(Api::OpenaiCompletions),
            "api_key": target.shown_key(),
            "chat_model": "OpenAIChatModel",
            "is_custom": true,
            "extra_models": [{"id": name, "name": name}],
            "generate_kwargs": {"extra_headers": headers},
        });
        let mut settings = Settings::of(
            providers.join("custom").join("metaclaw.json"),
            Format::Json,
            vec![KeyToSet::own(&[], provider)],
        )
        .and(
            active,
            Format::Json,
            vec![
                KeyToSet::is(&["provider_id"], "metaclaw"),
                KeyToSet::is(&["model"], name),
            ],
        );
        let of_agents = "an agent with a model of its own (agent.json in its workspace) keeps it";
        settings.notes.push(of_agents.to_owned());
        Ok(settings)
    }

    fn facts(&self) -> Facts {
        Facts {
            fallback: NONE,
            session: BY_HISTORY,
            side_calls: self.side_calls,
            takes_effect: "at the app's next start",
            tested: Some(self.package),
        }
    }
}
