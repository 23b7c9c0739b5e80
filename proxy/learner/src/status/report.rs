//! The state that `metaclaw status` shows: judging, the training task, and its steps.

use metaclaw_chat::AgentId;
use serde::{Deserialize, Serialize};

use crate::{
    gate::GateReport,
    lineage::{BatchStats, Numbers},
};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgingStatus {
    /// Turns that wait for a verdict.
    pub waiting: usize,
    /// Why the judge does not answer, while it does not.
    pub failing: Option<String>,
}

/// How many of the turns that wait each rule of `rl.support_query` keeps from methods that learn from verdicts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SupportCounts {
    /// Turns that were evidence for a lesson in force.
    pub own: usize,
    /// Turns that began before the agent's newest lesson came into force.
    pub strict: usize,
}

/// What the training task does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Phase {
    /// No batch is ready.
    #[default]
    Collecting,
    /// A batch is ready, and mode `auto` trains none by itself where no gate tests what would serve (`gate.enabled`).
    AwaitingRequest,
    /// A batch is ready, and mode `auto` trains it when its owner is away.
    AwaitingWindow,
    /// The training server does not answer, or does not do what it is asked.
    WaitingForTrainer { why: String },
    /// The training server refuses to be used: its key, its account, or the model. It is asked again later.
    Refused {
        why: String,
        /// When it is asked again, in Unix milliseconds.
        until_ms: u64,
    },
    /// The teacher answers a turn, which is learned from afterwards.
    Teaching {
        agent: AgentId,
        /// Since when, in Unix milliseconds.
        since_ms: u64,
    },
    /// A step is being made.
    Stepping {
        agent: AgentId,
        /// Its number in the lineage.
        n: u64,
        /// Since when, in Unix milliseconds.
        since_ms: u64,
    },
    /// What a step made is tested before it serves.
    Testing {
        agent: AgentId,
        adapter: String,
        /// Since when, in Unix milliseconds.
        since_ms: u64,
    },
    /// The training server refused a step, or the gate declined several in a row; one is made again later.
    Resting {
        agent: AgentId,
        why: String,
        /// When it is tried again, in Unix milliseconds.
        until_ms: u64,
    },
    /// A batch is ready, and the agent has made all steps that it may make (`rl.max_steps`).
    Finished { agent: AgentId, n_steps: u64 },
    /// There is no training server: weights do not learn.
    Off,
}

/// One step that was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    pub agent: AgentId,
    /// The lineage of its checkpoints.
    pub lineage: String,
    /// Its number there, from 1.
    pub n: u64,
    /// Optimiser steps behind its weights, this one and those of earlier lineages among them.
    pub step: u64,
    /// The adapter that it made.
    pub adapter: String,
    pub n_redo: usize,
    /// Turns whose own ids were pushed.
    pub n_binary_rl: usize,
    /// Of the samples of redo, those that steps before it had as well.
    pub n_again: usize,
    /// Turns that it took.
    pub n_turns: usize,
    /// The mean score of its turns.
    pub mean_reward: f32,
    /// The share of good ones among them.
    pub success_rate: f32,
    #[serde(flatten)]
    pub numbers: Numbers,
    /// What its samples were like.
    pub batch: BatchStats,
    /// Whether its adapter serves: it passed the gate, and the owner has not chosen another meanwhile.
    pub serves: bool,
    /// What the gate found of it.
    pub gate: Option<GateReport>,
    /// From taking its turns to the end of the tests of its adapter.
    pub seconds: f64,
    /// When it ended, in Unix milliseconds.
    pub ended_ms: u64,
}

/// That what the weights learned last is not served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declined {
    /// The adapter that was declined.
    pub adapter: String,
    /// Which tests failed, with their numbers.
    pub why: String,
    /// When, in Unix milliseconds.
    pub at_ms: u64,
    /// How many in a row, since the last one that passed.
    pub in_a_row: usize,
    /// Until when no step is made, in Unix milliseconds; 8 new verdicts end it as well. None: it is tried again with the next
    /// batch, at a lower rate.
    pub rests_until_ms: Option<u64>,
}

/// That an adapter served and was taken back, as its agent's verdicts got worse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WasTakenBack {
    /// The adapter that served.
    pub adapter: String,
    /// What serves in its place; none is the base model.
    pub to: Option<String>,
    /// The verdicts, in words.
    pub why: String,
    /// When, in Unix milliseconds.
    pub at_ms: u64,
}

/// That something which was learned is not continued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeganAnew {
    /// Why: the base model or the adapter's shape has changed, or a checkpoint is gone or of no use.
    pub why: String,
    /// When, in Unix milliseconds.
    pub at_ms: u64,
}
