//! What a turn's prompt is to be answered with: the teacher's replies to it, or why there are none.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::{Score, TurnId};
use metaclaw_trainer_api::{Datum, DatumError};
use metaclaw_turns::Turn;

use super::{
    datum,
    exclude_reason::ExcludeReason,
    turns::{hint, score},
};

/// Turns whose targets are remembered; what is forgotten is drawn again, from the same seeds.
const REMEMBERED: usize = 1_024;

/// Replies that the teacher gave to one prompt, as the student is to give them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    /// What the student reads: the conversation without what the teacher was told.
    pub(crate) prompt: Vec<u32>,
    /// At least one.
    pub(crate) replies: Vec<TargetReply>,
}

/// What the student may say.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TargetReply {
    pub(crate) ids: Vec<u32>,
    pub(crate) form: Form,
}

/// What is asked of the student at each id of a target.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Form {
    OneHot,
    /// What the teacher found likely there: at each id of the reply the same number of others, with their
    /// probabilities, which sum up to 1.
    TopK(Vec<Vec<(u32, f32)>>),
}

/// What the teacher came to about one turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Taught {
    Target(Arc<Target>),
    /// The turn is not redo's, and why.
    Declined(ExcludeReason),
}

/// What the teacher came to about an agent's turns, while its wishes stay as they are.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    of: BTreeMap<TurnId, KnownTarget>,
    /// Turns that are not redo's whatever is said about them, and why.
    at_fault: BTreeMap<TurnId, ExcludeReason>,
}

/// What the teacher came to, and the verdict that it knew: with another one it is asked again.
#[derive(Debug)]
struct KnownTarget {
    taught: Taught,
    verdict: Said,
}

/// What a verdict says to the teacher.
type Said = Option<(Score, Option<String>)>;

// === impl Target ===

impl Target {
    /// cross_entropy on each reply, with the weight of each id.
    ///
    /// # Errors
    /// [`DatumError`] when there is nothing to predict.
    pub(crate) fn datums(&self, each: f32) -> impl Iterator<Item = Result<Datum, DatumError>> {
        let prompt = &self.prompt;
        self.replies.iter().map(move |reply| match &reply.form {
            Form::OneHot => datum::target(prompt, &reply.ids, each),
            Form::TopK(likely) => datum::soft_target(prompt, &reply.ids, likely, each),
        })
    }

    /// Ids of all replies.
    pub(crate) fn n_ids(&self) -> usize {
        self.replies.iter().map(|reply| reply.ids.len()).sum()
    }
}

// === impl Targets ===

impl Targets {
    /// Whether the teacher came to something about a turn.
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

    /// Why a turn is not redo's.
    pub(crate) fn declined(&self, turn: &Turn) -> Option<ExcludeReason> {
        let at_fault = self.at_fault.get(&turn.id).copied();
        at_fault.or_else(|| match self.taught(turn) {
            Some(Taught::Declined(why)) => Some(*why),
            Some(Taught::Target(_)) | None => None,
        })
    }

    /// How many turns are not redo's, by reason.
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

    /// What the teacher came to, by the verdict that a turn has.
    pub(crate) fn put(&mut self, turn: &Turn, taught: Taught) {
        if self.of.len() >= REMEMBERED {
            self.of.pop_first();
        }
        let verdict = said(turn);
        self.of.insert(turn.id, KnownTarget { taught, verdict });
    }

    /// Forgets what holds for these wishes alone.
    pub(crate) fn forget(&mut self) {
        self.of.clear();
    }

    /// A turn is not redo's.
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
