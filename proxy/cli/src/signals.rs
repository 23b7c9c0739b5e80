//! The signals that end this process in an orderly way.

use std::{fs, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// These are SIGTERM, SIGINT and SIGHUP (a terminal or an ssh session was closed); and SIGXFSZ, which kills a process
/// that writes beyond `ulimit -f`. With a handler, the write fails instead, as on a full disk, and the chat continues.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` if `nohup` ignores it, because a handler would undo that.
    hangup: Option<Signal>,
    _file_too_large: Signal,
}

// === impl Signals ===

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: hangup.transpose()?,
            _file_too_large: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    pub(crate) async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Returns whether SIGHUP was ignored at the start; only Linux has a file that reports it.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Bit 0 is signal 1.
    ignored.is_some_and(|mask| mask & 1 == 1)
}
