//! What the teacher remembers of an agent, while its wishes stay as they are.

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

/// How long a judge that does not answer is left alone.
const JUDGE_REST: Duration = Duration::from_secs(60);

/// What the teacher remembers of an agent. All of it can be had again: the same turns have the same seeds.
#[derive(Debug, Default)]
pub(crate) struct TeacherMemory {
    /// What it came to about each turn.
    pub(crate) targets: Targets,
    /// What it is told of each turn whose own reply it looks at.
    pub(crate) hints: Hints,
    /// Its replies to questions of ours.
    pub(super) anchors: Anchors,
    /// What it is told, beside what was said about single turns.
    wishes: Option<String>,
    /// Of all its replies: their relevances added up, and how many.
    relevance: (f64, usize),
    /// Drawn, and not chosen from yet: ahead, or because the judge does not answer.
    drawn: BTreeMap<TurnId, DrawnAnswers>,
    n_failures: BTreeMap<TurnId, usize>,
    rest: Option<Instant>,
}

/// The replies to a turn, as it was judged then.
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
    /// What it came to holds for these wishes; with others it begins anew.
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

    /// What samples are collected by.
    pub(crate) fn teaching(&self, rl: &RlConfig) -> Teaching<'_> {
        Teaching {
            targets: &self.targets,
            hints: &self.hints,
            // A session tells what a reply to its failures would be, and nothing of the others.
            consolidates: rl.consolidate && rl.teacher == Teacher::Base && self.wishes.is_some(),
        }
    }

    /// The next `n` replies of the base model, told the wishes, to hold the weights at.
    ///
    /// # Errors
    /// The server's.
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

    /// There is no such turn any more.
    pub(super) fn forget(&mut self, id: TurnId) {
        self.drawn.remove(&id);
        self.n_failures.remove(&id);
    }

    /// The relevance that a reply needs: a share of the mean of all that the teacher said with these wishes, and more than
    /// none; with a share of 0 anything.
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

    /// How often a call about a turn failed.
    pub(crate) fn n_failures(&self, id: TurnId) -> usize {
        self.n_failures.get(&id).copied().unwrap_or(0)
    }

    /// A call about a turn failed; how often that happened.
    pub(super) fn failed(&mut self, id: TurnId) -> usize {
        let n = self.n_failures.entry(id).or_default();
        *n += 1;
        *n
    }
}
