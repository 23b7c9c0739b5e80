//! The addition to `openclaw.json`: either our own provider, or one more model of the former provider if its login is
//! in a store that only OpenClaw can read.

use serde_json::{Map, Value, json};

use super::{
    detect,
    known::{self, METACLAW},
};
use crate::{
    format::Format,
    found::{Credential, Found},
    keys::{KeyToSet, Models, ValueToSet},
    outcome::WiringError,
    settings::{FileSettings, Settings},
    surroundings::Surroundings,
    target::Target,
};

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

/// Adds the keys of `openclaw.json` that make OpenClaw use `target`. They depend on the model in its settings.
///
/// # Errors
///
/// Returns [`WiringError`] if the keys would make every turn fail, or if `openclaw.json` is missing or names no usable
/// model.
pub(crate) fn add(
    surroundings: &Surroundings,
    target: &Target,
    settings: &mut Settings,
) -> Result<(), WiringError> {
    let found = detect(surroundings)?.ok_or(WiringError::NoOpenClaw)?;
    if target.key.is_some() && !target.has_provider_key {
        return Err(WiringError::KeyedLogin);
    }
    let (provider, value) = if is_provider(&found, target) {
        let place = ["models", "providers", METACLAW].map(str::to_owned);
        (
            Vec::from(place),
            ValueToSet::Own(provider_entry(&found, target)),
        )
    } else if target.model.is_some() {
        let place = ["models", "providers", &found.provider, "models"].map(str::to_owned);
        (
            Vec::from(place),
            ValueToSet::First(model_beside(&found, target)),
        )
    } else {
        return Err(WiringError::NoModel);
    };
    let model = ["agents", "defaults", "model"].map(str::to_owned);
    let models = ValueToSet::Model(models(&found, target));
    settings.asks = Some(found.asks());
    settings.files = vec![FileSettings {
        path: found.file,
        format: Format::Json,
        keys_to_set: vec![
            KeyToSet {
                path: provider,
                value,
            },
            KeyToSet {
                path: model.into(),
                value: models,
            },
        ],
    }];
    settings.own_key = found.entry["apiKey"].as_str().map(str::to_owned);
    settings.notes.extend(found.notes);
    Ok(())
}

/// Returns the names by which OpenClaw asks its model: through the proxy, and without it.
pub fn models(found: &Found, target: &Target) -> Models {
    let Found {
        provider, model, ..
    } = found;
    Models {
        ours: if is_provider(found, target) {
            format!("{METACLAW}/{model}")
        } else {
            format!("{provider}/{METACLAW}-{model}")
        },
        former: format!("{provider}/{model}"),
    }
}

/// Returns whether the proxy becomes a provider of its own. Otherwise it becomes one more model of the existing
/// provider, and OpenClaw sends that provider's credential.
fn is_provider(found: &Found, target: &Target) -> bool {
    // A provider of OpenClaw's own catalog stays the provider, because OpenClaw knows its API. A provider whose
    // login OpenClaw stores stays too, if that login is needed at the upstream.
    let shows_login = !target.has_provider_key && found.credential == Credential::Login;
    target.key.is_some() || (!found.model_entry.is_null() && !shows_login)
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
    if !model["compat"].is_object() {
        model["compat"] = json!({});
    }
    model["compat"]["sendSessionAffinityHeaders"] = json!(true);
}
