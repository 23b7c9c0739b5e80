//! `metaclaw auth`: keys and tokens of providers, in a file of their own and never shown in full.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use metaclaw_chat::{Secret, now_ms};
use metaclaw_settings::{
    Origin,
    auth_profiles::{Method, Profile, Profiles},
    providers,
};
use serde_json::json;

use super::context::Context;
use crate::{out, prompt};

/// Those whose sign-in gives a token, as the original had them.
const TOKENS: [&str; 3] = ["anthropic", "openai-codex", "gemini"];

/// Arguments of `auth`.
#[derive(Debug, Args)]
pub(crate) struct AuthArgs {
    #[command(subcommand)]
    what: What,
    /// As JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Keep a token of a provider's sign-in; typed unseen, or given on standard input.
    PasteToken {
        /// Whose.
        #[arg(long, value_parser = TOKENS)]
        provider: String,
    },
    /// Keep an API key; typed unseen, or given on standard input.
    PasteKey {
        /// Whose: a name that llm.provider may have.
        #[arg(long)]
        provider: String,
    },
    /// What is kept, and what of it is used.
    Status,
    /// Forget one.
    Remove {
        /// As `status` shows it, as in anthropic:manual.
        id: String,
    },
}

// === impl AuthArgs ===

impl AuthArgs {
    /// Does it.
    pub(super) fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self.what {
            What::PasteToken { provider } => paste(context, &provider, Method::Token)?,
            What::PasteKey { provider } => paste(context, &provider, Method::ApiKey)?,
            What::Status => status(context, self.json)?,
            What::Remove { id } => remove(context, &id)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn load(context: &Context) -> anyhow::Result<(PathBuf, Profiles)> {
    let path = context.home.auth_profiles();
    let profiles =
        Profiles::load(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok((path, profiles))
}

fn paste(context: &Context, provider: &str, method: Method) -> anyhow::Result<()> {
    let what = match method {
        Method::Token => "Token",
        Method::ApiKey => "API key",
    };
    let given = prompt::secret(&format!("{what} of {provider} (not shown)"))?;
    keep(context, provider, method, given)
}

/// Keeps the token of `llm.provider`: the original's `config set llm.oauth_token`.
pub(super) fn keep_token(context: &Context, given: String) -> anyhow::Result<()> {
    let settings = context.settings(None, Vec::new())?;
    let provider = settings.config.llm.provider.unwrap_or_default();
    ensure!(
        TOKENS.contains(&provider.as_str()),
        "llm.oauth_token is the token of llm.provider, which is {provider:?}: set it to one of {}",
        TOKENS.join(", ")
    );
    keep(context, &provider, Method::Token, given)
}

fn keep(context: &Context, provider: &str, method: Method, given: String) -> anyhow::Result<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    ensure!(
        !provider.is_empty() && provider.chars().all(legal),
        "--provider {provider:?} is not allowed: letters, digits, - _ and ."
    );
    let (path, mut profiles) = load(context)?;
    ensure!(
        given.bytes().all(|b| b.is_ascii_graphic()),
        "this is no key: it holds spaces, line ends or letters beyond ASCII"
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
fn used(context: &Context) -> anyhow::Result<Option<String>> {
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

fn status(context: &Context, as_json: bool) -> anyhow::Result<()> {
    let (path, profiles) = load(context)?;
    let used = used(context)?;
    let profiles = profiles.list();
    if as_json {
        let view = |it: &Profile| {
            json!({
                "id": it.id, "provider": it.provider, "method": it.method,
                "secret": it.secret.to_string(), "expires_ms": it.expires_ms,
                "used": used.as_deref() == Some(it.id.as_str()),
            })
        };
        return Ok(out::json(&profiles.iter().map(view).collect::<Vec<_>>())?);
    }
    if profiles.is_empty() {
        return Ok(out::line(format!(
            "nothing is kept in {}: `metaclaw auth paste-key --provider NAME` keeps a key",
            path.display()
        ))?);
    }
    let row = |it: &Profile| {
        let how = match (&used, it.is_expired(now_ms())) {
            (_, true) => "it has ended",
            (Some(id), _) if *id == it.id => "used by llm.*",
            _ => "kept",
        };
        vec![it.id.clone(), it.secret.to_string(), how.to_owned()]
    };
    let rows: Vec<Vec<String>> = profiles.iter().map(row).collect();
    Ok(out::line(out::table(
        &["profile", "ends in", "state"],
        &rows,
    ))?)
}

fn remove(context: &Context, id: &str) -> anyhow::Result<()> {
    let (path, mut profiles) = load(context)?;
    if !profiles.remove(id) {
        bail!("there is no profile {id}: `metaclaw auth status` shows those there are");
    }
    profiles
        .save(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(out::line(format!("{id} is forgotten"))?)
}
