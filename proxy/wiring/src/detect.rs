//! An agent's configuration, read.

use crate::{
    agent::{Agent, Surroundings},
    found::{DetectError, Found},
    openclaw,
};

/// Reads the agent's configuration; `None` where it has none. Nothing is changed.
///
/// # Errors
///
/// [`DetectError`] when there is a configuration and no model can be read from it that we can relay.
pub fn detect(agent: Agent, surroundings: &Surroundings) -> Result<Option<Found>, DetectError> {
    match agent {
        Agent::OpenClaw => openclaw::detect(surroundings),
    }
}
