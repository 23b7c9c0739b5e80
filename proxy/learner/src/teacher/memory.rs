//! The teacher's results for an agent, as long as its wishes do not change.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metaclaw_chat::{TurnId, Verdict};
use metaclaw_trainer_api::BackendError;
use metaclaw_turns::Turn;
use tokio::time::Instant;

use super::{anchors::Anchors, draws::TeacherAnswers};
use crate::{
    config::{RlConfig, Teacher},
    policy::PolicyModel,
    sample::{AnchorReply, Hints, Targets, Taught, Teaching},
};

/// The pause after a judge did not answer.
const JUDGE_REST: Duration = Duration::from_secs(60);

/// The teacher's results for an agent. All of them can be computed again, because the same turns have the same seeds.
#[derive(Debug, Default)]
pub(crate) struct TeacherMemory {
    /// The result for each turn.
    pub(crate) targets: Targets,
    /// The prompt of each turn whose own reply the teacher rates.
    pub(crate) hints: Hints,
    /// The teacher's replies to MetaClaw's own questions.
    pub(super) anchors: Anchors,
    /// The wishes that the teacher is told, without what was said about single turns.
    wishes: Option<String>,
    /// The sum of the relevances of all its replies, and their number.
    relevance: (f64, usize),
    /// Replies that were drawn and are not chosen from yet: drawn ahead, or because the judge does not answer.
    drawn: BTreeMap<TurnId, DrawnAnswers>,
    n_failures: BTreeMap<TurnId, usize>,
    rest: Option<Instant>,
}

/// The replies to a turn, with its verdict at that time.
#[derive(Debug)]
pub(crate) struct DrawnAnswers {
    id: TurnId,
    verdict: Option<Verdict>,
    answers: TeacherAnswers,
}

// === impl DrawnAnswers ===

impl DrawnAnswers {
    pub(super) fn new(turn: &Turn, answers: TeacherAnswers) -> Self {
        Self {
            id: turn.id,
            verdict: turn.verdict.clone(),
            answers,
        }
    }
}

// === impl TeacherMemory ===

impl TeacherMemory {
    /// Sets the wishes; if they changed, earlier results are dropped.
    pub(crate) fn is_told(&mut self, wishes: Option<String>) {
        if self.wishes != wishes {
            self.targets.forget();
            *self = Self {
                wishes,
                targets: std::mem::take(&mut self.targets),
                ..Self::default()
            };
        }
    }

    /// Returns what is needed to collect samples.
    pub(crate) fn teaching(&self, rl: &RlConfig) -> Teaching<'_> {
        Teaching {
            targets: &self.targets,
            hints: &self.hints,
            consolidates: rl.consolidate && rl.teacher == Teacher::Base && self.wishes.is_some(),
        }
    }

    /// Returns the next `n` replies of the base model with the wishes, which the weights are kept near.
    ///
    /// # Errors
    /// Returns the server's errors.
    pub(crate) async fn anchors(
        &mut self,
        policy: &PolicyModel,
        n: usize,
    ) -> Result<Vec<Arc<AnchorReply>>, BackendError> {
        let wishes = self.wishes.as_deref();
        self.anchors.next(policy, wishes, n).await
    }

    pub(crate) fn wishes(&self) -> Option<&str> {
        self.wishes.as_deref()
    }

    /// The judge did not answer.
    pub(crate) fn rests(&mut self) {
        self.rest = Some(Instant::now() + JUDGE_REST);
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.rest.is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn drawn(&self, turn: &Turn) -> Option<&TeacherAnswers> {
        let drawn = self.drawn.get(&turn.id)?;
        (drawn.verdict == turn.verdict).then_some(&drawn.answers)
    }

    pub(crate) fn drew(&mut self, drawn: DrawnAnswers) {
        for relevance in drawn.answers.own_relevances() {
            self.relevance.0 += relevance;
            self.relevance.1 += 1;
        }
        self.drawn.insert(drawn.id, drawn);
    }

    /// The turn was deleted.
    pub(super) fn forget(&mut self, id: TurnId) {
        self.drawn.remove(&id);
        self.n_failures.remove(&id);
    }

    /// Returns the relevance that a reply needs: a share of the mean of all replies with these wishes, and more than 0;
    /// with a share of 0, any.
    pub(super) fn least_relevance(&self, share: f64) -> f64 {
        if share <= 0.0 {
            return f64::NEG_INFINITY;
        }
        let (sum, n) = self.relevance;
        (share * sum / n.max(1) as f64).max(f64::EPSILON)
    }

    pub(super) fn settled(&mut self, turn: &Turn, taught: Taught) {
        self.targets.put(turn, taught);
        self.n_failures.remove(&turn.id);
        self.drawn.remove(&turn.id);
        self.rest = None;
    }

    /// Counts how often a call about a turn failed.
    pub(crate) fn n_failures(&self, id: TurnId) -> usize {
        self.n_failures.get(&id).copied().unwrap_or(0)
    }

    /// Records that a call about a turn failed; returns how often that happened.
    pub(super) fn failed(&mut self, id: TurnId) -> usize {
        let n = self.n_failures.entry(id).or_default();
        *n += 1;
        *n
    }
}
