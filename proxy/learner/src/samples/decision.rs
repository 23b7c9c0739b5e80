//! What each judged turn is good for: a correction, a verdict to learn from, or nothing, and why.
//!
//! Works on the turns of one session at a time, since a correction is made within one. Every judged
//! turn gets a [`SampleDecision`], so none is forgotten and none is used twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use metaclaw_chat::{Score, TurnId};
use metaclaw_turns::{Turn, TurnState};

use super::{
    reason,
    turns::{POLICY_UPSTREAM, is_owners_answer, is_usable, is_whole_target, sampled_fairly, score},
};
use crate::{config::Methods, lineage::BaseModel};

/// The trainer keeps what it sampled for 15 minutes; after these, ids that have not come never will.
const TOKENS_WAIT: Duration = Duration::from_secs(20 * 60);
/// An owner who has not gone on after so long has left: a failed turn waits no longer for its correction.
const CORRECTION_WAIT: Duration = Duration::from_secs(12 * 3_600);

/// What becomes of a judged turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SampleDecision {
    /// The corrected reply becomes the target of the failed turn's prompt; both turns are used.
    Redo {
        /// Judged -1.
        failed: TurnId,
        /// Judged +1, in the same session, after the owner's complaint.
        accepted: TurnId,
    },
    /// Its own ids, pushed by its verdict.
    Verdict(TurnId),
    /// More must happen first.
    Wait,
    /// Of no use, and why.
    Spend(TurnId, &'static str),
}

/// What sampling looks at besides the turns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules<'a> {
    /// The methods in use.
    pub(crate) methods: &'a Methods,
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
    Never(&'static str),
}

/// The decisions about a session's judged turns. `turns` are those and the captured ones of the session, and the
/// failures behind each accepted one, whatever became of them.
pub(crate) fn decisions<'a>(
    turns: impl IntoIterator<Item = &'a Turn>,
    rules: Rules<'a>,
) -> Vec<SampleDecision> {
    let session = Session::new(turns, rules);
    let mut decisions = session.corrections();
    let used: BTreeSet<TurnId> = decisions
        .iter()
        .flat_map(SampleDecision::concerns)
        .collect();
    let rest = session.judged().filter(|turn| !used.contains(&turn.id));
    decisions.extend(rest.map(|turn| session.alone(turn)));
    decisions
}

struct Session<'a> {
    turns: BTreeMap<TurnId, &'a Turn>,
    /// The main turns that go on from a turn by the owner's words alone: attempts at a correction.
    answered_by: BTreeMap<TurnId, Vec<TurnId>>,
    rules: Rules<'a>,
}

// === impl SampleDecision ===

impl SampleDecision {
    /// The turns that it decides about.
    pub(crate) fn concerns(&self) -> Vec<TurnId> {
        match self {
            Self::Redo { failed, accepted } => vec![*failed, *accepted],
            Self::Verdict(id) | Self::Spend(id, _) => vec![*id],
            Self::Wait => Vec::new(),
        }
    }
}

// === impl Session ===

impl<'a> Session<'a> {
    fn new(turns: impl IntoIterator<Item = &'a Turn>, rules: Rules<'a>) -> Self {
        let turns: BTreeMap<TurnId, &Turn> =
            turns.into_iter().map(|turn| (turn.id, turn)).collect();
        let mut answered_by = BTreeMap::<TurnId, Vec<TurnId>>::new();
        for turn in turns.values() {
            if let Some(parent) = turn.parent
                && is_owners_answer(turn)
            {
                answered_by.entry(parent).or_default().push(turn.id);
            }
        }
        Self {
            turns,
            answered_by,
            rules,
        }
    }

