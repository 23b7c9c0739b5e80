//! The addition to `openclaw.json`: either our own provider, or one more model of the former provider if its login is
//! in a store that only OpenClaw can read.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::known;
use crate::{
    found::{Credential, Found},
    outcome::WiringError,
    target::Target,
};

pub(crate) const METACLAW: &str = "metaclaw";
/// Assumed context of a model in OpenClaw's own catalog, which other programs cannot read.
const CONTEXT_WINDOW: u64 = 200_000;
const MAX_TOKENS: u64 = 32_000;
/// Fields of a provider's entry that concern only the connection to the provider itself.
const NOT_OURS: [&str; 6] = [
    "baseUrl",
    "apiKey",
    "auth",
    "request",
    "localService",
    "models",
];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    pub(crate) value: Value,
    /// The model behind the proxy, and its provider.
    model: String,
    provider: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Place {
    /// `models.providers.metaclaw`.
    Provider,
    /// One more entry of `models.providers.<provider>.models`. It sends that provider's credential.
    Model { provider: String },
}

// === impl Entry ===

impl Entry {
    pub(crate) fn new(found: &Found, target: &Target) -> Self {
        // A provider of OpenClaw's own catalog stays the provider, because OpenClaw knows its API. A provider whose
        // login OpenClaw stores stays too, if that login is needed at the upstream.
        let shows_login = !target.has_provider_key && found.credential == Credential::Login;
        let is_ours = target.key.is_some() || (!found.model_entry.is_null() && !shows_login);
        let (place, value) = if is_ours {
            (Place::Provider, provider_entry(found, target))
        } else {
            let provider = found.provider.clone();
            (Place::Model { provider }, model_beside(found, target))
        };
        Self {
            place,
            value,
            model: found.model.clone(),
            provider: found.provider.clone(),
        }
    }

    pub(crate) fn provider(&self) -> &str {
        match &self.place {
            Place::Provider => METACLAW,
            Place::Model { provider } => provider,
        }
    }

    /// Returns the model's name through the proxy: `metaclaw/gpt-5.2`.
    pub(crate) fn reference(&self) -> String {
        match &self.place {
            Place::Provider => format!("{METACLAW}/{}", self.model),
            Place::Model { provider } => format!("{provider}/{METACLAW}-{}", self.model),
        }
    }

    /// Refuses an entry with which every turn would fail.
    pub(crate) fn check(&self, target: &Target) -> Result<(), WiringError> {
        if target.key.is_some() && !target.has_provider_key {
            return Err(WiringError::KeyedLogin);
        }
        let is_renamed = matches!(self.place, Place::Model { .. });
        if is_renamed && target.model.is_none() {
            return Err(WiringError::NoModel);
        }
        Ok(())
    }

    /// Returns the model's name without the proxy: `openai/gpt-5.2`.
    pub(crate) fn former(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }

    pub(crate) fn base_url(&self) -> &str {
        self.value["baseUrl"].as_str().unwrap_or_default()
    }

    pub(crate) fn is_in(&self, config: &Value) -> bool {
        let provider = &config["models"]["providers"][self.provider()];
        let found = match &self.place {
            Place::Provider => provider.clone(),
            Place::Model { .. } => {
                let models = provider["models"].as_array().into_iter().flatten();
                let mut ours = models.filter(|it| it["id"] == self.value["id"]);
                ours.next().cloned().unwrap_or_default()
            }
        };
        found["baseUrl"].as_str() == Some(self.base_url())
    }
}

fn provider_entry(found: &Found, target: &Target) -> Value {
    let mut entry = Map::new();
    entry.insert("baseUrl".to_owned(), json!(target.base_url(found.api)));
    entry.insert("apiKey".to_owned(), target.api_key(found));
    entry.insert("api".to_owned(), json!(found.api.as_str()));
    for (name, value) in found.entry.as_object().into_iter().flatten() {
        if !NOT_OURS.contains(&name.as_str()) && name != "api" {
            entry.insert(name.clone(), value.clone());
        }
    }
    let mut model = match &found.model_entry {
        Value::Null => json!({"id": found.model, "name": found.model}),
        own => own.clone(),
    };
    describe(&mut model, found, target);
    if let Some(fields) = model.as_object_mut() {
        fields.retain(|name, _| name != "baseUrl" && name != "api");
    }
    entry.insert("models".to_owned(), json!([model]));
    Value::Object(entry)
}

fn model_beside(found: &Found, target: &Target) -> Value {
    let mut model = json!({
        "id": format!("{METACLAW}-{}", found.model),
        "name": format!("{} by MetaClaw", found.model),
        "baseUrl": target.base_url(found.api),
        "api": found.api.as_str(),
    });
    describe(&mut model, found, target);
    model
}

/// Adds what the agent's file says of the model, and common values for what it does not say. The proxy's own settings
/// come first.
fn describe(model: &mut Value, found: &Found, target: &Target) {
    let sees = known::provider(&found.provider).is_some_and(|it| it.sees);
    let input: &[&str] = if sees { &["text", "image"] } else { &["text"] };
    let usual = json!({"input": input, "contextWindow": CONTEXT_WINDOW, "maxTokens": MAX_TOKENS});
    let described = found.model_entry.as_object().or_else(|| usual.as_object());
    for (name, value) in described.into_iter().flatten() {
        if model[name].is_null() {
            model[name] = value.clone();
        }
    }
    if let Some(context_window) = target.context_window {
        model["contextWindow"] = json!(context_window);
    }
    with_sessions(model);
}

fn with_sessions(model: &mut Value) {
    if !model["compat"].is_object() {
        model["compat"] = json!({});
    }
    model["compat"]["sendSessionAffinityHeaders"] = json!(true);
}
