//! Where this process runs: what rooms find there besides their settings.

use std::sync::Arc;

use metaclaw_control::home::Home;
use rustls::RootCertStore;

use crate::{environment::Environment, roots};

#[derive(Debug, Clone)]
pub(crate) struct Site {
    /// A process that serves has its lock.
    pub(crate) home: Home,
    pub(crate) environment: Environment,
    pub(crate) roots: Arc<RootCertStore>,
}

// === impl Site ===

impl Site {
    pub(crate) fn new(home: Home, environment: Environment) -> Self {
        let roots = roots::load();
        Self {
            home,
            environment,
            roots,
        }
    }
}

/// A secret of this run: 32 hex digits.
pub(crate) fn random_token() -> String {
    format!("{:032x}", rand::random::<u128>())
}
