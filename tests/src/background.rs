//! A proxy that `metaclaw start -d` has put into the background, and its parent, which keeps the port.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

use crate::home::{Home, signal};

/// The two processes of a background start. Both are killed when this is dropped.
#[derive(Debug)]
pub struct Background {
    home: PathBuf,
    /// `http://127.0.0.1:PORT`, which stays the same when the proxy is started again.
    pub base_url: String,
}

/// The ids of a background start's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processes {
    /// The process that holds the listening socket and starts the proxy again.
    pub parent: u32,
    pub proxy: u32,
}

impl Background {
    /// Runs `metaclaw start -d` in this home, on a port of the system's choice. It returns when the proxy is ready.
    ///
    /// # Errors
    /// The command fails, or the proxy does not say where it listens.
    pub async fn start(home: &Home) -> Result<Self> {
        let mut command = home.command(&["start", "-d"]);
        let output = command.env("METACLAW__PROXY__PORT", "0").output().await?;
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "metaclaw start -d: {said}{errors}");
        let url = run_file(home.path())?["base_url"].clone();
        let url = url.as_str().context("run.json has no base_url")?;
        Ok(Self {
            home: home.path().to_owned(),
            base_url: url.trim_end_matches("/v1").to_owned(),
        })
    }

    /// Sends SIGKILL to the proxy. The parent starts it again.
    ///
    /// # Errors
    /// The proxy does not run.
    pub fn kill(&self) -> Result<()> {
        signal(Processes::of(&self.home)?.proxy, Signal::KILL)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Ok(processes) = Processes::of(&self.home) {
            // The parent first, because it would start the proxy again.
            for pid in [processes.parent, processes.proxy] {
                signal(pid, Signal::KILL).ok();
            }
        }
    }
}

impl Processes {
    /// Returns the processes of the proxy that runs in `home`.
    ///
    /// # Errors
    /// No proxy runs there.
    pub fn of(home: &Path) -> Result<Self> {
        let pid = run_file(home)?["pid"].as_u64().context("no pid")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        Ok(Self {
            parent: parent.context("no parent")?.trim().parse()?,
            proxy: u32::try_from(pid)?,
        })
    }
}

fn run_file(home: &Path) -> Result<Value> {
    let run = std::fs::read(home.join("run.json")).context("no proxy runs")?;
    Ok(serde_json::from_slice(&run)?)
}
