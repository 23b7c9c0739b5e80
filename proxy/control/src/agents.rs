//! The agents of this machine, as the process that serves finds them and points them at the proxy.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Finds the agents of this machine, and changes their files. The program that serves knows how.
pub trait AgentConnector: fmt::Debug + Send + Sync {
    /// # Errors
    /// If the settings or a record of a wired agent cannot be read.
    fn agents(&self) -> anyhow::Result<Vec<FoundAgent>>;

    /// Returns what was done, in words.
    ///
    /// # Errors
    /// If the change is not possible, with the reason.
    fn change(&self, change: &AgentChange) -> anyhow::Result<String>;
}

/// A change of who asks the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentChange {
    /// Points an agent at the proxy. It keeps its own model.
    Connect(String),
    /// Restores an agent's files.
    Disconnect(String),
    /// Takes the upstreams and agents of the settings file, which has changed.
    Reroute,
}

/// An agent of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundAgent {
    /// The name on the command line.
    pub agent: String,
    pub name: String,
    pub is: AgentState,
    /// The state in words.
    pub said: String,
    /// Who answers it: the model and the address, if its settings say them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<String>,
}

/// Whom an agent asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// The agent uses its own model.
    NotWired,
    /// The agent uses MetaClaw from its next start on; MetaClaw does not run.
    Waits,
    Wired,
    /// The agent uses a proxy that does not run.
    Dead,
    /// Somebody else changed the agent's files after MetaClaw did.
    Changed,
}
