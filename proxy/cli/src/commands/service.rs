//! `metaclaw service`: systemd user units, so that a reboot loses nothing.
//!
//! There are two: systemd keeps the listening socket by one, and starts the proxy by the other. While the proxy starts
//! again after a crash, requests wait in the socket's queue and do not fail.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use metaclaw_control::home::write_private;
use metaclaw_settings::address::user_folder;

use super::context::Context;
use crate::{environment::Environment, out, restarter};

const UNIT: &str = "metaclaw.service";
const SOCKET: &str = "metaclaw.socket";
/// Its first line, by which a unit is known to be ours.
const MARK: &str = "# Written by `metaclaw service install`; `metaclaw service remove` removes it.";
/// What the proxy has to know of its surroundings, as it was at the install.
const VARIABLES: [&str; 5] = [
    "METACLAW_CACHE",
    "OPENCLAW_CONFIG_PATH",
    "OPENCLAW_STATE_DIR",
    "OPENCLAW_HOME",
    "OPENCLAW_INCLUDE_ROOTS",
];

#[derive(Debug, Args)]
pub(crate) struct ServiceArgs {
    #[command(subcommand)]
    what: ServiceCommand,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum ServiceCommand {
    /// Write and enable the unit.
    Install,
    /// Disable and remove the unit.
    Remove,
    /// Show whether the unit exists and is enabled.
    Status,
}

// === impl ServiceArgs ===

impl ServiceArgs {
    pub(super) fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.what {
            ServiceCommand::Install => install(context)?,
            ServiceCommand::Remove => {
                let removed = remove(&context.environment)?;
                out::line(match removed {
                    Some(path) => format!("removed {}", path.display()),
                    None => "there is no unit of MetaClaw's".to_owned(),
                })?;
            }
            ServiceCommand::Status => out::line(status(&context.environment))?,
        }
        Ok(())
    }
}

pub(super) fn status(environment: &Environment) -> String {
    let path = unit_path(environment);
    if !path.exists() {
        return "no unit: `metaclaw service install` starts it with this machine".to_owned();
    }
    let path = path.display();
    if !has_systemd() {
        return format!("{path} is there, and no systemd of this user answers");
    }
    let word = |what: &str| {
        let said = systemctl(&[what, UNIT]).output();
        let said = said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
        said.unwrap_or_default()
    };
    let active = word("is-active");
    let hint = if active == "failed" {
        " (`journalctl --user -u metaclaw -n 20` says why; `metaclaw service install` starts it again)"
    } else {
        ""
    };
    format!("{path}: {}, {active}{hint}", word("is-enabled"))
}

/// Closes the socket that systemd keeps for this home's proxy, if there is one: a request would start the proxy again
/// that is about to be stopped.
pub(super) fn close_socket(context: &Context) -> anyhow::Result<()> {
    let socket = unit_path(&context.environment).with_file_name(SOCKET);
    if socket.exists() && is_of(context) && has_systemd() {
        run(&["stop", SOCKET])?;
    }
    Ok(())
}

/// Whether the unit starts the proxy of this home, and not that of another home or port.
pub(super) fn is_of(context: &Context) -> bool {
    let text = fs::read_to_string(unit_path(&context.environment));
    text.is_ok_and(|text| text.contains(&format!(" {}\n", home_flag(context.home.dir()))))
}

