//! Reads an agent's configuration.

use crate::{
    agent::{Agent, Surroundings},
    found::{DetectError, Found},
    openclaw,
};

/// Reads the agent's configuration. Returns `None` if it has none. Nothing is changed.
///
/// # Errors
///
/// Returns [`DetectError`] if there is a configuration, but it names no model that MetaClaw can relay to.
pub fn detect(agent: Agent, surroundings: &Surroundings) -> Result<Option<Found>, DetectError> {
    match agent {
        Agent::OpenClaw => openclaw::detect(surroundings),
    }
}
