//! What the learner shows of itself.

mod cell;
mod report;

use std::collections::BTreeMap;

use metaclaw_chat::AgentId;
use metaclaw_schedule::Window;
use metaclaw_turns::Funnel;
use serde::{Deserialize, Serialize};

pub(crate) use self::cell::{SampleCounts, StatusCell};
pub use self::report::{
    BeganAnew, Declined, JudgingStatus, Phase, StepReport, SupportCounts, WasTakenBack,
};
use crate::config::Mode;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LearnerStatus {
    /// Whether the weights learn, and when.
    pub mode: Mode,
    /// `rl.method`.
    pub method: String,
    /// `rl.batch_size`: replies that a step takes.
    pub batch_size: usize,
    pub judging: JudgingStatus,
    /// What the training task does.
    pub phase: Phase,
    /// Whether the owner is away, so that costly learning may begin.
    pub window: Window,
    /// The agents that have steps, and those that have the most turns.
    pub agents: Vec<AgentStatus>,
    /// How many agents are not in the list.
    #[serde(default)]
    pub n_more: usize,
}

/// How one agent's learning goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    pub agent: AgentId,
    /// The adapter that it is served with; none is the base model.
    pub adapter: Option<String>,
    /// Samples of redo that wait for a batch.
    pub n_redo: usize,
    /// Turns that wait for the teacher's reply, and are samples of redo then.
    pub n_unanswered: usize,
    /// Turns that are not redo's in this process, by reason: what the teacher's replies lacked. Their verdicts may be
    /// learned from.
    pub not_taught: BTreeMap<String, usize>,
    /// Turns whose own ids wait for a batch that pushes them.
    pub n_binary_rl: usize,
    /// Of the turns that wait, those that each rule of `rl.support_query` keeps from methods that learn from verdicts.
    #[serde(default)]
    pub support: SupportCounts,
    /// The last step of this process.
    pub last_step: Option<StepReport>,
    /// What the gate declined since an adapter last passed; by the log, so that a restart forgets nothing.
    pub declined: Option<Declined>,
    /// What was taken back since an adapter last passed; by the log as well.
    pub taken_back: Option<WasTakenBack>,
    /// When a lineage last began anew in this process, and why.
    pub began_anew: Option<BeganAnew>,
    /// When a step could last have begun, in Unix milliseconds.
    pub last_window_ms: Option<u64>,
    /// How far its turns came, and why the others did not.
    pub funnel: Funnel,
}
