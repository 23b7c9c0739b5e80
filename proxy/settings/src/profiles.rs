//! The key of `llm.*` that `metaclaw auth` keeps, as a layer of the settings.

use std::path::Path;

use metaclaw_chat::now_ms;
use serde_json::Value;

use crate::{
    address::host,
    auth_profiles::Profiles,
    error::SettingsError,
    layer::{Layer, Origin},
    providers,
};

const KEY: &str = "llm.api_key";

/// Inserts the profile that `llm.*` may use among the layers: below all others, or above them if `llm.auth_method` is
/// `oauth_token`. Returns a message about it, if there is one.
///
/// # Errors
///
/// Returns [`SettingsError::Read`] if the file exists and cannot be read.
pub(super) fn lay(layers: &mut Vec<Layer>, path: &Path) -> Result<Option<String>, SettingsError> {
    let profiles = Profiles::load(path).map_err(SettingsError::unread(path))?;
    let wants_token = providers::text(layers, "llm.auth_method") == Some("oauth_token");
    if providers::text(layers, KEY).is_some() && !wants_token {
        return Ok(None);
    }
    let Some(provider) = provider(layers) else {
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
    layer.set(KEY, &Value::from(profile.secret.expose()));
    if wants_token {
        layers.push(layer);
    } else {
        layers.insert(0, layer);
    }
    Ok(None)
}

/// Returns the provider whose profile `llm.*` may use. A key for one address is not used for another, so a provider
/// with an address of its own counts only there.
fn provider(layers: &[Layer]) -> Option<String> {
    let base = providers::text(layers, "llm.api_base");
    match (providers::text(layers, "llm.provider"), base) {
        (Some(name), None) => providers::named(name).map(|it| it.name.to_owned()),
        (Some(name), Some(base)) => {
            let known = providers::named(name);
            let fits = known.is_none_or(|it| host(it.api_base) == host(base));
            fits.then(|| name.to_owned())
        }
        (None, Some(base)) => providers::at(base).map(|it| it.name.to_owned()),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests;
