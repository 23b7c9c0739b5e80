//! `start -d`: the same program again, in a process group of its own; no fork.
//!
//! The first process waits until the second says on its standard output that it listens, or ends;
//! so an error is shown where it was asked for, and the shell's prompt comes back to a proxy that
//! answers.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
};

use anyhow::{Context as _, bail};
use metaclaw_control::home::Home;
use serde::{Deserialize, Serialize};

use crate::out;

/// How much of the log is shown when the second process ends instead of listening.
const SHOWN: usize = 2_000;

/// The second process's line on standard output when it listens.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadyMessage {
    /// Printed by the first process.
    pub banner: String,
    /// What was logged as a warning before: only a log file has seen it.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Starts it with `arguments` and waits until it listens.
///
/// # Errors
///
/// With the last of its log, when it ends instead.
pub(crate) fn start(home: &Home, arguments: &[String]) -> anyhow::Result<ExitCode> {
    home.create()?;
    let path = home.log_file();
    let mut log = open_log(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let begin = log.seek(SeekFrom::End(0))?;
    let mut child = spawn(arguments, log)?;
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
    let (pid, log) = (child.id(), path.display());
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

fn spawn(arguments: &[String], log: File) -> anyhow::Result<Child> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let child = Command::new(own)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0)
        .spawn()?;
    Ok(child)
}

/// Its first line; none when it ends without one.
fn first_line(child: &mut Child) -> Option<ReadyMessage> {
    let mut line = String::new();
    BufReader::new(child.stdout.take()?)
        .read_line(&mut line)
        .ok()?;
    serde_json::from_str(&line).ok()
}

/// The end of what was logged since `begin`.
fn said_since(path: &Path, begin: u64) -> std::io::Result<String> {
    let mut log = File::open(path)?;
    log.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    log.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let skip = text.chars().count().saturating_sub(SHOWN);
    Ok(text
        .chars()
        .skip(skip)
        .collect::<String>()
        .trim_end()
        .to_owned())
}
