//! Decides what a judged turn is used for: the teacher answers it again, its own ids get an advantage, or nothing, with
//! the reason.

use std::{collections::BTreeSet, time::Duration};

use metaclaw_chat::{Score, TurnId};
use metaclaw_turns::Turn;

use crate::{
    config::Methods,
    methods::{ROLLOUTS, Want},
    sample::{ExcludeReason, POLICY_UPSTREAM, Teaching, is_usable, score},
};

/// The trainer keeps sampled ids for 15 minutes; ids that have not arrived after that time never will.
const TOKENS_WAIT: Duration = Duration::from_secs(20 * 60);

/// What the decision depends on besides the turns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecisionRules<'a> {
    pub(crate) methods: &'a Methods,
    pub(crate) teaching: Teaching<'a>,
    /// Turns whose ids are known to be lost.
    pub(crate) without_ids: &'a BTreeSet<TurnId>,
    /// The time, in Unix milliseconds.
    pub(crate) now_ms: u64,
    /// `rl.max_age`.
    pub(crate) max_age: Duration,
}

/// Whether a turn has what training needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    Ready,
    Coming,
    Never(ExcludeReason),
}

// === impl DecisionRules ===

impl DecisionRules<'_> {
    /// Decides what a judged turn is used for.
    pub(crate) fn decision(self, turn: &Turn) -> Want {
        if turn.served.rollout.is_some() {
            return match self.readiness(turn) {
                Readiness::Never(why) => Want::Never(why),
                Readiness::Coming => Want::Wait,
                Readiness::Ready => ROLLOUTS.wants(turn, self.teaching),
            };
        }
        let wants = self.methods.iter().map(|it| it.wants(turn, self.teaching));
        let wants: Vec<Want> = wants.collect();
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

    /// Returns whether a turn that was trained on may be answered again.
    pub(crate) fn is_answered_again(self, turn: &Turn) -> bool {
        if turn.served.rollout.is_some() {
            return false;
        }
        let mut wants = self.methods.iter().map(|it| it.wants(turn, self.teaching));
        wants.any(|want| want == Want::Target) && self.readiness(turn) == Readiness::Ready
    }

    fn readiness(self, turn: &Turn) -> Readiness {
        if self.age(turn) > self.max_age {
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
        Duration::from_millis(self.now_ms.saturating_sub(turn.meta.ended_ms))
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
        ExcludeReason::NotHinted => 30,
        ExcludeReason::ToolFailed => 40,
        ExcludeReason::Accepted => 50,
        ExcludeReason::NoUse => 60,
        ExcludeReason::Unclear => 70,
        // The reasons that the teacher gave.
        _ => 20,
    }
}

#[cfg(test)]
mod tests;
