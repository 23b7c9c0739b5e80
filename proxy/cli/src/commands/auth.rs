//! `metaclaw auth`: keys and tokens of providers, in a file of their own and never shown in full.

use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use metaclaw_chat::{Secret, now_ms};
use metaclaw_settings::{
    Origin,
    auth_profiles::{Method, Profile, Profiles},
    providers,
};
use reqwest::Url;
use serde_json::json;

use super::context::Context;
use crate::{
    out, prompt, roots,
    sign_in::{Pkce, Redirect, google::OauthClient, openrouter},
};

/// Those whose sign-in gives a token, as the original had them.
const TOKENS: [&str; 3] = ["anthropic", "openai-codex", "gemini"];

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
    Login(LoginArgs),
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
        let view = |profile: &Profile| {
            json!({
                "id": profile.id, "provider": profile.provider, "method": profile.method,
                "secret": profile.secret.to_string(), "expires_ms": profile.expires_ms,
                "used": used.as_deref() == Some(profile.id.as_str()),
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
    let row = |one: &Profile| {
        let how = match (&used, one.is_expired(now_ms())) {
            (_, true) => "one has ended",
            (Some(id), _) if *id == one.id => "used by llm.*",
            _ => "kept",
        };
        vec![one.id.clone(), one.secret.to_string(), how.to_owned()]
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

fn load(context: &Context) -> anyhow::Result<(PathBuf, Profiles)> {
    let path = context.home.auth_profiles();
    let profiles =
        Profiles::load(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok((path, profiles))
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

fn used(context: &Context) -> anyhow::Result<Option<String>> {
    let loaded = context.settings(None, Vec::new())?;
    if !matches!(loaded.origin("llm.api_key"), Some(Origin::Profiles(_))) {
        return Ok(None);
    }
    let (_, profiles) = load(context)?;
    let key = loaded.config.llm.api_key;
    let mut kept = profiles.list().into_iter();
    let used = kept.find(|kept| key.as_ref() == Some(&kept.secret));
    Ok(used.map(|used| used.id))
}

#[derive(Debug, Args)]
struct LoginArgs {
    /// The provider.
    #[arg(long)]
    provider: SignInProvider,
    /// The port of this machine to which the browser returns. Without it, 3000 for openrouter, else a free port.
    #[arg(long)]
    port: Option<u16>,
}

/// Providers whose terms let other programs sign people in (docs/using/setup.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SignInProvider {
    Openrouter,
    GoogleCalendar,
}

// === impl LoginArgs ===

impl LoginArgs {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.provider {
            SignInProvider::Openrouter => self.openrouter(context).await,
            SignInProvider::GoogleCalendar => self.google_calendar(context).await,
        }
    }

    async fn openrouter(self, context: &Context) -> anyhow::Result<()> {
        let client = roots::http_client()?;
        let redirect = Redirect::listen(self.port.unwrap_or(openrouter::PORT)).await?;
        let pkce = Pkce::new();
        let site = openrouter::OPENROUTER;
        let page = openrouter::page(site, &redirect, &pkce)?;
        let code = signed_in(&page, &redirect).await?;
        let key = openrouter::key(&client, site, &code, &pkce).await?;
        keep(
            context,
            "openrouter",
            Method::ApiKey,
            key.expose().to_owned(),
        )
    }

    async fn google_calendar(self, context: &Context) -> anyhow::Result<()> {
        let settings = context.settings(None, Vec::new())?;
        let calendar = settings.config.scheduler.calendar;
        let path = calendar.credentials_path.context(
            "scheduler.calendar.credentials_path is not set: it names the JSON file of an OAuth client (\"Desktop app\") of your own project at Google Cloud, in which the Google Calendar API is on (docs/operating/scheduler.md)",
        )?;
        let client = roots::http_client()?;
        let oauth = OauthClient::load(&path)?;
        let redirect = Redirect::listen(self.port.unwrap_or(0)).await?;
        let pkce = Pkce::new();
        let page = oauth.page(&redirect, &pkce)?;
        let code = signed_in(&page, &redirect).await?;
        context.home.create()?;
        let file = calendar.token_path;
        let file = file.unwrap_or_else(|| context.home.calendar_token());
        let token = oauth.token(&client, &redirect, &code, &pkce, &file).await?;
        token.save()?;
        out::line(format!("the token is kept in {}", file.display()))?;
        if !calendar.enabled {
            out::aside("to use it: metaclaw config scheduler.calendar.enabled true");
        }
        Ok(())
    }
}

async fn signed_in(page: &Url, redirect: &Redirect) -> anyhow::Result<String> {
    out::line(format!(
        "Open this page in a browser on this machine, and sign in:\n{page}"
    ))?;
    let port = redirect.port;
    out::aside(format!(
        "over SSH: `ssh -L {port}:127.0.0.1:{port} HOST` on your own machine makes the last step work there"
    ));
    redirect.code().await
}
