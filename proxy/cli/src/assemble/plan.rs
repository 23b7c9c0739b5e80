//! What is decided before anything runs.

use std::{path::PathBuf, sync::Arc};

use metaclaw_control::home::Home;
use metaclaw_settings::{Loaded, Policy};
use rustls::RootCertStore;
use tracing_appender::non_blocking::ErrorCounter;

use crate::{agent::AgentLink, environment::Environment};

/// All that is known before anything runs.
#[derive(Debug)]
pub(crate) struct StartPlan {
    /// The file that the settings came from.
    pub config_name: PathBuf,
    /// MetaClaw's home; the caller has its lock.
    pub home: Home,
    /// The environment as it was.
    pub environment: Environment,
    pub loaded: Loaded,
    pub policy: Policy,
    /// The agent that may be pointed at us.
    pub agent: AgentLink,
    /// The certificates that servers are trusted by.
    pub roots: Arc<RootCertStore>,
    /// Whether the socket to listen on is the standard input.
    pub listens_on_stdin: bool,
    /// Counts log lines that were dropped.
    pub dropped_lines: ErrorCounter,
}

/// A secret of this run: 32 hex digits.
pub(super) fn random_token() -> String {
    format!("{:032x}", rand::random::<u128>())
}
