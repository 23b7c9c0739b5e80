//! One life of the trainer's process.

use std::{
    io,
    net::SocketAddr,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

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
/// How long the words of a trainer that has ended are waited for.
const HEARING: Duration = Duration::from_millis(200);

/// A running trainer, with the pipe that keeps it alive.
pub(super) struct Child {
    process: tokio::process::Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    /// Forwards what it says; ends with it.
    voices: JoinSet<()>,
    /// The last line that it said on its error output: most often why it ended.
    last_words: Arc<Mutex<String>>,
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
            // What the terminal tells us, Ctrl-C or that it was closed, is ours to hear: replies under way
            // need the trainer to their end, and it goes when its stdin closes.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn()?;
        let mut voices = JoinSet::new();
        let last_words = Arc::default();
        if let Some(stderr) = process.stderr.take() {
            voices.spawn(forward(BufReader::new(stderr), Arc::clone(&last_words)));
        }
        Ok(Self {
            stdin: process.stdin.take(),
            stdout: process.stdout.take().map(BufReader::new),
            process,
            voices,
            last_words,
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
            let text = match line(&mut stdout).await {
                Ok(Some(text)) => text,
                Ok(None) => return Err(self.ended().await),
                Err(error) => return Err(format!("its output cannot be read: {error}")),
            };
            if let Some(address) = ready(&text) {
                self.voices.spawn(forward(stdout, Arc::default()));
                return Ok(address);
            }
            debug!(target: "trainer", "{text}");
        }
    }

    /// Waits for its end, and says what it was.
    pub(super) async fn ended(&mut self) -> String {
        let status = match self.process.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => return format!("it cannot be waited for: {error}"),
        };
        // What it said last may still be on its way; a grandchild may hold the pipe for ever.
        let heard = async { while self.voices.join_next().await.is_some() {} };
        tokio::time::timeout(HEARING, heard).await.ok();
        let words = self
            .last_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if words.is_empty() {
            status
        } else {
            format!("{status}: {words}")
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

/// The address in a ready line; none where it is any other line.
fn ready(line: &str) -> Option<SocketAddr> {
    let line: ReadyLine = serde_json::from_str(line).ok()?;
    line.ready.then_some(line.address)
}

/// A log line without its own time: ours is before it.
fn without_time(line: &str) -> &str {
    match line.split_once(' ') {
        Some((time, rest)) if time.len() > 19 && time.ends_with('Z') && time.contains('T') => {
            rest.trim_start()
        }
        _ => line,
    }
}

/// Passes lines on to our log.
async fn forward(mut from: impl AsyncBufReadExt + Unpin, last_words: Arc<Mutex<String>>) {
    while let Ok(Some(text)) = line(&mut from).await {
        info!(target: "trainer", "{}", without_time(&text));
        *last_words.lock().unwrap_or_else(PoisonError::into_inner) = text;
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
