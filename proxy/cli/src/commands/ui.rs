//! `metaclaw ui`: a link that signs a browser in to the page, opened where a browser can be.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    process::{Command, ExitCode, Stdio},
};

use clap::Args;
use metaclaw_control::{client::ControlClient, operations::process::CreateLogin};
use serde::Serialize;

use super::{context::Context, status::not_running};
use crate::{environment::Environment, out};

const OPENERS: [&str; 3] = ["xdg-open", "wslview", "open"];

#[derive(Debug, Args)]
pub(crate) struct UiArgs {
    /// Only print the link.
    #[arg(long)]
    no_open: bool,
    /// Sign out every browser first.
    #[arg(long)]
    sign_out: bool,
    /// Print JSON, and open nothing.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct LoginLink {
    running: bool,
    link: String,
    page: String,
    seconds: u64,
}

// === impl UiArgs ===

impl UiArgs {
    /// Asks the running process for a link.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let Some(client) = ControlClient::of_running(&context.home).await? else {
            return not_running(context, self.json);
        };
        let ends_others = self.sign_out;
        let login = client.call(&CreateLogin { ends_others }).await?;
        let run = context.home.run_file()?;
        let page = run.and_then(|run| run.page);
        let address = page.unwrap_or_else(|| client.address());
        let link = LoginLink {
            running: true,
            link: format!("http://{address}/ui/login?code={}", login.code),
            page: format!("http://{address}/ui"),
            seconds: login.seconds,
        };
        if self.json {
            out::json(&link)?;
            return Ok(ExitCode::SUCCESS);
        }
        if ends_others {
            out::aside("Every browser was signed out.");
        }
        out::line(&link.link)?;
        let is_opened = !self.no_open && out::can_ask() && opens(&context.environment, &link.link);
        out::aside(instructions(
            &link,
            address,
            is_opened,
            is_remote(&context.environment),
        ));
        Ok(ExitCode::SUCCESS)
    }
}

fn instructions(link: &LoginLink, address: SocketAddr, is_opened: bool, is_remote: bool) -> String {
    let first = if is_opened {
        "The link was opened in your browser."
    } else {
        "Open the link in a browser on this machine."
    };
    let mut text = format!(
        "{first} It works once, for {} minutes; the browser then stays signed in at {} for 30 days.",
        link.seconds / 60,
        link.page
    );
    if is_remote {
        let port = address.port();
        let _ = write!(
            text,
            "\nYou are here over SSH: `ssh -L {port}:127.0.0.1:{port} HOST` on your own machine makes the link work there."
        );
    }
    text
}

fn is_remote(environment: &Environment) -> bool {
    environment.get("SSH_CONNECTION").is_some()
}

fn opens(environment: &Environment, link: &str) -> bool {
    let has_screen = ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"]
        .iter()
        .any(|name| environment.get(name).is_some());
    if is_remote(environment) || !(has_screen || cfg!(target_os = "macos")) {
        return false;
    }
    OPENERS.iter().any(|opener| {
        let mut command = Command::new(opener);
        command.arg(link);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_told_with_what_to_do() {
        let link = LoginLink {
            running: true,
            link: "http://127.0.0.1:30080/ui/login?code=7".to_owned(),
            page: "http://127.0.0.1:30080/ui".to_owned(),
            seconds: 120,
        };
        let address = "127.0.0.1:30080".parse().unwrap();
        assert_eq!(
            instructions(&link, address, false, true),
            "Open the link in a browser on this machine. It works once, for 2 minutes; the browser then stays signed in at http://127.0.0.1:30080/ui for 30 days.\nYou are here over SSH: `ssh -L 30080:127.0.0.1:30080 HOST` on your own machine makes the link work there."
        );
        assert!(instructions(&link, address, true, false).starts_with("The link was opened"));
    }
}
