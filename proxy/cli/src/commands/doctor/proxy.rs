//! The proxy: running and answering, or its port free.

use metaclaw_control::{client::ControlClient, home::RunFile, operations::process::GetStatus};
use metaclaw_llm::loopback_client;
use metaclaw_settings::Loaded;

use super::check::DoctorCheck;
use crate::commands::context::Context;

const NAME: &str = "proxy";

/// How it is, and its base URL where it runs.
pub(super) async fn check(context: &Context, loaded: &Loaded) -> (DoctorCheck, Option<String>) {
    match ControlClient::of_running(&context.home).await {
        Err(error) => (
            DoctorCheck::bad(NAME, error.to_string(), "`metaclaw stop`, then start"),
            None,
        ),
        Ok(None) => (stopped(loaded), None),
        Ok(Some(client)) => {
            let status = client.call(&GetStatus).await;
            let run = context.home.run_file().ok().flatten();
            match (status, run) {
                (Ok(_), Some(run)) => (ready(&run).await, Some(run.base_url)),
                (Ok(_), None) => (DoctorCheck::note(NAME, "it is just ending"), None),
                (Err(error), _) => {
                    let remedy = "`metaclaw stop`, then start; metaclaw.log tells more";
                    (DoctorCheck::bad(NAME, error.to_string(), remedy), None)
                }
            }
        }
    }
}

/// Whether somebody else has the port.
fn stopped(loaded: &Loaded) -> DoctorCheck {
    let address = loaded.config.gateway.proxy.address();
    match std::net::TcpListener::bind(address) {
        Ok(_) => DoctorCheck::note(
            NAME,
            format!("not running; {address} is free: `metaclaw start`"),
        ),
        Err(error) => DoctorCheck::bad(
            NAME,
            format!("not running, and {address} cannot be taken: {error}"),
            "`metaclaw config proxy.port 0` takes any free port; `ss -ltnp` says who has this one",
        ),
    }
}

/// Whether it could answer a chat.
async fn ready(run: &RunFile) -> DoctorCheck {
    let at = format!("running at {} (process {})", run.base_url, run.pid);
    let url = format!("{}/readyz", run.base_url.trim_end_matches("/v1"));
    let Ok(client) = loopback_client() else {
        return DoctorCheck::fine(NAME, at);
    };
    match client.get(&url).send().await {
        Ok(answer) if answer.status().is_success() => DoctorCheck::fine(NAME, at),
        Ok(answer) => {
            let answer: serde_json::Value = answer.json().await.unwrap_or_default();
            let reason = answer["reason"]
                .as_str()
                .unwrap_or("it says why only to callers with a key");
            let said = format!("{at}, and not ready: {reason}");
            DoctorCheck::bad(NAME, said, "`metaclaw status` says what is missing")
        }
        Err(error) => DoctorCheck::bad(
            NAME,
            format!("{at}, and silent: {error}"),
            "`metaclaw stop`, then start",
        ),
    }
}
