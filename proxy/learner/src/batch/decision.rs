//! Decides what a judged turn is used for: the teacher answers it again, its own ids get an advantage, or nothing, with
//! the reason.
//!
//! With `rl.support_query`, some verdicts are support. They are kept from training, so that no reward for a reply without a
//! lesson trains weights that will reply with it. Finn et al. 2017 (<https://arxiv.org/abs/1703.03400>) call the data of an
//! adaptation *support*, and the data that measure what came of it *query*. Here the library of lessons adapts, and the
//! weights learn from what came of it. A method that takes a target from a teacher uses support too, because no reward
//! enters its loss.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use metaclaw_chat::{AgentId, Score, TurnId};
use metaclaw_turns::{LogError, Turn};

use crate::{
    config::{Methods, SupportQuery},
    methods::{Method, ROLLOUTS, TrainingSignal, Want},
    sample::{ExcludeReason, POLICY_UPSTREAM, Teaching, is_usable, score},
    shared::Shared,
    status::SupportCounts,
};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Support {
    pub(crate) rule: SupportQuery,
    pub(crate) evidence: BTreeSet<TurnId>,
    pub(crate) changed_ms: Option<u64>,
    pub(crate) is_unknown: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VerdictUse {
    Query,
    Support(ExcludeReason),
    /// The history of lessons cannot be read now.
    Unknown,
}

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
        let method = shared
            .config
            .rl
            .method
            .learning_from(TrainingSignal::Verdict);
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
    let turn = shared.turn(id).await?;
    let parent = turn.and_then(|turn| turn.parent);
    parents.insert(id, parent);
    Ok(parent)
}

/// The trainer keeps sampled ids for 15 minutes; ids that have not arrived after that time never will.
const TOKENS_WAIT: Duration = Duration::from_secs(20 * 60);

#[derive(Debug, Clone, Copy)]
pub(crate) struct DecisionRules<'a> {
    pub(crate) methods: &'a Methods,
    pub(crate) teaching: Teaching<'a>,
    pub(crate) support: &'a Support,
    pub(crate) external_teacher: bool,
    pub(crate) without_ids: &'a BTreeSet<TurnId>,
    pub(crate) now_ms: u64,
    /// Turns that ended before this time are too old (`rl.max_age`).
    pub(crate) oldest_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    Ready,
    Coming,
    Never(ExcludeReason),
}

// === impl DecisionRules ===

impl DecisionRules<'_> {
    pub(crate) fn decision(self, turn: &Turn) -> Want {
        if turn.served.rollout.is_some() {
            return match self.readiness(turn) {
                Readiness::Never(why) => Want::Never(why),
                Readiness::Coming => Want::Wait,
                Readiness::Ready => ROLLOUTS.wants(turn, self.teaching),
            };
        }
        let wants: Vec<Want> = self.methods.iter().map(|m| self.wants(m, turn)).collect();
        let is_wanted = wants.iter().any(|want| !matches!(want, Want::Never(_)));
        // A turn that cannot be used itself may help another: an accepted reply is one more answer, with its ids, to
        // the turn that failed before it. After a restart, nothing waits for the ids of turns that were set aside.
        let is_clear = !matches!(score(turn), None | Some(Score::Unclear));
        match self.readiness(turn) {
            Readiness::Never(why) => Want::Never(why),
            Readiness::Coming if is_wanted || is_clear => Want::Wait,
            Readiness::Coming | Readiness::Ready => first(&wants),
        }
    }

    pub(crate) fn is_answered_again(self, turn: &Turn) -> bool {
        if turn.served.rollout.is_some() {
            return false;
        }
        let mut wants = self.methods.iter().map(|m| m.wants(turn, self.teaching));
        wants.any(|want| want == Want::Target) && self.readiness(turn) == Readiness::Ready
    }

    /// Returns what a method does with a turn. The verdict of support is nothing to learn from.
    fn wants(self, method: &dyn Method, turn: &Turn) -> Want {
        let want = method.wants(turn, self.teaching);
        if !self.is_by_verdict(method, want, turn) {
            return want;
        }
        match self.support.verdict_of(turn) {
            VerdictUse::Query => want,
            VerdictUse::Support(_) if self.external_teacher => want,
            VerdictUse::Support(why) => Want::Never(why),
            VerdictUse::Unknown => Want::Wait,
        }
    }

    /// Returns whether some method would learn from the turn's verdict alone, whichever rule holds for support.
    pub(crate) fn is_for_its_verdict(self, turn: &Turn) -> bool {
        let mut wants = self.methods.iter();
        turn.served.rollout.is_none()
            && wants.any(|want| self.is_by_verdict(want, want.wants(turn, self.teaching), turn))
            && self.readiness(turn) == Readiness::Ready
    }

    fn is_by_verdict(self, method: &dyn Method, want: Want, turn: &Turn) -> bool {
        let hinted = self.teaching.hints.told(turn);
        want == Want::Own
            && method.signals().contains(&TrainingSignal::Verdict)
            && hinted.is_none_or(|hinted| hinted.is_empty())
    }

    fn readiness(self, turn: &Turn) -> Readiness {
        if turn.meta.ended_ms < self.oldest_ms {
            return Readiness::Never(ExcludeReason::TooOld);
        }
        if turn.served.upstream != POLICY_UPSTREAM {
            return Readiness::Never(ExcludeReason::NotPolicy);
        }
        if turn.meta.masked {
            return Readiness::Never(ExcludeReason::Masked);
        }
        match &turn.tokens {
            Some(tokens) if is_usable(tokens) => Readiness::Ready,
            None if turn.meta.reply_id.is_some() && self.ids_may_come(turn) => Readiness::Coming,
            Some(_) | None => Readiness::Never(ExcludeReason::NoIds),
        }
    }

    fn ids_may_come(self, turn: &Turn) -> bool {
        !self.without_ids.contains(&turn.id) && self.age(turn) < TOKENS_WAIT
    }

    fn age(self, turn: &Turn) -> Duration {
        // A turn of the future ended with a clock that was ahead.
        Duration::from_millis(self.now_ms.abs_diff(turn.meta.ended_ms))
    }
}

/// Returns the first use among those that several methods want. Hints are rendered first, because the request for a
/// teacher's reply contains them.
fn first(wants: &[Want]) -> Want {
    let order = |want: &&Want| match want {
        Want::Hint => 0,
        Want::Target => 1,
        Want::Own => 2,
        Want::Wait => 3,
        Want::Never(why) => weight(*why),
    };
    let first = wants.iter().min_by_key(order).copied();
    first.unwrap_or(Want::Never(ExcludeReason::NoUse))
}

/// Of several reasons, the report gives the one with the lowest weight, because it says most about the turn.
fn weight(why: ExcludeReason) -> usize {
    match why {
        ExcludeReason::BadSampling => 10,
        ExcludeReason::Support | ExcludeReason::BeforeLesson => 25,
        ExcludeReason::NotHinted => 30,
        ExcludeReason::Accepted => 50,
        ExcludeReason::NoUse => 60,
        ExcludeReason::Unclear => 70,
        // The reasons that the teacher gave.
        _ => 20,
    }
}
