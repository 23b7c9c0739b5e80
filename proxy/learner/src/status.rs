//! What the learner shows of itself.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use metaclaw_chat::{AgentId, Score};
use metaclaw_turns::Funnel;
use serde::Serialize;

use crate::{config::Mode, counts::LearnerCounts, judge::AskFailed, lineage::Numbers};

/// How learning goes.
#[derive(Debug, Clone, Serialize)]
pub struct LearnerStatus {
    /// Whether the weights learn, and when.
    pub mode: Mode,
    /// `rl.method`.
    pub method: String,
    /// What of `rl.method` is not built yet and left out.
    pub left_out: Vec<String>,
    /// How judging goes.
    pub judging: JudgingStatus,
    /// What the training task does.
    pub phase: Phase,
    /// Each agent that has turns.
    pub agents: Vec<AgentStatus>,
}

/// How judging goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct JudgingStatus {
    /// Turns that wait for a verdict.
    pub waiting: usize,
    /// Why the judge does not answer, while it does not.
    pub failing: Option<String>,
}

/// What the training task does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Phase {
    /// No batch is ready.
    #[default]
    Collecting,
    /// A batch is ready, and the user is about.
    WaitingForIdle {
        /// The user counts as away in so many seconds, if nothing is said.
        seconds: u64,
    },
    /// The training server does not answer, or does not do what it is asked.
    WaitingForTrainer {
        /// Why.
        why: String,
    },
    /// A step is being made.
    Stepping {
        /// Whose.
        agent: AgentId,
        /// Its number in the lineage.
        n: u64,
        /// Since when, in Unix milliseconds.
        since_ms: u64,
    },
    /// The training server refused a step; it is tried again later.
    Resting {
        /// Whose.
        agent: AgentId,
        /// What it said.
        why: String,
        /// When it is tried again, in Unix milliseconds.
        until_ms: u64,
    },
    /// There is no training server: weights do not learn.
    Off,
}

/// How one agent's learning goes.
#[derive(Debug, Clone, Serialize)]
pub struct AgentStatus {
    /// Whose.
    pub agent: AgentId,
    /// The adapter that it is served with; none is the base model.
    pub adapter: Option<String>,
    /// Samples of redo that wait for a batch.
    pub n_redo: usize,
    /// Samples of binary_rl that wait for a batch.
    pub n_binary_rl: usize,
    /// The last step of this process.
    pub last_step: Option<StepReport>,
    /// When a step could last have begun, in Unix milliseconds.
    pub last_window_ms: Option<u64>,
    /// How far its turns came, and why the others did not.
    pub funnel: Funnel,
}

/// One step that was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepReport {
    /// Whose.
    pub agent: AgentId,
    /// The lineage of its checkpoints.
    pub lineage: String,
    /// Its number there, from 1.
    pub n: u64,
    /// The adapter that it made.
    pub adapter: String,
    /// Samples of redo.
    pub n_redo: usize,
    /// Samples of binary_rl.
    pub n_binary_rl: usize,
    /// Turns that it took.
    pub n_turns: usize,
    /// The mean score of its turns.
    pub mean_reward: f32,
    /// The share of good ones among them.
    pub success_rate: f32,
    /// What it measured.
    #[serde(flatten)]
    pub numbers: Numbers,
    /// From taking its turns to serving its adapter.
    pub seconds: f64,
    /// When it ended, in Unix milliseconds.
    pub ended_ms: u64,
}

/// Where the tasks write down what they do.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<Notes>);

/// What is on the board.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes {
    pub(crate) judging: JudgingStatus,
    pub(crate) phase: Phase,
    pub(crate) agents: BTreeMap<AgentId, AgentNotes>,
    counts: LearnerCounts,
}

/// What is on the board about one agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentNotes {
    pub(crate) counts: (usize, usize),
    pub(crate) last_step: Option<StepReport>,
    pub(crate) last_window_ms: Option<u64>,
}

// === impl Board ===

impl Board {
    /// All that is on it.
    pub(crate) fn read(&self) -> Notes {
        self.notes().clone()
    }

    /// What was counted, and what waits.
    pub(crate) fn totals(&self) -> LearnerCounts {
        let notes = self.notes();
        let samples = notes.agents.values().map(|agent| agent.counts);
        let (n_redo, n_binary_rl) = samples.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        LearnerCounts {
            n_waiting: notes.judging.waiting,
            n_redo,
            n_binary_rl,
            ..notes.counts
        }
    }

    pub(crate) fn judged(&self, score: Score) {
        self.notes().counts.judged(score);
    }

    pub(crate) fn refused(&self) {
        self.notes().counts.n_refused += 1;
    }

    pub(crate) fn judging(&self, waiting: usize) {
        self.notes().judging.waiting = waiting;
    }

    pub(crate) fn judge_failed(&self, failed: &AskFailed) {
        let why = Some(failed.why.clone());
        let mut notes = self.notes();
        if notes.judging.failing != why {
            tracing::warn!(why = failed.why, "the judge does not answer; turns wait");
            notes.judging.failing = why;
        }
    }

    pub(crate) fn judge_answered(&self) {
        self.notes().judging.failing = None;
    }

    pub(crate) fn phase(&self, phase: Phase) {
        let mut notes = self.notes();
        if notes.phase != phase {
            tracing::debug!(?phase, "training");
            notes.phase = phase;
        }
    }

    pub(crate) fn counts(&self, agent: &AgentId, counts: (usize, usize)) {
        self.notes().agent(agent).counts = counts;
    }

    pub(crate) fn window(&self, agent: &AgentId, now_ms: u64) {
        self.notes().agent(agent).last_window_ms = Some(now_ms);
    }

    pub(crate) fn stepped(&self, report: &StepReport) {
        let mut notes = self.notes();
        notes.counts.n_steps += 1;
        notes.agent(&report.agent).last_step = Some(report.clone());
    }

    /// A panic elsewhere leaves notes usable: each change is one assignment.
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notes {
    fn agent(&mut self, agent: &AgentId) -> &mut AgentNotes {
        self.agents.entry(agent.clone()).or_default()
    }
}
