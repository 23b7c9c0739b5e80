//! The targets for a turn's prompt: the teacher's replies to it, or why there are none.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::{Score, TurnId};
use metaclaw_trainer_api::{Datum, DatumError};
use metaclaw_turns::Turn;

use super::{
    datum,
    exclude_reason::ExcludeReason,
    turns::{hint, score},
};

/// The number of turns whose targets are cached; others are drawn again, with the same seeds.
const REMEMBERED: usize = 1_024;

/// The teacher's replies to one prompt, which the student learns to give.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    /// The student's prompt: the conversation without what the teacher was told.
    pub(crate) prompt: Vec<u32>,
    /// There is at least one.
    pub(crate) replies: Vec<TargetReply>,
}

/// The longest reply that the student may give.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TargetReply {
    pub(crate) ids: Vec<u32>,
    pub(crate) form: Form,
}

/// The target of the student at each id of a reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Form {
    OneHot,
    /// The ids that the teacher found probable there: at each id of the reply the same number of ids, with their
    /// probabilities, which sum up to 1.
    TopK(Vec<Vec<(u32, f32)>>),
}

/// The teacher's result for one turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Taught {
    Target(Arc<Target>),
    /// The reason why redo does not use the turn.
    Declined(ExcludeReason),
}

/// The teacher's results for an agent's turns, as long as its wishes do not change.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    of: BTreeMap<TurnId, KnownTarget>,
    /// Turns that redo never uses, whatever their verdict, and why.
    at_fault: BTreeMap<TurnId, ExcludeReason>,
}

/// The teacher's result and the verdict that it is based on; with another verdict, the teacher is asked again.
#[derive(Debug)]
struct KnownTarget {
    taught: Taught,
    verdict: Said,
}

/// Returns what a verdict tells the teacher.
type Said = Option<(Score, Option<String>)>;

// === impl Target ===

impl Target {
    /// Returns a cross_entropy datum for each reply, with the weight of each id.
    ///
    /// # Errors
    /// Returns [`DatumError`] if there is nothing to predict.
    pub(crate) fn datums(&self, each: f32) -> impl Iterator<Item = Result<Datum, DatumError>> {
        let prompt = &self.prompt;
        self.replies.iter().map(move |reply| match &reply.form {
            Form::OneHot => datum::target(prompt, &reply.ids, each),
            Form::TopK(likely) => datum::soft_target(prompt, &reply.ids, likely, each),
        })
    }

    /// Returns the number of ids of all replies.
    pub(crate) fn n_ids(&self) -> usize {
        self.replies.iter().map(|reply| reply.ids.len()).sum()
    }
}

// === impl Targets ===

impl Targets {
    /// Returns whether the teacher has a result for a turn.
    pub(crate) fn knows(&self, turn: &Turn) -> bool {
        self.at_fault.contains_key(&turn.id) || self.taught(turn).is_some()
    }

    pub(crate) fn target(&self, turn: &Turn) -> Option<Arc<Target>> {
        match self.taught(turn) {
            Some(Taught::Target(target)) if !self.at_fault.contains_key(&turn.id) => {
                Some(Arc::clone(target))
            }
            Some(Taught::Target(_) | Taught::Declined(_)) | None => None,
        }
    }

    /// Returns why redo does not use a turn.
    pub(crate) fn declined(&self, turn: &Turn) -> Option<ExcludeReason> {
        let at_fault = self.at_fault.get(&turn.id).copied();
        at_fault.or_else(|| match self.taught(turn) {
            Some(Taught::Declined(why)) => Some(*why),
            Some(Taught::Target(_)) | None => None,
        })
    }

    /// Returns how many turns redo does not use, by reason.
    pub(crate) fn n_declined(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        let of = self.of.values().filter_map(|known| match known.taught {
            Taught::Declined(why) => Some(why),
            Taught::Target(_) => None,
        });
        for why in of.chain(self.at_fault.values().copied()) {
            *counts.entry(why.as_str()).or_default() += 1;
        }
        counts
    }

    /// Returns the teacher's result, by the verdict that a turn has.
    pub(crate) fn put(&mut self, turn: &Turn, taught: Taught) {
        if self.of.len() >= REMEMBERED {
            self.of.pop_first();
        }
        let verdict = said(turn);
        self.of.insert(turn.id, KnownTarget { taught, verdict });
    }

    /// Forgets results that depend on the current wishes.
    pub(crate) fn forget(&mut self) {
        self.of.clear();
    }

    /// Records that redo does not use a turn.
    pub(crate) fn set_aside(&mut self, id: TurnId, why: ExcludeReason) {
        if self.at_fault.len() >= REMEMBERED {
            self.at_fault.pop_first();
        }
        self.of.remove(&id);
        self.at_fault.insert(id, why);
    }

    fn taught(&self, turn: &Turn) -> Option<&Taught> {
        let known = self.of.get(&turn.id)?;
        (known.verdict == said(turn)).then_some(&known.taught)
    }
}

fn said(turn: &Turn) -> Said {
    Some((score(turn)?, hint(turn).cloned()))
}
