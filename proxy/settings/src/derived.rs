//! Layers that follow from other layers: what a named provider and older keys stand for, the key that `metaclaw auth`
//! keeps, and variables that the services' own programs read.

use std::path::Path;

use metaclaw_aws::BedrockEndpoint;
use metaclaw_chat::now_ms;
use serde_json::Value;

use crate::{
    address::host,
    auth_profiles::Profiles,
    cloud::Service,
    environment,
    error::SettingsError,
    layer::{Layer, Origin},
    providers::{self, BEDROCK, at, named},
    table,
};

const REGION: &str = "llm.bedrock_region";
const DEFAULT_REGION: &str = "us-east-1";
const LLM_KEY: &str = "llm.api_key";
/// The provider of learning's models whose address and key are variables that Azure's own programs read.
const AZURE: &str = "azure";
const AZURES_VARIABLES: &str = "AZURE_OPENAI_";

/// The sections of models that may have a provider, and the key of each one's address.
///
/// A provider of learning's models counts only beside a key: the Python original wrote a provider for each model, and no
/// text may go to a judge that would refuse it.
const SECTIONS: [(&str, &str); 3] = [("llm", "api_base"), ("judge", "url"), ("evolver", "url")];

/// Returns what each `provider` stands for if its section has no address, as a layer below `layers`.
pub(super) fn addresses(layers: &[Layer]) -> Layer {
    let mut layer = Layer::empty(Origin::Provider);
    for (section, address) in SECTIONS {
        let own = |name: &str| text(layers, &format!("{section}.{name}"));
        let Some(provider) = own("provider").filter(|_| own(address).is_none()) else {
            continue;
        };
        let given = if provider == BEDROCK {
            let region = text(layers, REGION).unwrap_or(DEFAULT_REGION);
            let model = own("model").or_else(|| text(layers, "llm.model_id"));
            Some(BedrockEndpoint::address(region, model.unwrap_or_default()))
        } else {
            let known = named(provider).filter(|_| section == "llm" || own("key").is_some());
            known.map(|known| known.api_base.to_owned())
        };
        layer.set(&format!("{section}.{address}"), &given.into());
    }
    layer
}

/// Returns the mode that two other keys stand for if `mode` is not set, as a layer below `layers`: older configurations of
/// the Python original said it so.
pub(super) fn mode(layers: &[Layer]) -> Option<Layer> {
    if value(layers, "mode").is_some() {
        return None;
    }
    let (trains, waits) = ("rl.enabled", "scheduler.enabled");
    let flag = |path| value(layers, path).and_then(Value::as_bool);
    let (mode, key) = match (flag(trains), flag(waits)) {
        (Some(false), _) => ("skills_only", trains),
        (_, Some(true)) => ("auto", waits),
        (_, Some(false)) => ("rl", waits),
        (_, None) => return None,
    };
    let mut layer = Layer::empty(Origin::Key(key));
    layer.set("mode", &mode.into());
    Some(layer)
}

/// Refuses unknown providers. With an address of its own, a section may name a provider that only `metaclaw auth` knows,
/// but not one that reads like a known name.
pub(super) fn refuse_unknown_providers(layers: &mut [Layer]) {
    let known = providers::names();
    for (section, address) in SECTIONS {
        let (key, address) = (
            format!("{section}.provider"),
            format!("{section}.{address}"),
        );
        let unknown = text(layers, &key).filter(|name| !known.contains(name));
        let Some(given) = unknown.map(str::to_owned) else {
            continue;
        };
        let nearest = table::closest(
            &given.to_lowercase(),
            known.iter().map(|name| (*name, *name)),
        );
        if nearest.is_none() && text(layers, &address).is_some() {
            continue;
        }
        let meant =
            nearest.map_or_else(String::new, |name| format!("did you mean {name}? One of "));
        let all = known.join(", ");
        let reason = format!("{meant}{all}; for another server, set {address} to its address");
        let mut givers = layers.iter_mut().rev();
        if let Some(giver) = givers.find(|layer| layer.values().contains_key(&key)) {
            giver.problem(&key, &given, reason);
        }
    }
}

