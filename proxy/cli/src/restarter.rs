//! The parent of a proxy in the background: it keeps the listening socket, and starts the proxy again when it is killed.
//!
//! `start -d` opens the socket and hands it to this process as its standard input, as inetd does; this process hands it to
//! the proxy in the same way. While the proxy is away, requests wait in the socket's queue, so that they are late and do
//! not fail. A proxy that ends by itself, after `metaclaw stop` or because it cannot start, is not started again: the
//! socket is closed, and the agent's own fallback takes over.
//!
//! It reads no settings and starts no runtime: it has to stay small, and to outlive whatever killed the proxy.

use std::{
    ffi::OsString,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::process::ExitStatusExt as _,
    },
    path::Path,
    process::{Command, ExitCode, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::process::Signal;

use crate::out;

/// The first argument of a process that is to be the parent. The proxy's own arguments follow.
pub(crate) const ARGUMENT: &str = "restart-when-killed";
pub(crate) const LISTENER: &str = "--listen-on-stdin";
/// A proxy that lived this long had started well: attempts are counted anew.
const STEADY: Duration = Duration::from_secs(60);
/// Pauses before each attempt. After the last the socket is closed, so that no agent waits for ever.
const PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];
/// The exit code of a Rust program whose main thread panicked.
const PANICKED: i32 = 101;

/// Starts the proxy with `arguments`, and again whenever it is killed, until it ends by itself.
///
/// # Errors
///
/// When the proxy cannot be started, or was killed too often.
pub(crate) fn run(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    // Looked up once: after an upgrade has replaced the file, this process would find its old file, which is deleted.
    // The proxy is to be started from the new one.
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let mut attempts = PAUSES.iter();
    let mut stdout = Stdio::inherit();
    loop {
        let began = Instant::now();
        let mut child = start(&program, arguments, stdout)?;
        // The first proxy writes one line to this pipe when it listens, and `start -d` waits for the line. If this process
        // kept the pipe open, `start -d` would not notice a proxy that ends without writing the line.
        silence_stdout()?;
        stdout = Stdio::null();
        let status = child.wait().context("cannot wait for the proxy")?;
        let Some(why) = killed(status) else {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
        };
        if began.elapsed() > STEADY {
            attempts = PAUSES.iter();
        }
        let Some(pause) = attempts.next() else {
            anyhow::bail!(
                "the proxy was ended {} times in a row, the last time {why}: it is not started again",
                PAUSES.len() + 1
            );
        };
        out::aside(format!(
            "metaclaw: the proxy was ended {why}; it is started again in {} s, and requests wait until then",
            pause.as_secs()
        ));
        wait(*pause);
    }
}

/// Starts the proxy. Its standard input is the socket, of which this process keeps a copy.
fn start(
    program: &Path,
    arguments: &[OsString],
    stdout: Stdio,
) -> anyhow::Result<std::process::Child> {
    let socket: OwnedFd = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .context("cannot copy the listening socket")?;
    Command::new(program)
        .args(arguments)
        .stdin(socket)
        .stdout(stdout)
        .spawn()
        .with_context(|| format!("cannot start the proxy from {}", program.display()))
}

fn silence_stdout() -> anyhow::Result<()> {
    let null = std::fs::File::options()
        .write(true)
        .open("/dev/null")
        .context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdout(null).context("cannot close standard output")
}

/// How the proxy was killed; none if it ended by itself, or because somebody asked it to.
fn killed(status: ExitStatus) -> Option<String> {
    let asked = [Signal::TERM, Signal::INT, Signal::HUP].map(Signal::as_raw);
    match (status.signal(), status.code()) {
        (Some(signal), _) if !asked.contains(&signal) => Some(format!("by signal {signal}")),
        (None, Some(PANICKED)) => Some("by a panic".to_owned()),
        _ => None,
    }
}

/// Waits. A channel that nobody sends to is the way to wait on a thread without a runtime.
fn wait(pause: Duration) {
    let (sender, receiver) = mpsc::channel::<()>();
    let timed_out = receiver.recv_timeout(pause);
    drop((sender, timed_out));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_proxy_that_was_killed_is_started_again() {
        let by_signal = |signal: Signal| killed(ExitStatus::from_raw(signal.as_raw()));
        let by_code = |code: i32| killed(ExitStatus::from_raw(code << 8));
        assert_eq!(by_signal(Signal::KILL).as_deref(), Some("by signal 9"));
        assert_eq!(by_signal(Signal::SEGV).as_deref(), Some("by signal 11"));
        assert_eq!(by_signal(Signal::TERM), None);
        assert_eq!(by_code(0), None);
        // A start that is refused, and an end by a second signal.
        assert_eq!(by_code(1), None);
        assert_eq!(by_code(130), None);
        assert_eq!(by_code(101).as_deref(), Some("by a panic"));
    }
}
