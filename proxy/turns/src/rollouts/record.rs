//! A rollout as it is stored.

use metaclaw_chat::{AgentId, GroupId, RolloutId, TaskId};
use serde::{Deserialize, Serialize};

use crate::turn::RolloutMark;

const HELD_OUT: &str = "of a held-out task";
const FAILED: &str = "its rollout failed";
const UNFINISHED: &str = "its rollout was not finished";

/// A run of an agent on a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    pub id: RolloutId,
    /// The agent whose turns its turns are, and whose weights may learn from them.
    pub agent: AgentId,
    pub task: TaskId,
    /// The rollouts with which its outcome is compared.
    pub group: GroupId,
    /// How many rollouts its group has.
    pub group_size: u32,
    /// The number of this one in its group, from 0.
    pub attempt: u32,
    /// Whether it only measures: nothing is learned from it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held_out: bool,
    /// The adapter that has to answer, or none for the one that serves the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// The name of the run of `metaclaw rollout run`, if it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The name of the key that opened it (`proxy.keys`), or none for the owner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_by: Option<String>,
    /// The hash of the key with which its agent talks to the proxy. The key itself is not stored.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key_hash: String,
    /// When it was opened, in Unix milliseconds.
    pub opened_ms: u64,
    /// When it ends as unfinished if nobody has closed it, in Unix milliseconds.
    pub deadline_ms: u64,
    #[serde(flatten)]
    pub state: RolloutState,
}

/// Whether a rollout is open, and how it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RolloutState {
    Open,
    Scored {
        /// The outcome, in -1..=1.
        outcome: f32,
        /// The rewards of its steps, in -1..=1, in the order of its turns. It is empty if only the outcome is known.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<f32>,
        /// When it was closed, in Unix milliseconds.
        closed_ms: u64,
    },
    /// Its agent or its environment failed. It counts for nothing.
    Failed {
        why: String,
        closed_ms: u64,
    },
    /// Nobody closed it before its deadline. It counts for nothing.
    Unfinished {
        closed_ms: u64,
    },
}

/// The end of a rollout.
#[derive(Debug, Clone, PartialEq)]
pub enum RolloutEnd {
    Scored {
        /// The outcome, in -1..=1.
        outcome: f32,
        /// The rewards of its steps, in -1..=1, or none.
        steps: Vec<f32>,
    },
    Failed {
        why: String,
    },
    Unfinished,
}

// === impl Rollout ===

impl Rollout {
    /// Returns what each of its turns is marked with.
    pub fn mark(&self) -> RolloutMark {
        RolloutMark {
            id: self.id.clone(),
            task: self.task.clone(),
            group: self.group.clone(),
            attempt: self.attempt,
        }
    }

    pub fn is_open(&self) -> bool {
        self.state == RolloutState::Open
    }

    /// Returns when it was closed, in Unix milliseconds, or `None` while it is open.
    pub fn closed_ms(&self) -> Option<u64> {
        match &self.state {
            RolloutState::Open => None,
            RolloutState::Scored { closed_ms, .. }
            | RolloutState::Failed { closed_ms, .. }
            | RolloutState::Unfinished { closed_ms } => Some(*closed_ms),
        }
    }

    /// Returns its outcome, if it has one.
    pub fn outcome(&self) -> Option<f32> {
        match &self.state {
            RolloutState::Scored { outcome, .. } => Some(*outcome),
            RolloutState::Open | RolloutState::Failed { .. } | RolloutState::Unfinished { .. } => {
                None
            }
        }
    }

    pub(crate) fn reward(&self, step: usize) -> Option<f32> {
        match &self.state {
            RolloutState::Scored { outcome, steps, .. } => {
                Some(outcome + steps.get(step).copied().unwrap_or(0.0))
            }
            RolloutState::Open | RolloutState::Failed { .. } | RolloutState::Unfinished { .. } => {
                None
            }
        }
    }

    pub(crate) fn excludes(&self) -> Option<&'static str> {
        match &self.state {
            RolloutState::Failed { .. } => Some(FAILED),
            RolloutState::Unfinished { .. } => Some(UNFINISHED),
            RolloutState::Scored { .. } if self.held_out => Some(HELD_OUT),
            RolloutState::Open | RolloutState::Scored { .. } => None,
        }
    }
}
