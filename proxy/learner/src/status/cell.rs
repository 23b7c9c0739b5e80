//! Where the tasks write down what they do, and whoever asks reads it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use metaclaw_chat::{AgentId, Score};

use super::report::{BeganAnew, JudgingStatus, Phase, StepReport, SupportCounts};
use crate::{counts::LearnerCounts, judge::AskFailed};

/// Where the tasks write down what they do.
#[derive(Debug, Default)]
pub(crate) struct StatusCell(Mutex<StatusNotes>);

/// What was written down.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatusNotes {
    pub(crate) judging: JudgingStatus,
    pub(crate) phase: Phase,
    /// Whether the training task's look at the log ended in waiting for something.
    waits: bool,
    pub(crate) agents: BTreeMap<AgentId, AgentNotes>,
    counts: LearnerCounts,
}

/// What was written down about one agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentNotes {
    pub(crate) counts: SampleCounts,
    /// Turns that are not redo's, by reason.
    pub(crate) not_taught: BTreeMap<String, usize>,
    pub(crate) last_step: Option<StepReport>,
    pub(crate) began_anew: Option<BeganAnew>,
    pub(crate) last_window_ms: Option<u64>,
}

/// How many samples wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SampleCounts {
    /// Of redo, with the teacher's reply.
    pub(crate) redo: usize,
    /// Of redo, without one.
    pub(crate) unanswered: usize,
    pub(crate) binary_rl: usize,
    /// Of all that wait, what `rl.support_query` keeps from methods that learn from verdicts.
    pub(crate) support: SupportCounts,
}

// === impl StatusCell ===

impl StatusCell {
    pub(crate) fn read(&self) -> StatusNotes {
        self.notes().clone()
    }

    /// What was counted, and what waits.
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

    /// Each agent's last step of this process.
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

    /// Shows what training waits for, until its next look at the log.
    pub(crate) fn waits_for(&self, phase: Phase) {
        self.phase(phase);
        self.change().waits = true;
    }

    /// The training task begins a look at the log.
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

    /// The notes, to be changed.
    fn change(&self) -> MutexGuard<'_, StatusNotes> {
        #[cfg(test)]
        crate::testing::progress::made();
        self.notes()
    }

    /// A panic elsewhere leaves notes usable: each change is one assignment.
    fn notes(&self) -> MutexGuard<'_, StatusNotes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StatusNotes {
    fn agent(&mut self, agent: &AgentId) -> &mut AgentNotes {
        self.agents.entry(agent.clone()).or_default()
    }
}
