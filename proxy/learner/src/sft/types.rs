//! What is asked for, how it goes, and what it comes to.

use std::path::PathBuf;

use metaclaw_chat::AgentId;
use serde::{Deserialize, Serialize};

use crate::gate::GateReport;

/// A data set to train an agent's weights on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SftWanted {
    pub agent: AgentId,
    /// The file, one row a line. Its path is absolute.
    pub file: PathBuf,
    pub held_out: HeldOutRows,
    /// How often each row is trained on.
    pub epochs: u64,
    /// Rows of an optimiser step. Without it, `rl.batch_size`.
    pub batch_size: Option<usize>,
    /// The highest learning rate. Without it, that of steps, and a tenth of it for pairs.
    pub learning_rate: Option<f64>,
    pub schedule: RateSchedule,
    /// The seed of the first weights, of the order of the rows, and of which of them are held out.
    pub seed: u64,
    /// DPO's beta: how strongly the weights are held at where they start.
    pub beta: f64,
    pub from: SftOrigin,
    /// Whether the adapter is to serve if it passes the gate. Else it is made and not tested.
    pub serves: bool,
    /// Whether to say only what would be trained.
    pub dry_run: bool,
}

/// Rows that are not trained on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldOutRows {
    /// This share of the rows, at least one unless it is 0.
    Share(f64),
    /// Those of another file, with an absolute path.
    File(PathBuf),
}

/// The learning rate after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateSchedule {
    /// It falls in equal parts, to nothing after the last step.
    Linear,
    /// It stays.
    Constant,
}

/// The weights that training starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SftOrigin {
    /// Those that the agent's next step would start from.
    Current,
    /// The base model with a fresh adapter.
    Base,
    /// An adapter of that name.
    Adapter(String),
}

/// How it goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum SftEvent {
    Planned(SftPlanned),
    /// Nothing is trained for now.
    Waits {
        why: String,
    },
    /// Epochs of an earlier run of the same are there, and it goes on after them.
    Continues {
        epochs_done: u64,
    },
    /// The held-out loss before the first step.
    Before {
        held_out_loss: f64,
    },
    Step(SftStep),
    Epoch(SftEpoch),
    /// The gate tests the adapter.
    Testing {
        adapter: String,
    },
    Ended(Box<SftReport>),
    /// The last event of a run that failed, for whoever follows it from another process.
    Failed {
        why: String,
    },
}

/// What is going to be trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SftPlanned {
    pub agent: AgentId,
    /// `cross_entropy`, or `dpo` for pairs.
    pub method: String,
    /// Rows that are trained on.
    pub n_rows: usize,
    pub n_held_out: usize,
    /// Ids of the rows that are trained on, each once.
    pub n_tokens: usize,
    /// Of those, the ids that the model is to say.
    pub n_trained: usize,
    pub n_held_out_tokens: usize,
    /// Ids of the longest sequence.
    pub longest: usize,
    pub epochs: u64,
    pub batch_size: usize,
    /// Optimiser steps of all epochs.
    pub n_steps: u64,
    /// The highest learning rate; none while the size of the model, which it goes by, is not known.
    pub learning_rate: Option<f64>,
    /// Ids that all epochs pass forward and backward.
    pub n_trained_in_all: usize,
    /// Ids that are only scored: held-out rows before and after each epoch, and pairs for their margins.
    pub n_scored_in_all: usize,
    /// The adapter that it starts from; none is the base model.
    pub from: Option<String>,
    /// Why what the agent has learned is not continued, where it is not.
    pub begins_anew: Option<String>,
    /// The name of the last epoch's adapter.
    pub adapter: String,
}

/// An optimiser step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SftStep {
    /// From 1, over all epochs.
    pub step: u64,
    pub of: u64,
    pub epoch: u64,
    /// Before the step: nat a trained token, or nat a pair.
    pub loss: f64,
    pub learning_rate: f64,
    /// Before clipping.
    pub grad_norm: f64,
    /// Whether the training server dropped a gradient that was out of line.
    pub skipped: bool,
    pub n_tokens: usize,
    pub seconds: f64,
}

/// An epoch whose checkpoint is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SftEpoch {
    /// From 1.
    pub epoch: u64,
    pub of: u64,
    /// The name of its adapter and its checkpoint.
    pub adapter: String,
    /// The mean of its steps.
    pub loss: f64,
    /// After it; none where nothing is held out.
    pub held_out_loss: Option<f64>,
    pub seconds: f64,
}

/// What it came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SftReport {
    pub agent: AgentId,
    /// The adapter of the epoch with the lowest held-out loss, or of the last one; none of a dry run.
    pub adapter: Option<String>,
    /// The epoch that it is of.
    pub epoch: u64,
    pub epochs: u64,
    pub held_out_before: Option<f64>,
    pub held_out_after: Option<f64>,
    /// What the gate found; none where nothing was tested.
    pub gate: Option<GateReport>,
    /// Whether it serves now.
    pub serves: bool,
    pub seconds: f64,
}

// === impl SftReport ===

impl SftReport {
    /// Whether the adapter may serve: no test failed.
    pub fn passed(&self) -> bool {
        self.adapter.is_some() && self.gate.as_ref().is_none_or(GateReport::passed)
    }
}
