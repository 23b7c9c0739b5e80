//! The training server alone, as somebody starts it on another machine.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::external;

/// How it is started.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// The model; without one, the first run names it.
    pub model: Option<PathBuf>,
    /// The folder of adapters and checkpoints; without one, the default.
    pub checkpoints: Option<PathBuf>,
    /// The port; 0 means that the system chooses.
    pub port: u16,
    /// The key that callers must send; without one, any key is accepted.
    pub key: Option<String>,
    pub flags: Vec<String>,
    /// The file of its error output; without one, that of the test.
    pub log: Option<PathBuf>,
    pub env: Vec<(&'static str, String)>,
}

/// A running training server; killed when dropped.
#[derive(Debug)]
pub struct Trainer {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    pub port: u16,
}

// === impl Trainer ===

impl Trainer {
    /// Starts one and waits until it is ready.
    pub async fn start(start: &Start) -> Self {
        let mut command = Command::new(external::bin_dir().join("metaclaw-trainer"));
        let named = |name: &str, path: &Path| format!("--{name}={}", path.display());
        command
            .args(start.model.as_deref().map(|path| named("model", path)))
            .args(
                start
                    .checkpoints
                    .as_deref()
                    .map(|path| named("checkpoint-dir", path)),
            )
            .arg(format!("--port={}", start.port))
            .args(&start.flags)
            .envs(start.key.iter().map(|key| ("METACLAW_API_KEY", key)))
            .envs(start.env.iter().map(|(name, value)| (name, value)))
            .arg("--parent-stdin")
            // The limits for computing in tests.
            .env_remove("OMP_NUM_THREADS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        if let Some(log) = &start.log {
            command.stderr(File::create(log).expect("a writable folder"));
        }
        let mut child = command.spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let ready = stdout.lines().next_line().await.expect("a pipe");
        let ready: Value =
            serde_json::from_str(&ready.expect("it is ready, or its error output says why"))
                .expect("JSON");
        let address = ready["address"].as_str().expect("an address");
        let (_, port) = address.rsplit_once(':').expect("HOST:PORT");
        Self {
            child,
            url: format!("http://{address}"),
            port: port.parse().expect("a port"),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("it has not been waited for")
    }

    /// Kills it with SIGKILL, and waits until the process is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it runs");
    }

    /// Ends it and its descendants, and waits until its files are closed.
    pub async fn stop(mut self) {
        // This simulates the end of the process that started it.
        drop(self.child.stdin.take());
        self.child.wait().await.expect("it ends");
    }
}
