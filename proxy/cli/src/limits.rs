//! The system's limits for this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// Below this, `proxy.max_streams` of 2,000 cannot be reached, because a stream takes two connections.
const ENOUGH: u64 = 4_500;

pub(crate) fn raise_open_files() {
    let limits = getrlimit(Resource::Nofile);
    if limits.current == limits.maximum {
        return log_limits(limits);
    }
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => log_limits(raised),
        // macOS has a lower limit of its own; then the present limit stays.
        Err(error) => {
            warn!(%error, "the number of open files cannot be raised");
            log_limits(limits);
        }
    }
}

fn log_limits(limits: Rlimit) {
    match limits.current {
        Some(open_files) if open_files < ENOUGH => {
            warn!(
                open_files,
                "few connections are possible: `ulimit -Hn` allows no more files"
            );
        }
        Some(open_files) => debug!(open_files, "connections are bounded by open files"),
        None => {}
    }
}
