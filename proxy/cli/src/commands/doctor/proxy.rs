//! The proxy: running and answering, or its port free.

use metaclaw_llm::loopback_client;
use metaclaw_settings::Loaded;

use super::check::Check;
use crate::{
    commands::{Context, source::running},
    home::RunFile,
};

const NAME: &str = "proxy";

/// How it is, and its base URL where it runs.
pub(super) async fn check(context: &Context, loaded: &Loaded) -> (Check, Option<String>) {
    match running(&context.home).await {
        Err(error) => (
            Check::bad(NAME, error.to_string(), "`metaclaw stop`, then start"),
            None,
        ),
        Ok(None) => (stopped(loaded), None),
        Ok(Some(client)) => {
            let status = client.ask::<serde_json::Value>("status", &()).await;
            let run = context.home.run_file().ok().flatten();
            match (status, run) {
                (Ok(_), Some(run)) => (ready(&run).await, Some(run.base_url)),
                (Ok(_), None) => (Check::note(NAME, "it is just ending"), None),
                (Err(error), _) => {
                    let remedy = "`metaclaw stop`, then start; metaclaw.log tells more";
                    (Check::bad(NAME, error.to_string(), remedy), None)
                }
            }
        }
    }
}

/// Whether somebody else has the port.
fn stopped(loaded: &Loaded) -> Check {
    let address = loaded.config.gateway.proxy.address();
    match std::net::TcpListener::bind(address) {
        Ok(_) => Check::note(
            NAME,
            format!("not running; {address} is free: `metaclaw start`"),
        ),
        Err(error) => Check::bad(
            NAME,
            format!("not running, and {address} cannot be taken: {error}"),
            "`metaclaw config proxy.port 0` takes any free port; `ss -ltnp` says who has this one",
        ),
    }
}

/// Whether it could answer a chat.
async fn ready(run: &RunFile) -> Check {
    let at = format!("running at {} (process {})", run.base_url, run.pid);
    let url = format!("{}/readyz", run.base_url.trim_end_matches("/v1"));
    let Ok(client) = loopback_client() else {
        return Check::fine(NAME, at);
    };
    match client.get(&url).send().await {
        Ok(answer) if answer.status().is_success() => Check::fine(NAME, at),
        Ok(answer) => {
            let text = answer.text().await.unwrap_or_default();
            let said = format!("{at}, and not ready: {}", text.trim());
            Check::bad(NAME, said, "`metaclaw status` says what is missing")
        }
        Err(error) => Check::bad(
            NAME,
            format!("{at}, and silent: {error}"),
            "`metaclaw stop`, then start",
        ),
    }
}
