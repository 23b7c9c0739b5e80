//! The signals that end this process in good order.

use std::{fs, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT and SIGHUP (a terminal or an ssh session that was closed); and SIGXFSZ, by which a
/// process dies that writes beyond `ulimit -f`. With a handler the write fails instead, as it does on a full
/// disk, and the chat goes on.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// None where `nohup` has it ignored: a handler would undo that.
    hangup: Option<Signal>,
    _file_too_large: Signal,
}

// === impl Signals ===

impl Signals {
    /// Listens from now on.
    pub(crate) fn new() -> io::Result<Self> {
        let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: hangup.transpose()?,
            _file_too_large: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// Waits for a signal that ends the process.
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

/// Whether SIGHUP was ignored when we were started; only Linux has a file that says so.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Bit 0 is signal 1.
    ignored.is_some_and(|mask| mask & 1 == 1)
}
