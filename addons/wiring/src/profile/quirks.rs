//! Reads the present settings of an agent: the words that its row in `data/agents.yaml` needs, and notes for its owner.

use serde_json::{Value, json};

use crate::{
    outcome::WiringError,
    settings::{Settings, read},
    target::Target,
};

/// Adds the words of the agent `id`, whose files `settings` names.
///
/// # Errors
///
/// Returns [`WiringError`] if a file cannot be read, or if no model name is known.
pub(super) fn add(
    id: &str,
    target: &Target,
    words: &mut Value,
    settings: &mut Settings,
) -> Result<(), WiringError> {
    let values = |index: usize| match settings.files.get(index) {
        Some(file) => read(&file.path, file.format),
        None => Ok(Value::Null),
    };
    let model = |current: Option<&str>| {
        let current = current.filter(|name| !name.is_empty()).map(str::to_owned);
        target.model.clone().or(current).ok_or(WiringError::NoModel)
    };
    match id {
        "claude-code" => words["headers"] = json!(claude_code_headers(&values(0)?["env"])),
        "codex" => {
            let config = values(0)?;
            add_codex_login(&config, target, words);
            settings.notes.extend(codex_notes(&config));
        }
        "opencode" => {
            let config = values(0)?;
            let former = config["model"]
                .as_str()
                .and_then(|name| name.split_once('/'));
            words["model"] = json!(model(former.map(|(_, name)| name))?);
            words["limit"] = opencode_limit(&config, former);
            if let Some(small) = config["small_model"].as_str() {
                let note = "titles do not come through MetaClaw";
                settings
                    .notes
                    .push(format!("small_model stays {small}: {note}"));
            }
        }
        "hermes" => {
            let former = &values(0)?["model"];
            let current = former.as_str().or_else(|| former["default"].as_str());
            words["model"] = json!(model(current)?);
            let is_table = former.is_null() || former.is_object();
            words["model_is_table"] = json!(is_table.then_some(true));
            words["model_is_text"] = json!((!is_table).then_some(true));
            words["has_api_mode"] = former["api_mode"].clone();
            words["next"] = json!(hermes_fallback(former));
        }
        "copaw" | "qwenpaw" => words["model"] = json!(model(values(1)?["model"].as_str())?),
        "nanobot" => {
            let config = values(0)?;
            let defaults = &config["agents"]["defaults"];
            let preset = defaults["modelPreset"].as_str();
            let preset = preset.filter(|name| !name.is_empty() && *name != "default");
            let former = preset.map_or(defaults, |name| &config["modelPresets"][name]);
            words["model"] = json!(model(former["model"].as_str())?);
            for field in NANOBOT_PRESET {
                words[field] = former[field].clone();
            }
            words["next"] = json!(nanobot_fallback(preset, defaults));
        }
        "aider" => {
            let config = values(0)?;
            let current = config["model"].as_str();
            let name = current.map(|name| name.strip_prefix("openai/").unwrap_or(name));
            words["model"] = json!(model(name)?);
            let others = values(1)?;
            let mut others = others.as_array().into_iter().flatten();
            if others.any(|entry| entry["name"] == "aider/extra_params") {
                let path = settings
                    .files
                    .get(1)
                    .map(|file| file.path.display().to_string());
                settings.notes.push(format!(
                    "{}: extra_params for all models are set already: add the header X-Agent-Id: aider to them",
                    path.unwrap_or_default()
                ));
            } else {
                words["has_no_parameters"] = json!(true);
            }
        }
        "llm" => words["model"] = json!(model(values(1)?.as_str())?),
        _ => {}
    }
    Ok(())
}

/// Returns the headers that are set already, one on each line, with ours added once. An agent that is wired already has
/// ours.
fn claude_code_headers(env: &Value) -> String {
    const NAME: &str = "X-Agent-Id";
    let is_ours = |header: &&str| {
        let name = header.split(':').next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case(NAME)
    };
    let present = env["ANTHROPIC_CUSTOM_HEADERS"].as_str().unwrap_or_default();
    let others = present
        .split('\n')
        .filter(|header| !header.trim().is_empty() && !is_ours(header));
    let own = format!("{NAME}: claude-code");
    others.chain([own.as_str()]).collect::<Vec<_>>().join("\n")
}

/// Adds the headers, and how Codex authenticates today, if the same provider gets it.
fn add_codex_login(config: &Value, target: &Target, words: &mut Value) {
    let name = config["model_provider"].as_str().unwrap_or("openai");
    let former = &config["model_providers"][name];
    words["headers"] = json!({});
    if target.is_own && target.key.is_none() && !target.has_provider_key {
        for field in CODEX_LOGIN {
            words[field] = former[field].clone();
        }
        if former.is_null() {
            words["requires_openai_auth"] = json!(true);
        }
        if former["http_headers"].is_object() {
            words["headers"] = former["http_headers"].clone();
        }
    }
    words["headers"]["X-Agent-Id"] = json!("codex");
}

const CODEX_LOGIN: [&str; 5] = [
    "experimental_bearer_token",
    "env_key",
    "env_http_headers",
    "query_params",
    "requires_openai_auth",
];

fn codex_notes(config: &Value) -> Vec<String> {
    let profiles = config["profiles"].as_object().into_iter().flatten();
    let with_provider = profiles.filter(|(_, profile)| !profile["model_provider"].is_null());
    let notes = with_provider.map(|(name, _)| {
        format!("profile {name} names a provider of its own, which is left as it is")
    });
    notes.collect()
}

/// Returns the limits of the model. opencode requires both numbers.
fn opencode_limit(config: &Value, former: Option<(&str, &str)>) -> Value {
    let described = former.map_or(&Value::Null, |(provider, model)| {
        &config["provider"][provider]["models"][model]["limit"]
    });
    if described.is_object() {
        described.clone()
    } else {
        json!({"context": 200_000, "output": 32_000})
    }
}

/// Returns the former model as an entry of `fallback_providers`, or `None` if its provider is not named.
fn hermes_fallback(former: &Value) -> Option<Value> {
    let text = |name: &str| former[name].as_str().filter(|text| !text.is_empty());
    let provider = text("provider").filter(|name| *name != "auto")?;
    let mut entry = json!({"provider": provider, "model": text("default")?});
    for name in ["base_url", "api_key", "key_env", "api_mode"] {
        if let Some(value) = text(name) {
            entry[name] = json!(value);
        }
    }
    Some(entry)
}

const NANOBOT_PRESET: [&str; 4] = [
    "maxTokens",
    "contextWindowTokens",
    "temperature",
    "reasoningEffort",
];

fn nanobot_fallback(preset: Option<&str>, defaults: &Value) -> Option<Value> {
    if let Some(preset) = preset {
        return Some(json!(preset));
    }
    let model = defaults["model"].as_str()?;
    let provider = defaults["provider"].as_str().unwrap_or("auto");
    Some(json!({"model": model, "provider": provider}))
}