    fn judged(&self) -> impl Iterator<Item = &'a Turn> {
        self.turns
            .values()
            .copied()
            .filter(|turn| turn.state == TurnState::Judged)
    }

    /// Pairs of a failed turn and the reply that was accepted after it; after several failures in a
    /// row the first one, which had no help yet.
    fn corrections(&self) -> Vec<SampleDecision> {
        if !self.rules.methods.redo {
            return Vec::new();
        }
        let mut used = BTreeSet::new();
        let mut pairs = Vec::new();
        for accepted in self
            .judged()
            .filter(|turn| score(turn) == Some(Score::Good))
        {
            let failures = self.failures_before(accepted);
            let is_free =
                |turn: &&Turn| turn.state == TurnState::Judged && !used.contains(&turn.id);
            let first = failures.into_iter().rfind(is_free);
            if let Some(failed) = first
                && self.can_teach(failed, accepted)
            {
                used.extend([failed.id, accepted.id]);
                pairs.push(SampleDecision::Redo {
                    failed: failed.id,
                    accepted: accepted.id,
                });
            }
        }
        pairs
    }

    /// The unbroken row of failed turns that an accepted one answers, the latest first. Some may be spent or
    /// trained by now.
    fn failures_before(&self, accepted: &'a Turn) -> Vec<&'a Turn> {
        let step = |turn: &&'a Turn| {
            let parent = self.turns.get(&turn.parent?).copied()?;
            let failed = score(parent) == Some(Score::Bad);
            (failed && is_owners_answer(turn)).then_some(parent)
        };
        std::iter::successors(step(&accepted), step).collect()
    }

    fn can_teach(&self, failed: &Turn, accepted: &Turn) -> bool {
        let ready = |turn| self.readiness(turn) == Readiness::Ready;
        let base = |turn: &Turn| turn.tokens.as_ref().map(BaseModel::of);
        let bases = base(failed).zip(base(accepted));
        ready(failed)
            && ready(accepted)
            && bases.is_some_and(|(one, other)| one.is(&other))
            && is_whole_target(accepted)
    }

    /// What a turn is good for when it is part of no correction.
    fn alone(&self, turn: &Turn) -> SampleDecision {
        let id = turn.id;
        match (self.readiness(turn), score(turn)) {
            (Readiness::Never(why), _) => SampleDecision::Spend(id, why),
            (_, None | Some(Score::Unclear)) => SampleDecision::Spend(id, reason::UNCLEAR),
            (Readiness::Coming, _) => SampleDecision::Wait,
            (Readiness::Ready, Some(Score::Bad)) if self.may_be_corrected(turn) => {
                SampleDecision::Wait
            }
            (Readiness::Ready, Some(Score::Good)) if self.may_be_a_correction(turn) => {
                SampleDecision::Wait
            }
            (Readiness::Ready, Some(_)) if self.rules.methods.binary_rl => {
                if sampled_fairly(turn) {
                    SampleDecision::Verdict(id)
                } else {
                    SampleDecision::Spend(id, reason::BAD_SAMPLING)
                }
            }
            (Readiness::Ready, Some(Score::Bad)) => {
                SampleDecision::Spend(id, reason::NOT_CORRECTED)
            }
            (Readiness::Ready, Some(Score::Good)) => SampleDecision::Spend(id, reason::ACCEPTED),
        }
    }

    /// Whether an answer to the complaint about this turn may still be accepted.
    fn may_be_corrected(&self, turn: &Turn) -> bool {
        let answers = self.answered_by.get(&turn.id).into_iter().flatten();
        let mut answers = answers.filter_map(|id| self.turns.get(id));
        self.rules.methods.redo
            && answers.any(|answer| match (&answer.state, score(answer)) {
                (TurnState::Captured, None) => self.age(answer) < CORRECTION_WAIT,
                (TurnState::Judged, Some(Score::Bad)) => self.may_be_corrected(answer),
                (TurnState::Judged, Some(Score::Good)) => {
                    self.readiness(answer) == Readiness::Coming
                }
                _ => false,
            })
    }

    /// Whether this accepted turn answers one whose verdict, or whose ids, are still to come.
    fn may_be_a_correction(&self, turn: &Turn) -> bool {
        let parent = turn.parent.and_then(|id| self.turns.get(&id));
        self.rules.methods.redo
            && is_owners_answer(turn)
            && parent.is_some_and(|parent| match (&parent.state, score(parent)) {
                (TurnState::Captured, None) => self.age(parent) < CORRECTION_WAIT,
                (TurnState::Judged, Some(Score::Bad)) => {
                    self.readiness(parent) == Readiness::Coming
                }
                _ => false,
            })
    }

    fn readiness(&self, turn: &Turn) -> Readiness {
        if self.is_too_old(turn) {
            return Readiness::Never(reason::TOO_OLD);
        }
        if turn.served.upstream != POLICY_UPSTREAM {
            return Readiness::Never(reason::NOT_POLICY);
        }
        if turn.meta.masked {
            return Readiness::Never(reason::MASKED);
        }
        match &turn.tokens {
            Some(tokens) if is_usable(tokens) => Readiness::Ready,
            None if turn.meta.reply_id.is_some() && self.ids_may_come(turn) => Readiness::Coming,
            Some(_) | None => Readiness::Never(reason::NO_IDS),
        }
    }

    fn ids_may_come(&self, turn: &Turn) -> bool {
        !self.rules.without_ids.contains(&turn.id) && self.age(turn) < TOKENS_WAIT
    }

    fn is_too_old(&self, turn: &Turn) -> bool {
        self.age(turn) > self.rules.max_age
    }

    fn age(&self, turn: &Turn) -> Duration {
        Duration::from_millis(self.rules.now_ms.saturating_sub(turn.meta.ended_ms))
    }
}

#[cfg(test)]
mod tests;
