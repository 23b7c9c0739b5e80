//! A proxy in a home of its own: started, asked, killed, started again.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use metaclaw_turns::Turn;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{
    client::Client,
    upstream::Upstream,
    wait::{found, until},
};

/// How long a start may take before the test gives up: a cold trainer converts its model first.
const READY_WITHIN: Duration = Duration::from_secs(180);

/// A home folder with its configuration; gone when dropped, unless it was made [`Home::at`] a place.
#[derive(Debug)]
pub struct Home {
    folder: PathBuf,
    _temporary: Option<TempDir>,
    bin_dir: PathBuf,
    env: Vec<(String, String)>,
}

/// A proxy that runs in a [`Home`]; killed when dropped.
#[derive(Debug)]
pub struct Proxy {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    pub base_url: String,
}

impl Home {
    /// A home with this `config.yaml`, and the binaries of `bin_dir`.
    pub fn new(bin_dir: &Path, config: &str) -> Self {
        Self::below(&std::env::temp_dir(), bin_dir, config)
    }

    /// The same in a folder of `parent`.
    pub fn below(parent: &Path, bin_dir: &Path, config: &str) -> Self {
        let folder = TempDir::new_in(parent).expect("a temporary folder");
        let home = Self::at(folder.path(), bin_dir, config);
        Self {
            _temporary: Some(folder),
            ..home
        }
    }

    /// The same in this folder, with whatever is in it, which stays.
    pub fn at(folder: &Path, bin_dir: &Path, config: &str) -> Self {
        std::fs::create_dir_all(folder).expect("a writable place");
        std::fs::write(folder.join("config.yaml"), config).expect("a writable home");
        Self {
            folder: folder.to_owned(),
            _temporary: None,
            bin_dir: bin_dir.to_owned(),
            env: Vec::new(),
        }
    }

    /// A home whose proxy stands before this upstream and teaches nothing; `dialect` is a value of
    /// `upstreams.<name>.dialect`, and the fields of `more` are added to the configuration.
    pub fn before(bin_dir: &Path, upstream: &Upstream, dialect: &str, more: &Value) -> Self {
        let url = format!("{}/v1", upstream.base_url);
        let mut config = json!({"mode": "skills_only", "routing": {"order": ["scripted"]},
            "upstreams": {"scripted": {"url": url, "dialect": dialect}}});
        for (key, value) in more.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        // JSON is YAML.
        Self::new(bin_dir, &config.to_string())
    }

    /// Sets one variable of its environment: a configuration key, as `METACLAW__RL__BATCH_SIZE`, or another.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// The `metaclaw` command with `args`, in this home and no other.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.bin_dir.join("metaclaw"));
        command
            .args(args)
            .env("METACLAW_HOME", self.path())
            // What the tests' own computing is held to.
            .env_remove("OMP_NUM_THREADS")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .kill_on_drop(true);
        command
    }

    /// Runs `metaclaw ARGS` to its end and reads what it prints as JSON.
    pub async fn ask(&self, args: &[&str]) -> Result<Value> {
        let output = self.command(args).output().await?;
        if !output.status.success() {
            bail!(
                "metaclaw {args:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        serde_json::from_slice(&output.stdout).with_context(|| {
            format!(
                "metaclaw {args:?} printed {}",
                String::from_utf8_lossy(&output.stdout)
            )
        })
    }

    /// Every turn in the log, in the order of its export.
    pub async fn turns(&self) -> Vec<Turn> {
        let export = self.command(&["turns", "export"]).output().await;
        let export = export.expect("metaclaw runs");
        let said = String::from_utf8(export.stdout).expect("UTF-8");
        let turn = |line| serde_json::from_str(line).expect("a turn");
        said.lines().map(turn).collect()
    }

    /// Starts the proxy on a port of the system's choice and waits until it is ready.
    pub async fn start(&self) -> Result<Proxy> {
        self.start_on(0).await
    }

    /// Starts the proxy on this port and waits until it is ready.
    pub async fn start_on(&self, port: u16) -> Result<Proxy> {
        let config = self.path().join("config.yaml");
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path().join("test.log"))?;
        let mut child = self
            .command(&["start", "--config"])
            .arg(&config)
            // By the flag, another port than that of the settings would be another proxy of this home.
            .env("METACLAW__PROXY__PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let pid = child.id().context("just spawned")?;
        let ready = async {
            let base_url = found(READY_WITHIN, async || self.announced(pid)).await?;
            let client = Client::new(&base_url);
            let is_ready = async || client.get_json("/readyz").await.is_ok();
            until(READY_WITHIN, is_ready).await?;
            anyhow::Ok(base_url)
        };
        let base_url = tokio::select! {
            base_url = ready => base_url.context("not ready in time"),
            status = child.wait() => bail!("metaclaw ended with {}: {}", status?, self.log()),
        };
        Ok(Proxy {
            child,
            base_url: base_url?,
        })
    }

    /// What every proxy of this home has printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("test.log")).unwrap_or_default()
    }

    /// The base URL that the process `pid` wrote to `run.json`, once it has.
    fn announced(&self, pid: u32) -> Result<Option<String>> {
        let run = std::fs::read(self.path().join("run.json")).ok();
        let run = run.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        let Some(run) = run.filter(|run| run["pid"] == pid) else {
            return Ok(None);
        };
        let url = run["base_url"]
            .as_str()
            .context("run.json has no base_url")?;
        Ok(Some(url.trim_end_matches("/v1").to_owned()))
    }
}

impl Proxy {
    /// A client of this proxy.
    pub fn client(&self) -> Client {
        Client::new(&self.base_url)
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        let port = self
            .base_url
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok());
        port.expect("a base URL ends in its port")
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("it has not been waited for")
    }

    /// Waits until it ends by itself; its status.
    pub async fn ended(mut self) -> Result<ExitStatus> {
        Ok(self.child.wait().await?)
    }

    /// `kill -9`, and the wait until the process is gone.
    pub async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("kill -9 of metaclaw")
    }

    /// SIGTERM, and the wait for the drain.
    pub async fn stop(mut self) -> Result<()> {
        let pid = self.child.id().context("already gone")?;
        signal(pid, Signal::TERM)?;
        let status = self.child.wait().await?;
        if !status.success() {
            bail!("metaclaw ended with {status}");
        }
        Ok(())
    }
}

/// Sends one signal to one process.
pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .context("not a pid")?;
    kill_process(pid, signal).with_context(|| format!("{signal:?} to {pid:?}"))
}

/// Every running process whose command line names `metaclaw-trainer` and this checkpoint folder.
pub fn trainers_of(home: &Path) -> Vec<u32> {
    let needle = home.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains("metaclaw-trainer") && line.contains(&needle) {
            found.push(pid);
        }
    }
    found
}
