//! What a judged turn is good for: to be answered again by the teacher, to have its own ids pushed, or nothing, and why.

use std::{collections::BTreeSet, time::Duration};

use metaclaw_chat::{Score, TurnId};
use metaclaw_turns::Turn;

use super::{
    exclude_reason::ExcludeReason,
    hints::Hints,
    target::Targets,
    turns::{POLICY_UPSTREAM, is_tool_turn, is_usable, sampled_fairly, score},
};
use crate::config::Methods;

/// The trainer keeps what it sampled for 15 minutes; after these, ids that have not come never will.
const TOKENS_WAIT: Duration = Duration::from_secs(20 * 60);

/// What becomes of a judged turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleDecision {
    /// The teacher answers its prompt.
    Redo,
    /// Its own ids are pushed: by its verdict, or towards a teacher that was told what would have been better.
    Own,
    /// The teacher is to be told that first: then it is one of the others.
    Hint,
    /// More must happen first.
    Wait,
    /// Of no use, and why.
    Spend(ExcludeReason),
}

/// What sampling looks at besides the turns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules<'a> {
    /// The methods in use.
    pub(crate) methods: Methods,
    /// Whether wishes stand that redo is to put into the weights: then every turn is one to answer again.
    pub(crate) consolidates: bool,
    /// What the teacher came to so far.
    pub(crate) targets: &'a Targets,
    /// What it is told.
    pub(crate) hints: &'a Hints,
    /// Turns whose ids are known to be gone.
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

// === impl Rules ===

impl Rules<'_> {
    /// What becomes of a judged turn.
    pub(crate) fn decision(self, turn: &Turn) -> SampleDecision {
        let is_redo = self.is_redo(turn);
        let is_own = self.is_hinted(turn) || (self.takes_verdict(turn) && sampled_fairly(turn));
        // Of no use itself it may be: what was accepted is one more answer to what failed before it, with its ids. Nobody
        // looks for those of turns that are set aside, once the process that saw them come is gone.
        let is_clear = !matches!(score(turn), None | Some(Score::Unclear));
        match self.readiness(turn) {
            Readiness::Never(why) => SampleDecision::Spend(why),
            Readiness::Coming if is_redo || is_own || is_clear => SampleDecision::Wait,
            Readiness::Ready if self.methods.distils() && self.hints.told(turn).is_none() => {
                SampleDecision::Hint
            }
            Readiness::Ready if is_redo => SampleDecision::Redo,
            Readiness::Ready if is_own => SampleDecision::Own,
            Readiness::Coming | Readiness::Ready => SampleDecision::Spend(self.why_not(turn)),
        }
    }

    /// Whether a turn that was trained on may be answered again.
    pub(crate) fn is_redo_again(self, turn: &Turn) -> bool {
        self.is_redo(turn) && self.readiness(turn) == Readiness::Ready
    }

    /// Whether the teacher is to answer a turn's prompt, if it can. One that calls tools is left as it is: a wish is
    /// about what is said.
    fn is_redo(self, turn: &Turn) -> bool {
        let is_wanted = self.consolidates || score(turn) == Some(Score::Bad);
        let is_open = self.targets.declined(turn).is_none();
        self.methods.redo && is_wanted && is_open && !is_tool_turn(turn)
    }

    /// Whether the teacher may have something to say of it, as far as is known.
    fn is_hinted(self, turn: &Turn) -> bool {
        let may_be = || self.hints.told(turn).is_none_or(|told| !told.is_empty());
        self.methods.distils() && may_be()
    }

    fn takes_verdict(self, turn: &Turn) -> bool {
        let verdict = self.methods.verdict;
        verdict.is_some_and(|method| method.takes(score(turn)))
    }

    /// Why no method has a use for a turn.
    fn why_not(self, turn: &Turn) -> ExcludeReason {
        if self.takes_verdict(turn) {
            return ExcludeReason::BadSampling;
        }
        let declined = self.targets.declined(turn);
        declined.unwrap_or_else(|| match score(turn) {
            None | Some(Score::Unclear) => ExcludeReason::Unclear,
            Some(Score::Bad) if self.methods.distils() => ExcludeReason::NotHinted,
            Some(Score::Bad) if self.methods.redo => ExcludeReason::ToolFailed,
            Some(Score::Bad) => ExcludeReason::Failed,
            Some(Score::Good) if self.methods.redo => ExcludeReason::Accepted,
            Some(Score::Good) => ExcludeReason::NoUse,
        })
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

#[cfg(test)]
mod tests;
