//! Stores a key or token in the file of profiles, and says which profile is used.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use metaclaw_chat::Secret;
use metaclaw_settings::{
    Origin,
    auth_profiles::{Method, Profile, Profiles},
    providers,
};

use crate::{commands::context::Context, out};

pub(super) fn load(context: &Context) -> anyhow::Result<(PathBuf, Profiles)> {
    let path = context.home.auth_profiles();
    let profiles =
        Profiles::load(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok((path, profiles))
}

pub(super) fn keep(
    context: &Context,
    provider: &str,
    method: Method,
    given: String,
) -> anyhow::Result<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    ensure!(
        !provider.is_empty() && provider.chars().all(legal),
        "--provider {provider:?} is not allowed: letters, digits, - _ and ."
    );
    let (path, mut profiles) = load(context)?;
    ensure!(
        given.bytes().all(|b| b.is_ascii_graphic()),
        "this is no key: it has spaces, line ends or characters that are not ASCII"
    );
    let profile = Profile::new(provider, method, Secret::from(given));
    profiles.put(&profile);
    context.home.create()?;
    profiles
        .save(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    out::line(format!("kept as {} ({})", profile.id, profile.secret))?;
    if provider == "openai-codex" {
        out::aside(
            "note: the login of Codex opens ChatGPT's own service; OpenAI's API often refuses it and wants an API key",
        );
    }
    match used(context)? {
        Some(id) if id == profile.id => {
            out::aside("llm.* uses it from the next start on");
        }
        _ => out::aside(how_to_use(&profile)),
    }
    Ok(())
}

/// What is to be set so that a profile is used.
fn how_to_use(profile: &Profile) -> String {
    let provider = &profile.provider;
    let base = match providers::named(provider) {
        Some(_) => "",
        None => ", and its address in llm.api_base",
    };
    let method = match profile.method {
        Method::Token => "; metaclaw config llm.auth_method oauth_token",
        Method::ApiKey => "",
    };
    format!("to use it: metaclaw config llm.provider {provider}{method}{base}")
}

/// The profile that `llm.*` uses with the settings as they are.
pub(super) fn used(context: &Context) -> anyhow::Result<Option<String>> {
    let loaded = context.settings(None, Vec::new())?;
    if !matches!(loaded.origin("llm.api_key"), Some(Origin::Profiles(_))) {
        return Ok(None);
    }
    let (_, profiles) = load(context)?;
    let key = loaded.config.llm.api_key;
    let mut kept = profiles.list().into_iter();
    let used = kept.find(|it| key.as_ref() == Some(&it.secret));
    Ok(used.map(|it| it.id))
}
