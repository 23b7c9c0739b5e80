//! Where log lines go: standard error, which `-d` leads into a file in the home folder.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::environment::Environment;

/// Begins to log. `RUST_LOG` chooses what is heard, as in `debug` or `metaclaw_learner=debug`.
pub(crate) fn begin(environment: &Environment) {
    let wanted = environment.get("RUST_LOG").unwrap_or("info");
    let filter = EnvFilter::try_new(wanted).unwrap_or_else(|_| EnvFilter::new("info"));
    let logger = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .try_init();
    // Fails only where logging has begun already, as in tests.
    drop(logger);
}
