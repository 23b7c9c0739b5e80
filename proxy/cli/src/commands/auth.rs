//! `metaclaw auth`: keys and tokens of providers, in a file of their own and never shown in full.

use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use metaclaw_chat::now_ms;
use metaclaw_settings::auth_profiles::{Method, Profile};
use serde_json::json;

use self::keep::{keep, load, used};
use super::context::Context;
use crate::{out, prompt};

mod keep;
mod login;

/// Those whose sign-in gives a token, as the original had them.
const TOKENS: [&str; 3] = ["anthropic", "openai-codex", "gemini"];

/// Arguments of `auth`.
#[derive(Debug, Args)]
pub(crate) struct AuthArgs {
    #[command(subcommand)]
    what: AuthCommand,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum AuthCommand {
    /// Store a token of a provider's sign-in, which is typed without echo or comes on standard input.
    PasteToken {
        /// The provider.
        #[arg(long, value_parser = TOKENS)]
        provider: String,
    },
    /// Store an API key, which is typed without echo or comes on standard input.
    PasteKey {
        /// The provider, as in llm.provider.
        #[arg(long)]
        provider: String,
    },
    /// Sign in at a provider in a browser.
    Login(login::LoginArgs),
    /// List the stored keys and tokens, and which one is used.
    Status,
    /// Delete a stored key or token.
    Remove {
        /// Its id, as `status` shows it, for example anthropic:manual.
        id: String,
    },
}

// === impl AuthArgs ===

impl AuthArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self.what {
            AuthCommand::Login(args) => args.run(context).await?,
            AuthCommand::PasteToken { provider } => paste(context, &provider, Method::Token)?,
            AuthCommand::PasteKey { provider } => paste(context, &provider, Method::ApiKey)?,
            AuthCommand::Status => status(context, self.json)?,
            AuthCommand::Remove { id } => remove(context, &id)?,
        }
        Ok(ExitCode::SUCCESS)
    }
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