/// Returns what the variables say that the programs of Bedrock and of services with Tinker's API read, as a layer below
/// `layers`. They count only if the settings name the service, because they may be there for another program.
pub(super) fn service_variables(layers: &[Layer], variables: &[(String, String)]) -> Layer {
    let mut layer = Layer::empty(Origin::Environment);
    let names_bedrock =
        |section: &str| text(layers, &format!("{section}.provider")) == Some(BEDROCK);
    let given = |name: &str| environment::given(variables, name).map(str::to_owned);
    if SECTIONS.iter().any(|(section, _)| names_bedrock(section)) {
        let region = given("AWS_REGION").or_else(|| given("AWS_DEFAULT_REGION"));
        layer.set(REGION, &region.into());
        let key = given("AWS_BEARER_TOKEN_BEDROCK").filter(|_| names_bedrock("llm"));
        layer.set(LLM_KEY, &key.into());
    }
    for section in at_azure(layers) {
        let endpoint = given(&format!("{AZURES_VARIABLES}ENDPOINT"));
        layer.set(&format!("{section}.url"), &endpoint.into());
        let key = given(&format!("{AZURES_VARIABLES}API_KEY"));
        layer.set(&format!("{section}.key"), &key.into());
    }
    let backend = text(layers, "rl.backend");
    let mut services = Service::ALL.into_iter();
    if let Some(service) = services.find(|service| Some(service.word()) == backend) {
        layer.set("rl.tinker_api_key", &service.key_in(variables).into());
        layer.set("rl.tinker_base_url", &service.address_in(variables).into());
    }
    layer
}

/// Returns whether a notice about a variable is wrong, because a section's provider is Azure. It begins with the name.
pub(super) fn reads(layers: &[Layer], notice: &str) -> bool {
    notice.starts_with(AZURES_VARIABLES) && at_azure(layers).next().is_some()
}

fn at_azure(layers: &[Layer]) -> impl Iterator<Item = &'static str> {
    let is_azure = |section: &&str| text(layers, &format!("{section}.provider")) == Some(AZURE);
    ["judge", "evolver"].into_iter().filter(is_azure)
}

/// Inserts the profile that `llm.*` may use among the layers: below all others, or above them if `llm.auth_method` is
/// `oauth_token`. Returns a message about it, if there is one.
///
/// # Errors
///
/// Returns [`SettingsError::Read`] if the file exists and cannot be read.
pub(super) fn lay_profile(
    layers: &mut Vec<Layer>,
    path: &Path,
) -> Result<Option<String>, SettingsError> {
    let profiles = Profiles::load(path).map_err(SettingsError::unread(path))?;
    let wants_token = text(layers, "llm.auth_method") == Some("oauth_token");
    if text(layers, LLM_KEY).is_some() && !wants_token {
        return Ok(None);
    }
    let Some(provider) = profile_provider(layers) else {
        return Ok(wants_token.then(|| {
            "llm.auth_method oauth_token: llm.provider does not say whose token, or llm.api_base is not its provider's address: none is used".to_owned()
        }));
    };
    let Some(profile) = profiles.of(&provider, now_ms()) else {
        return Ok(wants_token.then(|| {
            format!("llm.auth_method oauth_token: no token of {provider} is kept: `metaclaw auth paste-token --provider {provider}`")
        }));
    };
    let mut layer = Layer::empty(Origin::Profiles(path.to_owned()));
    layer.set(LLM_KEY, &profile.secret.expose().into());
    layers.insert(if wants_token { layers.len() } else { 0 }, layer);
    Ok(None)
}

/// Returns the provider whose profile `llm.*` may use. A key for one address is not used for another, so a provider
/// with an address of its own counts only there.
fn profile_provider(layers: &[Layer]) -> Option<String> {
    let base = text(layers, "llm.api_base");
    let name = match (text(layers, "llm.provider"), base) {
        (Some(name), None) => named(name)?.name,
        (Some(name), Some(base)) => {
            let known = named(name);
            let fits = known.is_none_or(|known| host(known.api_base) == host(base));
            fits.then_some(name)?
        }
        (None, base) => at(base?)?.name,
    };
    Some(name.to_owned())
}

/// Returns the text in force at a key; the last layer has the highest priority.
fn text<'a>(layers: &'a [Layer], path: &str) -> Option<&'a str> {
    value(layers, path)?.as_str()
}

fn value<'a>(layers: &'a [Layer], path: &str) -> Option<&'a Value> {
    let mut layers = layers.iter().rev();
    layers.find_map(|layer| layer.values().get(path))
}

#[cfg(test)]
mod tests;
