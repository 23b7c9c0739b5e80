//! `metaclaw auth login`: signs a person in with a browser, and stores the key or token that the provider gives.

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use metaclaw_llm::http_client;
use metaclaw_settings::auth_profiles::Method;
use reqwest::Url;

use super::keep::keep;
use crate::{
    commands::context::Context,
    out, roots,
    sign_in::{Pkce, Redirect, google::OauthClient, openrouter},
};

/// Arguments of `auth login`.
#[derive(Debug, Args)]
pub(super) struct LoginArgs {
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
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.provider {
            SignInProvider::Openrouter => self.openrouter(context).await,
            SignInProvider::GoogleCalendar => self.google_calendar(context).await,
        }
    }

    async fn openrouter(self, context: &Context) -> anyhow::Result<()> {
        let client = http_client(&roots::load())?;
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
        let client = http_client(&roots::load())?;
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

/// Asks a person to sign in, and waits for the code.
async fn signed_in(page: &Url, redirect: &Redirect) -> anyhow::Result<String> {
    out::line(format!(
        "Open this page in a browser on this machine, and sign in:\n{page}"
    ))?;
    let port = redirect.port();
    out::aside(format!(
        "over SSH: `ssh -L {port}:127.0.0.1:{port} HOST` on your own machine makes the last step work there"
    ));
    redirect.code().await
}
