//! `metaclaw auth`: keys and tokens of providers, in a file of their own and never shown in full.

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
    /// As JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum AuthCommand {
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
    /// Sign in in a browser, at a provider that lets other programs do so.
    Login(login::LoginArgs),
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
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.what {
            AuthCommand::Login(args) => args.run(context).await?,
            AuthCommand::PasteToken { provider } => paste(context, &provider, Method::Token)?,
            AuthCommand::PasteKey { provider } => paste(context, &provider, Method::ApiKey)?,
            AuthCommand::Status => status(context, self.json)?,
            AuthCommand::Remove { id } => remove(context, &id)?,
        }
        Ok(())
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
