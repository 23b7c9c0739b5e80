//! `rl.support_query`: which verdicts are support. They are kept from training, so that no reward for a reply without a
//! lesson trains weights that will reply with it.
//!
//! Finn et al. 2017 (<https://arxiv.org/abs/1703.03400>) call the data of an adaptation *support*, and the data that
//! measure what came of it *query*. Here the library of lessons adapts, and the weights learn from what came of it. A
//! method that takes a target from a teacher uses support too, because no reward enters its loss.

use std::collections::{BTreeMap, BTreeSet};

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_turns::{LogError, Turn};

use crate::{
    config::SupportQuery, methods::TrainingSignal, sample::ExcludeReason, shared::Shared,
    status::SupportCounts,
};

/// The data by which support turns of an agent are told from query turns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Support {
    /// The rule in use.
    pub(crate) rule: SupportQuery,
    /// Turns that were evidence for lessons in force.
    pub(crate) evidence: BTreeSet<TurnId>,
    /// When a lesson last came into force, in Unix milliseconds.
    pub(crate) changed_ms: Option<u64>,
    /// Whether the history of lessons could not be read.
    pub(crate) is_unknown: bool,
}

/// What may be done with a turn's verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VerdictUse {
    Query,
    Support(ExcludeReason),
    /// The history of lessons cannot be read now.
    Unknown,
}

/// The parent of each turn that was looked up.
pub(super) type Parents = BTreeMap<TurnId, Option<TurnId>>;

// === impl Support ===

impl Support {
    /// Reads an agent's support. Without a method that learns from verdicts, nothing is read.
    pub(super) async fn read(
        shared: &Shared,
        agent: &AgentId,
        parents: &mut Parents,
    ) -> Result<Self, LogError> {
        let rule = shared.config.rl.support_query;
        let mut support = Self {
            rule,
            ..Self::default()
        };
        let method = shared.config.rl.method.of(TrainingSignal::Verdict);
        let Some(library) = shared.lessons.clone().filter(|_| method.is_some()) else {
            return Ok(support);
        };
        let of = agent.clone();
        let read = tokio::task::spawn_blocking(move || library.evidence(&of)).await;
        let evidence = match read {
            Ok(Ok(evidence)) => evidence,
            Ok(Err(error)) => {
                tracing::warn!(%agent, %error, "no verdict is trained on until the history of lessons can be read");
                support.is_unknown = true;
                return Ok(support);
            }
            Err(error) => {
                tracing::error!(%agent, %error, "reading the history of lessons panicked");
                support.is_unknown = true;
                return Ok(support);
            }
        };
        support.changed_ms = evidence.changed_ms;
        support.evidence = evidence.failed;
        for id in evidence.said {
            // What the owner said is the reaction to the reply before it, and its verdict.
            support.evidence.insert(id);
            let parent = parent(shared, parents, id).await?;
            support.evidence.extend(parent);
        }
        Ok(support)
    }

    /// Returns what may be done with a turn's verdict. Turns of rollouts are limited by `rl.rollouts.max_lag` instead.
    pub(crate) fn verdict_of(&self, turn: &Turn) -> VerdictUse {
        if self.rule == SupportQuery::Off || turn.served.rollout.is_some() {
            return VerdictUse::Query;
        }
        if self.is_unknown {
            return VerdictUse::Unknown;
        }
        match self.rule {
            SupportQuery::Own if self.is_evidence(turn) => {
                VerdictUse::Support(ExcludeReason::Support)
            }
            SupportQuery::Strict if self.is_before(turn) => {
                VerdictUse::Support(ExcludeReason::BeforeLesson)
            }
            SupportQuery::Own | SupportQuery::Strict | SupportQuery::Off => VerdictUse::Query,
        }
    }

    /// Returns how many of these turns each rule would keep from methods that learn from verdicts.
    pub(super) fn counts<'a>(&self, turns: impl Iterator<Item = &'a Turn>) -> SupportCounts {
        let mut counts = SupportCounts::default();
        for turn in turns {
            counts.own += usize::from(self.is_evidence(turn));
            counts.strict += usize::from(self.is_before(turn));
        }
        counts
    }

    fn is_evidence(&self, turn: &Turn) -> bool {
        self.evidence.contains(&turn.id)
    }

    fn is_before(&self, turn: &Turn) -> bool {
        let began_ms = turn.meta.started_ms;
        self.changed_ms
            .is_some_and(|changed_ms| began_ms < changed_ms)
    }
}

async fn parent(
    shared: &Shared,
    parents: &mut Parents,
    id: TurnId,
) -> Result<Option<TurnId>, LogError> {
    if let Some(known) = parents.get(&id) {
        return Ok(*known);
    }
    let turn = shared.persist(|| shared.log.get(id)).await?;
    let parent = turn.and_then(|turn| turn.parent);
    parents.insert(id, parent);
    Ok(parent)
}
