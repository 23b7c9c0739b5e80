//! One process of the trainer.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, setpriority_process};
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{ChildStdin, ChildStdout, Command},
    task::JoinSet,
};
use tracing::{debug, info};

const MAX_LINE: u64 = 4 * 1024;
/// How long the output of a trainer is read after it has exited.
const OUTPUT_GRACE: Duration = Duration::from_millis(200);
const NICE: i32 = 5;

/// A running trainer, with the pipe that keeps it alive.
pub(super) struct Child {
    process: tokio::process::Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    output_tasks: JoinSet<()>,
    /// The last line of its stderr, which usually says why it ended.
    last_line: Arc<Mutex<String>>,
}

#[derive(Debug, Deserialize)]
struct TrainerReadyLine {
    ready: bool,
    address: SocketAddr,
}

// === impl Child ===

impl Child {
    pub(super) fn start(spec: &TrainerSpec) -> io::Result<Self> {
        let mut command = Command::new(&spec.program);
        command.args(&spec.arguments);
        for name in &spec.cleared {
            command.env_remove(name);
        }
        command.envs(spec.env.iter().map(|(name, value)| (name, value)));
        if spec.n_threads > 0 {
            command.env("OMP_NUM_THREADS", spec.n_threads.to_string());
        }
        // If two thread pools wait actively on few cores, both become ten times slower.
        command
            .env("OMP_WAIT_POLICY", "passive")
            .env("METACLAW_API_KEY", &spec.key)
            // Ctrl-C and a closed terminal signal the whole process group, but running replies need the trainer until
            // they end, and it ends when its stdin closes.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn()?;
        lower_priority(process.id());
        let mut output_tasks = JoinSet::new();
        let last_line = Arc::default();
        if let Some(stderr) = process.stderr.take() {
            output_tasks.spawn(forward(BufReader::new(stderr), Arc::clone(&last_line)));
        }
        Ok(Self {
            stdin: process.stdin.take(),
            stdout: process.stdout.take().map(BufReader::new),
            process,
            output_tasks,
            last_line,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id().unwrap_or_default()
    }

    /// Waits for the ready line. There is no deadline, because a first start may convert a model, and a process that
    /// ends is noticed.
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
                self.output_tasks.spawn(forward(stdout, Arc::default()));
                return Ok(address);
            }
            debug!(target: "trainer", "{text}");
        }
    }

    /// Waits for its exit; returns the status and its last line.
    pub(super) async fn ended(&mut self) -> String {
        let status = match self.process.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => return format!("it cannot be waited for: {error}"),
        };
        // Its last output may not be read yet, and a grandchild may keep the pipe open.
        let drained = async { while self.output_tasks.join_next().await.is_some() {} };
        tokio::time::timeout(OUTPUT_GRACE, drained).await.ok();
        let line = self.last_line.lock();
        let words = line.unwrap_or_else(PoisonError::into_inner);
        if words.is_empty() {
            status
        } else {
            format!("{status}: {words}")
        }
    }

    /// Ends it by closing its stdin; kills it after `grace`.
    pub(super) async fn end(mut self, grace: Duration) {
        drop(self.stdin.take());
        if tokio::time::timeout(grace, self.process.wait())
            .await
            .is_err()
        {
            // This fails only if it has ended already.
            self.process.kill().await.ok();
        }
        self.output_tasks.abort_all();
    }
}

fn ready(line: &str) -> Option<SocketAddr> {
    let line: TrainerReadyLine = serde_json::from_str(line).ok()?;
    line.ready.then_some(line.address)
}

/// Returns a log line without its own time, because MetaClaw's time is before it.
fn without_time(line: &str) -> &str {
    match line.split_once(' ') {
        Some((time, rest)) if time.len() > 19 && time.ends_with('Z') && time.contains('T') => {
            rest.trim_start()
        }
        _ => line,
    }
}

async fn forward(mut from: impl AsyncBufReadExt + Unpin, last_line: Arc<Mutex<String>>) {
    while let Ok(Some(text)) = line(&mut from).await {
        info!(target: "trainer", "{}", without_time(&text));
        *last_line.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

async fn line(from: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut bounded = AsyncReadExt::take(&mut *from, MAX_LINE);
    if bounded.read_until(b'\n', &mut bytes).await? == 0 {
        return Ok(None);
    }
    Ok(Some(String::from_utf8_lossy(&bytes).trim_end().to_owned()))
}

#[derive(Debug, Clone)]
pub(crate) struct TrainerSpec {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// The key that callers must send; only this proxy knows it, and each run has a new one.
    pub key: String,
    /// Additional environment variables: keys, which do not belong among arguments.
    pub env: Vec<(&'static str, String)>,
    /// The engine's threads; with 0, the engine uses one for each physical core.
    pub n_threads: usize,
    /// Names of environment variables that it must not inherit.
    pub cleared: Vec<String>,
}

/// Lowers the priority of a process that was just started; threads that it starts later inherit it.
fn lower_priority(pid: Option<u32>) {
    let pid = pid.and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
    // A process that has ended already needs no change.
    let Some(pid) = pid else { return };
    if let Err(error) = setpriority_process(Some(pid), NICE) {
        debug!(%error, "the trainer runs at the usual priority");
    }
}
