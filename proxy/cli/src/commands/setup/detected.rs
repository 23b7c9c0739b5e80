//! What the agent itself is set to: the answers that are preset where the settings say nothing.

use metaclaw_chat::Secret;
use metaclaw_settings::providers;
use metaclaw_wiring::{Api, Credential, Found, Standing};

use crate::{
    agent::{find, surroundings},
    commands::context::Context,
};

/// The model that an agent asks today.
#[derive(Debug, Clone)]
pub(super) struct Detected {
    /// As in `llm.provider`, where it is one that has a name there.
    pub provider: Option<String>,
    pub api_base: String,
    pub model: String,
    /// As in `upstreams.llm.dialect`, where its address does not tell it.
    pub dialect: Option<&'static str>,
    /// Its key; none where the agent keeps a login to itself.
    pub key: Option<Secret>,
}

/// The agent of this machine, before it was pointed at us; none where there is none.
///
/// # Errors
///
/// When there is one and its model cannot be read.
pub(super) fn agent(context: &Context) -> anyhow::Result<Option<Found>> {
    // While it is pointed at us, its file says nothing of what it asked before; our settings do.
    if context.home.wiring().standing()? != Standing::Unwired {
        return Ok(None);
    }
    Ok(find(&surroundings(&context.environment))?)
}

/// What was found, in a line.
pub(super) fn told(found: &Found) -> String {
    let name = found.agent.name();
    let key = match &found.credential {
        Credential::Key { key, from } => format!("key {key}, {from}"),
        Credential::Reference(_) | Credential::Login => {
            "by a login of its own, which passes through us where no key is given".to_owned()
        }
    };
    format!(
        "{name} asks {} at {} today ({key}): that is preset.",
        found.model, found.base_url
    )
}

// === impl Detected ===

impl From<&Found> for Detected {
    fn from(found: &Found) -> Self {
        let known = providers::at(&found.base_url);
        let is_messages = found.api == Api::AnthropicMessages;
        Self {
            provider: known.map(|it| it.name.to_owned()),
            api_base: found.base_url.clone(),
            model: found.model.clone(),
            dialect: (is_messages && known.is_none()).then_some("anthropic"),
            key: match &found.credential {
                Credential::Key { key, .. } => Some(key.clone()),
                Credential::Reference(_) | Credential::Login => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    /// What is found in a folder with this `openclaw.json`.
    fn found(text: &str) -> anyhow::Result<Option<Found>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("openclaw.json");
        std::fs::write(&file, text).unwrap();
        let file = file.display().to_string();
        let environment = Environment::from_pairs([("OPENCLAW_CONFIG_PATH", file.as_str())]);
        let home = Some(folder.path().join("home"));
        agent(&Context::new(environment, home, None))
    }

    fn detected(provider: &str) -> (Detected, String) {
        let text = format!(
            "{{agents: {{defaults: {{model: 'p/m'}}}}, models: {{providers: {{p: {provider}}}}}}}"
        );
        let found = found(&text).unwrap().unwrap();
        (Detected::from(&found), told(&found))
    }

    #[test]
    fn what_openclaw_asks_is_what_is_preset() {
        let (it, told) = detected(
            "{baseUrl: 'https://api.deepseek.com/v1/', apiKey: 'sk-0123456789abcd', api: 'openai-completions'}",
        );
        assert_eq!(it.provider.as_deref(), Some("deepseek"));
        assert_eq!(
            (it.api_base.as_str(), it.model.as_str(), it.dialect),
            ("https://api.deepseek.com/v1", "m", None)
        );
        assert_eq!(it.key.unwrap().expose(), "sk-0123456789abcd");
        insta::assert_snapshot!(told, @"OpenClaw asks m at https://api.deepseek.com/v1 today (key sk-…abcd, OpenClaw's file): that is preset.");
    }

    #[test]
    fn a_login_gives_no_key_and_an_unknown_address_its_dialect() {
        let (it, told) = detected("{baseUrl: 'https://mine.example', api: 'anthropic-messages'}");
        assert!(it.provider.is_none() && it.key.is_none(), "{it:?}");
        assert_eq!(it.dialect, Some("anthropic"));
        assert!(told.contains("by a login of its own"), "{told}");
        let (it, _) = detected("{baseUrl: 'https://api.anthropic.com', api: 'anthropic-messages'}");
        assert_eq!(
            (it.provider.as_deref(), it.dialect),
            (Some("anthropic"), None)
        );
    }

    #[test]
    fn one_that_cannot_be_read_is_no_silence() {
        let error = found("{agents: {}}").unwrap_err().to_string();
        assert!(error.contains("names no model"), "{error}");
        let nobody = Environment::from_pairs([("OPENCLAW_CONFIG_PATH", "/nonexistent")]);
        let home = Some("/nonexistent".into());
        assert_eq!(agent(&Context::new(nobody, home, None)).unwrap(), None);
    }
}
