//! One life of the trainer's process.

use std::{io, net::SocketAddr, process::Stdio, time::Duration};

use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{ChildStdin, ChildStdout, Command},
    task::JoinSet,
};
use tracing::{debug, info};

use super::TrainerSpec;

/// The longest line of the trainer's that is passed on.
const MAX_LINE: u64 = 4 * 1024;

/// A running trainer, with the pipe that keeps it alive.
pub(super) struct Child {
    process: tokio::process::Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    /// Forwards what it says; ends with it.
    voices: JoinSet<()>,
}

/// The one line that it prints when it answers.
#[derive(Debug, Deserialize)]
struct ReadyLine {
    ready: bool,
    address: SocketAddr,
}

// === impl Child ===

impl Child {
    /// Starts it.
    pub(super) fn start(spec: &TrainerSpec) -> io::Result<Self> {
        let mut command = Command::new(&spec.program);
        command.args(&spec.arguments);
        for name in &spec.cleared {
            command.env_remove(name);
        }
        // Busy waiting of two thread pools on few cores stalls both tenfold.
        command
            .env("OMP_WAIT_POLICY", "passive")
            .env("OMP_NUM_THREADS", spec.n_threads.to_string())
            .env("METACLAW_API_KEY", &spec.key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn()?;
        let mut voices = JoinSet::new();
        if let Some(stderr) = process.stderr.take() {
            voices.spawn(forward(BufReader::new(stderr)));
        }
        Ok(Self {
            stdin: process.stdin.take(),
            stdout: process.stdout.take().map(BufReader::new),
            process,
            voices,
        })
    }

    /// Process id; 0 once it has ended.
    pub(super) fn pid(&self) -> u32 {
        self.process.id().unwrap_or_default()
    }

    /// Waits for the ready line. There is no deadline: a first start may convert a model, and a
    /// process that ends is noticed.
    pub(super) async fn ready(&mut self) -> Result<SocketAddr, String> {
        let Some(mut stdout) = self.stdout.take() else {
            return Err("it has no output to say that it is ready".to_owned());
        };
        loop {
            match line(&mut stdout).await {
                Ok(Some(text)) => match serde_json::from_str::<ReadyLine>(&text) {
                    Ok(ReadyLine {
                        ready: true,
                        address,
                    }) => {
                        self.voices.spawn(forward(stdout));
                        return Ok(address);
                    }
                    _ => debug!(target: "trainer", "{text}"),
                },
                Ok(None) => return Err(self.ended().await),
                Err(error) => return Err(format!("its output cannot be read: {error}")),
            }
        }
    }

    /// Waits for its end, and says what it was.
    pub(super) async fn ended(&mut self) -> String {
        match self.process.wait().await {
            Ok(status) => format!("{status}"),
            Err(error) => format!("it cannot be waited for: {error}"),
        }
    }

    /// Tells it to end by closing its stdin; kills it after `grace`.
    pub(super) async fn end(mut self, grace: Duration) {
        drop(self.stdin.take());
        if tokio::time::timeout(grace, self.process.wait())
            .await
            .is_err()
        {
            // Only fails when it has ended already.
            self.process.kill().await.ok();
        }
        self.voices.abort_all();
    }
}

/// Passes lines on to our log.
async fn forward(mut from: impl AsyncBufReadExt + Unpin) {
    while let Ok(Some(text)) = line(&mut from).await {
        info!(target: "trainer", "{text}");
    }
}

/// The next line, cut at a bound; `None` at the end.
async fn line(from: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut bounded = AsyncReadExt::take(&mut *from, MAX_LINE);
    if bounded.read_until(b'\n', &mut bytes).await? == 0 {
        return Ok(None);
    }
    Ok(Some(String::from_utf8_lossy(&bytes).trim_end().to_owned()))
}
