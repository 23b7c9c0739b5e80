//! The process that keeps a sandbox alive. It ends when its input closes, so also when this program dies.

use std::{
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, ChildStdin, Command},
    time::timeout,
};

use super::error::SandboxError;
use crate::processes::ProcessGroup;

/// What the holder runs as the first process of the sandbox. Nothing inside can signal the first process, and bash
/// reaps the processes whose parents have ended.
pub(super) const SCRIPT: &str = "echo ready; while read -r _; do :; done";
const FAREWELL: Duration = Duration::from_secs(5);
const MAX_WORDS: u64 = 4096;

#[derive(Debug)]
pub(super) struct SandboxHolder {
    child: Child,
    input: Option<ChildStdin>,
    group: ProcessGroup,
}

// === impl SandboxHolder ===

impl SandboxHolder {
    /// Starts a holder and waits until the sandbox is ready. Returns it with what `command` wrote before that.
    pub(super) async fn start(
        mut command: Command,
        program: &'static str,
        within: Duration,
    ) -> Result<(Self, String), SandboxError> {
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let mut child = command
            .spawn()
            .map_err(|source| SandboxError::Spawn { program, source })?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut holder = Self {
            group: ProcessGroup::new(&child),
            input: child.stdin.take(),
            child,
        };
        let mut said = String::new();
        let ready = async {
            let mut lines = BufReader::new(stdout?).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if line == "ready" {
                    return Some(());
                }
                said.push_str(&line);
                said.push('\n');
            }
            None
        };
        match timeout(within, ready).await {
            Ok(Some(())) => Ok((holder, said)),
            ended => {
                holder.group.kill();
                let _ = holder.child.wait().await;
                let mut words = String::new();
                if let Some(stderr) = stderr {
                    let mut limited = stderr.take(MAX_WORDS);
                    let _ = timeout(FAREWELL, limited.read_to_string(&mut words)).await;
                }
                if ended.is_err() {
                    words = format!("it was not ready after {} s. {words}", within.as_secs());
                }
                Err(SandboxError::Refused {
                    program,
                    words: words.trim().to_owned(),
                })
            }
        }
    }

    /// Ends the sandbox, and returns once every process in it has ended.
    pub(super) async fn close(mut self) -> std::io::Result<ExitStatus> {
        self.input = None;
        if let Ok(status) = timeout(FAREWELL, self.child.wait()).await {
            self.group.release();
            return status;
        }
        self.group.kill();
        self.child.wait().await
    }
}