/// Switches the unit off and removes it, if it is ours; where it was.
///
/// # Errors
///
/// When it cannot be removed, or is somebody else's.
pub(super) fn remove(environment: &Environment) -> anyhow::Result<Option<PathBuf>> {
    let path = unit_path(environment);
    let Ok(text) = fs::read_to_string(&path) else {
        return Ok(None);
    };
    if !text.starts_with(MARK) {
        bail!(
            "{} was not written by `metaclaw service install`: it stays",
            path.display()
        );
    }
    let socket = path.with_file_name(SOCKET);
    let has_socket = fs::read_to_string(&socket).is_ok_and(|text| text.starts_with(MARK));
    if has_systemd() {
        // The socket first: a request would start the proxy again.
        if has_socket {
            run(&["disable", "--now", SOCKET])?;
        }
        run(&["disable", "--now", UNIT])?;
    }
    for path in has_socket.then_some(&socket).into_iter().chain([&path]) {
        fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    if has_systemd() {
        run(&["daemon-reload"])?;
    }
    Ok(Some(path))
}

fn install(context: &Context) -> anyhow::Result<()> {
    if !context.home.config().exists() {
        bail!("nothing is configured yet: `metaclaw start` first");
    }
    let settings = context.settings(None, Vec::new())?;
    let address = settings.config.gateway.proxy.address();
    if address.port() == 0 {
        bail!("proxy.port is 0, a free port at each start: a service needs one that stays");
    }
    let path = unit_path(&context.environment);
    let socket_path = path.with_file_name(SOCKET);
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let unit = unit(&program, context.home.dir(), &context.environment);
    let units = [(&socket_path, socket(address)), (&path, unit)];
    for (path, _) in &units {
        if fs::read_to_string(path).is_ok_and(|text| !text.starts_with(MARK)) {
            bail!("{} is there already, and somebody else's", path.display());
        }
    }
    let folder = path.parent().unwrap_or(&path);
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (path, text) in units {
        write_private(path, text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        out::line(format!("wrote {}", path.display()))?;
    }
    if !has_systemd() {
        out::line(
            "no systemd of this user answers here, so it is not switched on; elsewhere: `systemctl --user enable --now metaclaw`",
        )?;
        return Ok(());
    }
    run(&["daemon-reload"])?;
    let is_running = context.home.holder()?.is_some();
    if is_running {
        run(&["enable", UNIT])?;
        out::line(
            "on from the next login; the proxy that runs now stays: `metaclaw stop && systemctl --user start metaclaw` replaces it",
        )?;
    } else {
        // Units that failed too often are not started otherwise; units that are new have nothing to forget.
        systemctl(&["reset-failed", UNIT, SOCKET])
            .stdout(Stdio::null())
            .status()?;
        run(&["enable", "--now", UNIT])?;
        out::line("on, and started")?;
    }
    Ok(out::line(
        "`loginctl enable-linger` lets it run while you are not logged in",
    )?)
}

/// `$XDG_CONFIG_HOME/systemd/user/metaclaw.service`.
fn unit_path(environment: &Environment) -> PathBuf {
    let config = environment.get("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.unwrap_or_else(|| user_folder().join(".config"));
    config.join("systemd/user").join(UNIT)
}

fn socket(address: SocketAddr) -> String {
    format!(
        "{MARK}\n[Unit]\nDescription=The port of MetaClaw, which stays open while its proxy starts again\n\n\
         [Socket]\nListenStream={address}\n\n[Install]\nWantedBy=sockets.target\n"
    )
}

fn unit(program: &Path, home: &Path, environment: &Environment) -> String {
    let variables = VARIABLES.iter().filter_map(|name| {
        let variable = quoted(&format!("{name}={}", environment.get(name)?));
        Some(format!("Environment={variable}\n"))
    });
    format!(
        include_str!("../../data/metaclaw.service"),
        mark = MARK,
        program = quoted(&program.display().to_string()),
        listener = restarter::LISTENER,
        home = home_flag(home),
        variables = variables.collect::<String>()
    )
}

/// The flag that names a home, which may have been named relative to a folder that systemd does not know.
fn home_flag(home: &Path) -> String {
    let home = std::path::absolute(home).unwrap_or_else(|_| home.to_owned());
    format!("--home {}", quoted(&home.display().to_string()))
}

/// As systemd reads it: `%` and `$` would stand for something else.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace('%', "%%").replace('$', "$$"))
}

fn systemctl(arguments: &[&str]) -> Command {
    let mut command = Command::new("systemctl");
    command
        .arg("--user")
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn has_systemd() -> bool {
    let asked = systemctl(&["show-environment"])
        .stdout(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success())
}

fn run(arguments: &[&str]) -> anyhow::Result<()> {
    let status = systemctl(arguments).stdout(Stdio::null()).status()?;
    if status.success() {
        Ok(())
    } else {
        bail!(
            "`systemctl --user {}` failed ({status})",
            arguments.join(" ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_as_systemd_reads_it() {
        let program = Path::new("/a b/100%/meta\"claw");
        let text = unit(program, Path::new("/my home"), &Environment::default());
        assert!(
            text.contains(
                "ExecStart=\"/a b/100%%/meta\\\"claw\" start --listen-on-stdin --home \"/my home\"\n"
            ),
            "{text}"
        );
        assert!(text.starts_with(MARK));
    }

    #[test]
    fn a_unit_belongs_to_one_home() {
        let folder = tempfile::tempdir().unwrap();
        let environment =
            Environment::from_pairs([("XDG_CONFIG_HOME", folder.path().to_str().unwrap())]);
        let of = |home: &str| {
            let home = Some(PathBuf::from(home));
            Context::new(environment.clone(), home, None)
        };
        assert!(!is_of(&of("/homes/a")));
        let path = unit_path(&environment);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = unit(
            Path::new("/bin/metaclaw"),
            Path::new("/homes/a"),
            &environment,
        );
        fs::write(&path, text).unwrap();
        assert!(is_of(&of("/homes/a")));
        assert!(!is_of(&of("/homes")));
        assert!(!is_of(&of("/homes/a/instances/30001")));
    }
}
