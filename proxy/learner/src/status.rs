//! What the learner shows of itself: the state that `metaclaw status` prints, the cell in which the tasks write it down, and
//! the counters for `/metrics`.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

use metaclaw_chat::{AgentId, Score, lock};
use metaclaw_schedule::Window;
use metaclaw_turns::Funnel;
use serde::{Deserialize, Serialize};

use crate::{
    config::Mode,
    gate::GateReport,
    judge::AskFailed,
    lineage::{BatchStats, Numbers},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LearnerStatus {
    /// Whether the weights learn, and when.
    pub mode: Mode,
    /// `rl.method`.
    pub method: String,
    /// `rl.batch_size`: replies that a step takes.
    pub batch_size: usize,
    pub judging: JudgingStatus,
    #[serde(default)]
    pub hearing: HearingStatus,
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

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgingStatus {
    /// Turns that wait for a verdict.
    pub waiting: usize,
    /// Why the judge does not answer, while it does not.
    pub failing: Option<String>,
}

/// The messages of which rules are not sure, and which a model is to read for wishes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HearingStatus {
    /// Messages that wait for others, to be read in one request.
    pub waiting: usize,
    /// Whether they wait because today's token budget is spent.
    pub is_held_back: bool,
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
        n: u64,
        /// Since when, in Unix milliseconds.
        since_ms: u64,
    },
    /// A step has begun, and lets a chat go first.
    Paused { agent: AgentId },
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
    /// Until when no step is made, in Unix milliseconds. None: it is tried again at a lower rate.
    pub rests_until_ms: Option<u64>,
    /// The number of further verdicts that end the rest as well; 0 without a rest.
    #[serde(default)]
    pub rest_verdicts: u64,
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

#[derive(Debug, Default)]
pub(crate) struct StatusCell(Mutex<StatusNotes>);

#[derive(Debug, Clone, Default)]
pub(crate) struct StatusNotes {
    pub(crate) judging: JudgingStatus,
    pub(crate) hearing: HearingStatus,
    pub(crate) phase: Phase,
    /// Whether the training task's look at the log ended in waiting for something.
    waits: bool,
    pub(crate) agents: BTreeMap<AgentId, AgentNotes>,
    counts: LearnerCounts,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct AgentNotes {
    pub(crate) counts: SampleCounts,
    pub(crate) not_taught: BTreeMap<String, usize>,
    pub(crate) last_step: Option<StepReport>,
    pub(crate) began_anew: Option<BeganAnew>,
    pub(crate) last_window_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SampleCounts {
    pub(crate) redo: usize,
    /// Of redo, without one.
    pub(crate) unanswered: usize,
    pub(crate) binary_rl: usize,
    pub(crate) support: SupportCounts,
}

// === impl StatusCell ===

impl StatusCell {
    pub(crate) fn read(&self) -> StatusNotes {
        self.notes().clone()
    }

    pub(crate) fn totals(&self) -> LearnerCounts {
        let notes = self.notes();
        let samples = || notes.agents.values().map(|agent| agent.counts);
        LearnerCounts {
            n_waiting: notes.judging.waiting,
            n_redo: samples().map(|counts| counts.redo).sum(),
            n_unanswered: samples().map(|counts| counts.unanswered).sum(),
            n_binary_rl: samples().map(|counts| counts.binary_rl).sum(),
            ..notes.counts
        }
    }

    pub(crate) fn last_steps(&self) -> Vec<StepReport> {
        let notes = self.notes();
        let steps = notes.agents.values();
        steps.filter_map(|agent| agent.last_step.clone()).collect()
    }

    pub(crate) fn judged(&self, score: Score) {
        self.change().counts.judged(score);
    }

    pub(crate) fn refused(&self) {
        self.change().counts.n_refused += 1;
    }

    pub(crate) fn judging(&self, waiting: usize) {
        self.change().judging.waiting = waiting;
    }

    pub(crate) fn hearing(&self, waiting: usize, is_held_back: bool) {
        self.change().hearing = HearingStatus {
            waiting,
            is_held_back,
        };
    }

    pub(crate) fn judge_failed(&self, failed: &AskFailed) {
        let why = Some(failed.why.clone());
        let mut notes = self.change();
        if notes.judging.failing != why {
            tracing::warn!(why = failed.why, "the judge does not answer; turns wait");
            notes.judging.failing = why;
        }
    }

    pub(crate) fn judge_answered(&self) {
        self.change().judging.failing = None;
    }

    pub(crate) fn phase(&self, phase: Phase) {
        let mut notes = self.change();
        if notes.phase != phase {
            tracing::debug!(?phase, "training");
            notes.phase = phase;
        }
    }

    pub(crate) fn waits_for(&self, phase: Phase) {
        self.phase(phase);
        self.change().waits = true;
    }

    pub(crate) fn look_begins(&self) {
        self.change().waits = false;
    }

    /// The look has ended: where it waits for nothing, it goes on collecting.
    pub(crate) fn look_ends(&self) {
        if !self.notes().waits {
            self.phase(Phase::Collecting);
        }
    }

    pub(crate) fn counts(
        &self,
        agent: &AgentId,
        counts: SampleCounts,
        not_taught: BTreeMap<&'static str, usize>,
    ) {
        let mut notes = self.change();
        let own = notes.agent(agent);
        own.counts = counts;
        let by_reason = not_taught.into_iter();
        own.not_taught = by_reason.map(|(why, n)| (why.to_owned(), n)).collect();
    }

    pub(crate) fn window(&self, agent: &AgentId, now_ms: u64) {
        self.change().agent(agent).last_window_ms = Some(now_ms);
    }

    pub(crate) fn stepped(&self, report: &StepReport) {
        let mut notes = self.change();
        let counts = &mut notes.counts;
        counts.n_steps += 1;
        counts.n_skipped += u64::from(report.numbers.skipped);
        counts.n_trained_samples += report.batch.n_samples() as u64;
        counts.n_trained_turns += report.n_turns as u64;
        counts.n_trained_tokens += report.numbers.n_tokens as u64;
        notes.agent(&report.agent).last_step = Some(report.clone());
    }

    pub(crate) fn began_anew(&self, agent: &AgentId, why: &str, at_ms: u64) {
        let why = why.to_owned();
        self.change().agent(agent).began_anew = Some(BeganAnew { why, at_ms });
    }

    fn change(&self) -> MutexGuard<'_, StatusNotes> {
        #[cfg(test)]
        crate::testing::progress::made();
        self.notes()
    }

    /// A panic elsewhere leaves notes usable: each change is one assignment.
    fn notes(&self) -> MutexGuard<'_, StatusNotes> {
        lock(&self.0)
    }
}

impl StatusNotes {
    fn agent(&mut self, agent: &AgentId) -> &mut AgentNotes {
        self.agents.entry(agent.clone()).or_default()
    }
}

/// The learner's counters, and the number of turns that wait now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LearnerCounts {
    /// Verdicts of -1 that rules and models gave.
    pub n_bad: u64,
    /// Verdicts of 0 that rules and models gave.
    pub n_unclear: u64,
    /// Verdicts of +1 that rules and models gave.
    pub n_good: u64,
    /// Steps that were completed.
    pub n_steps: u64,
    /// Steps that the training server refused.
    pub n_refused: u64,
    /// Steps whose gradient the training server dropped.
    pub n_skipped: u64,
    /// Samples of the completed steps.
    pub n_trained_samples: u64,
    /// Turns that the completed steps used.
    pub n_trained_turns: u64,
    /// Ids that the model read in the completed steps.
    pub n_trained_tokens: u64,
    /// Turns that wait for a verdict.
    pub n_waiting: usize,
    /// Samples of redo that wait for a batch.
    pub n_redo: usize,
    /// Turns that wait for the teacher's reply.
    pub n_unanswered: usize,
    /// Turns whose own ids wait for a batch of binary_rl.
    pub n_binary_rl: usize,
}

// === impl LearnerCounts ===

impl LearnerCounts {
    pub(crate) fn judged(&mut self, score: Score) {
        match score {
            Score::Bad => self.n_bad += 1,
            Score::Unclear => self.n_unclear += 1,
            Score::Good => self.n_good += 1,
        }
    }
}
