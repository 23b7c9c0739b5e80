//! Where log lines go: standard error, which `-d` leads into a file in the home folder.

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    environment::Environment,
    traces::{self, Traces},
};

/// Begins to log. `RUST_LOG` chooses what is heard, as in `debug` or `metaclaw_learner=debug`; traces
/// hear of every turn.
///
/// # Errors
/// Where traces are wanted and cannot be had.
pub(crate) fn begin(environment: &Environment) -> anyhow::Result<Traces> {
    let wanted = environment.get("RUST_LOG").unwrap_or("info");
    let filter = EnvFilter::try_new(wanted).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_filter(filter);
    let (turns, traces) = traces::of(environment)?;
    let logger = tracing_subscriber::registry().with(lines).with(turns);
    // Fails only where logging has begun already, as in tests.
    drop(logger.try_init());
    Ok(traces)
}
