//! OpenClaw (2026.9): the place of its configuration, and what it says about the model in use.

use std::path::PathBuf;

use serde_json::Value;

use self::known::METACLAW;
use crate::{
    found::{Api, DetectError, Found},
    surroundings::Surroundings,
};

pub(crate) mod entry;
mod include;
pub(crate) mod known;
mod secret;

/// The API that OpenClaw uses if none is configured.
const DEFAULT_API: &str = "openai-responses";
/// Names of its state folder: the present one, and an older one that it still reads.
const STATE_DIRS: [&str; 2] = [".openclaw", ".clawdbot"];
const FILE_NAMES: [&str; 2] = ["openclaw.json", "clawdbot.json"];

/// Reads OpenClaw's model. Returns `None` if it has no configuration. Nothing is changed.
///
/// # Errors
///
/// Returns [`DetectError`] if there is a configuration, but it names no model that MetaClaw can relay to.
pub fn detect(surroundings: &Surroundings) -> Result<Option<Found>, DetectError> {
    let Some(file) = config_file(surroundings) else {
        return Ok(None);
    };
    let config = include::read(&file, surroundings)?;
    found(file, &config, surroundings).map(Some)
}

/// Returns OpenClaw's configuration file, if there is one.
pub(crate) fn config_file(surroundings: &Surroundings) -> Option<PathBuf> {
    if let Some(named) = surroundings.get("OPENCLAW_CONFIG_PATH") {
        return Some(surroundings.path(named)).filter(|path| path.exists());
    }
    let home = surroundings
        .get("OPENCLAW_HOME")
        .map(|it| surroundings.path(it));
    let home = home.unwrap_or_else(|| surroundings.home.clone());
    let named = surroundings
        .get("OPENCLAW_STATE_DIR")
        .map(|it| surroundings.path(it));
    let usual = STATE_DIRS.iter().map(|name| home.join(name));
    let folders = named.into_iter().chain(usual);
    let mut files = folders.flat_map(|folder| FILE_NAMES.map(|name| folder.join(name)));
    files.find(|file| file.exists())
}

fn found(file: PathBuf, config: &Value, surroundings: &Surroundings) -> Result<Found, DetectError> {
    let refused = |why: String| DetectError::new(&file, why);
    let (provider, model) = primary(config)
        .ok_or_else(|| refused("it names no model (agents.defaults.model.primary)".to_owned()))?;
    let entry = config["models"]["providers"][&provider].clone();
    let model_entry = model_entry(&entry, &model);
    if provider == METACLAW || model.starts_with(&format!("{METACLAW}-")) {
        return Err(refused(format!(
            "it already uses the model {provider}/{model}, which this MetaClaw did not write (an older MetaClaw or a person did), so its former model is not known. Set agents.defaults.model.primary to the former model"
        )));
    }
    let known = known::provider(&provider);
    let secrets = secret::Secrets::new(&file, config, surroundings);
    let text = |name: &str| {
        let own = model_entry[name].as_str().or_else(|| entry[name].as_str());
        own.map(|it| secrets.substituted(it))
    };
    let api = text("api").or_else(|| known.map(|it| it.api.as_str().to_owned()));
    let api = api.unwrap_or_else(|| DEFAULT_API.to_owned());
    let relayed = Api::parse(&api).ok_or_else(|| {
        refused(format!(
            "{provider} has the API {api}, which MetaClaw does not relay"
        ))
    })?;
    let base_url = text("baseUrl").or_else(|| known.map(|it| it.base_url.to_owned()));
    let base_url = base_url.ok_or_else(|| {
        refused(format!(
            "the provider {provider} has no address: set models.providers.{provider}.baseUrl"
        ))
    })?;
    Ok(Found {
        credential: secrets.credential(&provider, &entry),
        notes: notes(config, &provider, &entry),
        file,
        provider,
        model,
        base_url: base_url.trim_end_matches('/').to_owned(),
        api: relayed,
        entry,
        model_entry,
    })
}

/// Returns provider and model of `agents.defaults.model`, which is a text or an object with `primary`. A name without a
/// slash may be an alias.
fn primary(config: &Value) -> Option<(String, String)> {
    let defaults = &config["agents"]["defaults"];
    let model = &defaults["model"];
    let named = model.as_str().or_else(|| model["primary"].as_str())?.trim();
    let aliases = defaults["models"].as_object().into_iter().flatten();
    let mut alike = aliases.filter(|(_, it)| it["alias"].as_str() == Some(named));
    let named = if named.contains('/') {
        named
    } else {
        alike.next()?.0
    };
    let (provider, model) = named.split_once('/')?;
    let is_whole = !provider.is_empty() && !model.is_empty();
    is_whole.then(|| (provider.to_owned(), model.to_owned()))
}

fn model_entry(entry: &Value, model: &str) -> Value {
    let models = entry["models"].as_array().into_iter().flatten();
    let mut own = models.filter(|it| it["id"].as_str() == Some(model));
    own.next().cloned().unwrap_or(Value::Null)
}

fn notes(config: &Value, provider: &str, entry: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    let agents = config["agents"]["entries"]
        .as_object()
        .into_iter()
        .flatten();
    let listed = config["agents"]["list"].as_array().into_iter().flatten();
    let named = agents.map(|(name, agent)| (name.as_str(), agent));
    let named = named.chain(listed.filter_map(|it| Some((it["id"].as_str()?, it))));
    for (name, agent) in named {
        let model = &agent["model"];
        if model.is_string() || model["primary"].is_string() {
            notes.push(format!(
                "agent {name} has a model of its own, which is left as it is"
            ));
        }
    }
    for field in ["request", "localService"] {
        if !entry[field].is_null() {
            notes.push(format!(
                "models.providers.{provider}.{field} is for the provider itself and stays there: MetaClaw has upstreams.llm.proxy and .ca"
            ));
        }
    }
    let allowed = config["agents"]["defaults"]["modelPolicy"]["allow"].as_array();
    if allowed.is_some_and(|it| !it.is_empty()) {
        notes.push(
            "agents.defaults.modelPolicy.allow is a list: add the new model to it if OpenClaw refuses it".to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests;
