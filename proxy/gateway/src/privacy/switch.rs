//! `metaclaw off|on`: who is only relayed. Read on each request, and changed while requests run.

use std::collections::BTreeSet;

use arc_swap::ArcSwap;
use metaclaw_chat::AgentId;
use serde::{Deserialize, Serialize};

/// Who is only relayed: nothing is put into their requests, nothing of them is kept, judged or trained on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelayOnly {
    pub all: bool,
    pub agents: BTreeSet<AgentId>,
}

/// Who is only relayed, now.
#[derive(Debug, Default)]
pub struct Switch(ArcSwap<RelayOnly>);

// === impl RelayOnly ===

impl RelayOnly {
    /// Whether an agent is only relayed.
    pub fn covers(&self, agent: &AgentId) -> bool {
        self.all || self.agents.contains(agent)
    }

    pub fn is_anybody(&self) -> bool {
        self.all || !self.agents.is_empty()
    }
}

// === impl Switch ===

impl Switch {
    /// With those who are only relayed.
    pub fn new(off: RelayOnly) -> Self {
        Self(ArcSwap::from_pointee(off))
    }

    /// Who is only relayed now.
    pub fn off(&self) -> RelayOnly {
        RelayOnly::clone(&self.0.load())
    }

    /// Whether an agent is only relayed now.
    pub fn is_off(&self, agent: &AgentId) -> bool {
        self.0.load().covers(agent)
    }

    /// From now on these are; requests under way end as they began.
    pub fn set(&self, off: RelayOnly) {
        self.0.store(off.into());
    }
}
