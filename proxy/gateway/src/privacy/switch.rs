//! `metaclaw off|on`: which agents are only relayed. It is read for each request, and can change while requests run.

use std::collections::BTreeSet;

use arc_swap::ArcSwap;
use metaclaw_chat::AgentId;
use serde::{Deserialize, Serialize};

/// The agents that are only relayed: nothing is added to their requests, and nothing of them is kept, judged or trained
/// on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelayOnly {
    pub all: bool,
    pub agents: BTreeSet<AgentId>,
}

/// The agents that are only relayed now.
#[derive(Debug, Default)]
pub struct Switch(ArcSwap<RelayOnly>);

// === impl RelayOnly ===

impl RelayOnly {
    /// Returns whether an agent is only relayed.
    pub fn covers(&self, agent: &AgentId) -> bool {
        self.all || self.agents.contains(agent)
    }

    pub fn is_anybody(&self) -> bool {
        self.all || !self.agents.is_empty()
    }
}

// === impl Switch ===

impl Switch {
    /// Starts with these agents.
    pub fn new(off: RelayOnly) -> Self {
        Self(ArcSwap::from_pointee(off))
    }

    /// Returns which agents are only relayed now.
    pub fn off(&self) -> RelayOnly {
        RelayOnly::clone(&self.0.load())
    }

    /// Returns whether an agent is only relayed now.
    pub fn is_off(&self, agent: &AgentId) -> bool {
        self.0.load().covers(agent)
    }

    /// Replaces them. Running requests end as they began.
    pub fn set(&self, off: RelayOnly) {
        self.0.store(off.into());
    }
}
