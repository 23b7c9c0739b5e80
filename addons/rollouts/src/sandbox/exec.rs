//! One command: its text, its limits, and how it ended.

use std::{
    collections::VecDeque,
    ffi::OsString,
    future::pending,
    io,
    os::unix::process::ExitStatusExt as _,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStderr, ChildStdout, Command},
    time::timeout,
};

use crate::processes::ProcessGroup;

/// The bytes that a pipe holds at most: a command that ended has written no more than this unread.
const PIPE: usize = 64 << 10;
/// How long the pipe of a command that ended may stay silent until nothing more is expected.
const SILENCE: Duration = Duration::from_millis(20);
const MAX_COMPLAINT: u64 = 4096;
/// The folder in each sandbox where commands run.
pub(crate) const WORK_FOLDER: &str = "/work";

/// A command for a sandbox.
#[derive(Debug, Clone)]
pub struct Exec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    pub stdin: Vec<u8>,
    /// Variables of the environment, beside those of the sandbox or in their place.
    pub env: Vec<(&'static str, OsString)>,
    /// The command is killed after this time, with every other process of the sandbox.
    pub time: Duration,
    /// The bytes of output that are kept, of the beginning and of the end.
    pub max_output: usize,
}

/// How a command ended, and what it wrote to its output and error streams, in the order in which it wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutcome {
    pub end: ExecEnd,
    /// The output. If it was longer than allowed, the bytes up to the gap.
    pub head: Vec<u8>,
    /// The bytes after the gap, or after half of the limit.
    pub tail: Vec<u8>,
    /// The length of the gap in bytes.
    pub omitted: u64,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecEnd {
    /// The exit code; 128 and the signal's number if a signal ended it.
    Exited(i32),
    TimedOut,
}

#[derive(Debug)]
pub(super) struct RawOutcome {
    pub(super) outcome: ExecOutcome,
    pub(super) complaint: String,
    /// The process group of the command. It may contain programs that the command left in the background.
    pub(super) group: ProcessGroup,
}

/// Keeps the first and the last bytes of a stream, half of the limit each.
#[derive(Default)]
struct BoundedOutput {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    omitted: u64,
}

// === impl Exec ===

impl Exec {
    /// A bash script, with 30 s and 16 KiB of output.
    pub fn script(text: &str) -> Self {
        let argv = ["bash", "--noprofile", "--norc", "-c", text];
        Self {
            argv: argv.map(str::to_owned).to_vec(),
            stdin: Vec::new(),
            env: Vec::new(),
            time: Duration::from_secs(30),
            max_output: 16 << 10,
        }
    }

    #[must_use]
    pub fn with_args(mut self, args: impl IntoIterator<Item: Into<String>>) -> Self {
        self.argv.extend(args.into_iter().map(Into::into));
        self
    }

    #[must_use]
    pub fn with_stdin(self, stdin: Vec<u8>) -> Self {
        Self { stdin, ..self }
    }

    #[must_use]
    pub fn within(self, time: Duration) -> Self {
        Self { time, ..self }
    }

    #[must_use]
    pub fn with_max_output(self, max_output: usize) -> Self {
        Self { max_output, ..self }
    }
}

// === impl ExecOutcome ===

impl ExecOutcome {
    pub fn succeeded(&self) -> bool {
        self.end == ExecEnd::Exited(0)
    }

    /// Returns the output as text, with a note where bytes are missing.
    pub fn text(&self) -> String {
        if self.omitted == 0 {
            let whole = [&*self.head, &*self.tail].concat();
            return String::from_utf8_lossy(&whole).into_owned();
        }
        let head = String::from_utf8_lossy(&self.head);
        let tail = String::from_utf8_lossy(&self.tail);
        format!("{head}\n[{} bytes left out]\n{tail}", self.omitted)
    }
}

// === impl BoundedOutput ===

impl BoundedOutput {
    /// `limit` is in bytes.
    fn new(limit: usize) -> Self {
        Self {
            half: limit / 2,
            ..Self::default()
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..excess);
        self.omitted += excess as u64;
    }
}

// === functions ===

pub(super) async fn run(mut command: Command, exec: &Exec) -> io::Result<RawOutcome> {
    let stdin = if exec.stdin.is_empty() {
        Stdio::null()
    } else {
        Stdio::piped()
    };
    command.stdin(stdin);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    let mut child = command.spawn()?;
    let mut group = ProcessGroup::new(&child);
    let stderr = child.stderr.take();
    let mut output = BoundedOutput::new(exec.max_output);
    let input = child.stdin.take();
    let feed = async {
        if let Some(mut input) = input {
            // A command that ends without reading everything is no error.
            let _ = input.write_all(&exec.stdin).await;
        }
        pending::<io::Result<ExitStatus>>().await
    };
    let stdout = child.stdout.take();
    let finish = async {
        tokio::select! {
            status = follow(&mut child, stdout, &mut output) => status,
            status = feed => status,
        }
    };
    let end = if let Ok(status) = timeout(exec.time, finish).await {
        ExecEnd::Exited(exit_code(status?))
    } else {
        group.kill();
        child.wait().await?;
        ExecEnd::TimedOut
    };
    let complaint = complaint(stderr).await;
    Ok(RawOutcome {
        outcome: ExecOutcome {
            end,
            head: output.head,
            tail: output.tail.into(),
            omitted: output.omitted,
        },
        complaint,
        group,
    })
}

/// Reads the output until the command has ended. Programs that it leaves behind may hold the pipe open.
async fn follow(
    child: &mut Child,
    stdout: Option<ChildStdout>,
    output: &mut BoundedOutput,
) -> io::Result<ExitStatus> {
    let Some(mut stdout) = stdout else {
        return child.wait().await;
    };
    let mut buffer = vec![0; 8 << 10];
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            read = stdout.read(&mut buffer) => match read? {
                0 => return child.wait().await,
                n => output.push(&buffer[..n]),
            },
        }
    };
    let mut left = PIPE;
    while left > 0 {
        match timeout(SILENCE, stdout.read(&mut buffer)).await {
            Ok(Ok(n)) if n > 0 => {
                output.push(&buffer[..n]);
                left = left.saturating_sub(n);
            }
            _ => break,
        }
    }
    Ok(status)
}

fn exit_code(status: ExitStatus) -> i32 {
    let by_signal = || status.signal().map_or(-1, |signal| 128 + signal);
    status.code().unwrap_or_else(by_signal)
}

/// The entering program writes to a pipe of its own, before it becomes the command, whose streams are one.
async fn complaint(stderr: Option<ChildStderr>) -> String {
    let mut words = Vec::new();
    if let Some(stderr) = stderr {
        let mut limited = stderr.take(MAX_COMPLAINT);
        let _ = timeout(SILENCE, limited.read_to_end(&mut words)).await;
    }
    String::from_utf8_lossy(&words).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::BoundedOutput;

    #[test]
    fn the_beginning_and_the_end_are_kept_however_the_bytes_arrive() {
        for size in [1, 2, 3, 7, 100] {
            let mut output = BoundedOutput::new(8);
            for piece in b"abcdefghijklm".chunks(size) {
                output.push(piece);
            }
            assert_eq!((&*output.head, output.omitted), (&b"abcd"[..], 5));
            assert_eq!(output.tail, b"jklm");
        }
        let mut short = BoundedOutput::new(8);
        short.push(b"abcdef");
        assert_eq!((&*short.head, short.omitted), (&b"abcd"[..], 0));
        assert_eq!(short.tail, b"ef");
    }
}
