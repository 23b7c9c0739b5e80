//! `start -d`: the same program again, in a process group of its own; no fork.
//!
//! The first process opens the listening socket, hands it to a second that keeps it (`restarter`), and waits until the
//! proxy, the third, says on its standard output that it listens, or ends. So an error is shown where it was asked for,
//! and the shell's prompt comes back to a proxy that answers.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    net::TcpListener,
    os::{
        fd::OwnedFd,
        unix::{fs::OpenOptionsExt, process::CommandExt},
    },
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
};

use anyhow::{Context as _, bail};
use metaclaw_control::home::Home;
use serde::{Deserialize, Serialize};

use crate::{out, restarter};

const SHOWN: usize = 2_000;

/// The second process's line on standard output when it listens.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadyMessage {
    /// The proxy's process.
    pub pid: u32,
    /// Printed by the first process.
    pub banner: String,
    /// What was logged as a warning before: only a log file has seen it.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Starts the proxy with `arguments` and waits until it listens.
///
/// `socket` is the port that it is to listen on. Without one the proxy opens the port itself, and nothing starts it
/// again: that is for a port that cannot be opened, so that the proxy says why.
///
/// # Errors
///
/// With the last of its log, when it ends instead.
pub(crate) fn start(
    home: &Home,
    arguments: &[String],
    socket: Option<TcpListener>,
) -> anyhow::Result<ExitCode> {
    home.create()?;
    let path = home.log_file();
    let mut log = open_log(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let begin = log.seek(SeekFrom::End(0))?;
    let mut child = spawn(arguments, socket, log)?;
    let Some(ready) = first_line(&mut child) else {
        let status = child.wait()?;
        bail!(
            "it ended at once ({status}):\n{}",
            said_since(&path, begin)?
        );
    };
    out::line(ready.banner)?;
    for warning in ready.warnings {
        out::line(format!("  warning   {warning}"))?;
    }
    let (pid, log) = (ready.pid, path.display());
    out::line(format!("  in the background: process {pid}, log {log}"))?;
    Ok(ExitCode::SUCCESS)
}

fn open_log(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

fn spawn(arguments: &[String], socket: Option<TcpListener>, log: File) -> anyhow::Result<Child> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let mut command = Command::new(own);
    match socket {
        Some(socket) => command
            .arg(restarter::ARGUMENT)
            .args(arguments)
            .arg(restarter::LISTENER)
            .stdin(OwnedFd::from(socket)),
        None => command.args(arguments).stdin(Stdio::null()),
    };
    let child = command
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0)
        .spawn()?;
    Ok(child)
}

fn first_line(child: &mut Child) -> Option<ReadyMessage> {
    let mut line = String::new();
    BufReader::new(child.stdout.take()?)
        .read_line(&mut line)
        .ok()?;
    serde_json::from_str(&line).ok()
}

fn said_since(path: &Path, begin: u64) -> std::io::Result<String> {
    let mut log = File::open(path)?;
    log.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    log.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let skip = text.chars().count().saturating_sub(SHOWN);
    let last: String = text.chars().skip(skip).collect();
    Ok(last.trim_end().to_owned())
}
