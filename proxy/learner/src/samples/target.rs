//! What a turn's prompt is to be answered with: the teacher's reply to it, or why there is none.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::TurnId;
use metaclaw_trainer_api::{Datum, DatumError};

use super::datum;

/// Turns whose targets are remembered; what is forgotten is drawn again, from the same seeds.
const REMEMBERED: usize = 1_024;

/// A reply that the teacher gave, as the student is to give it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    /// What the student reads: the conversation without what the teacher was told.
    pub(crate) prompt: Vec<u32>,
    /// What it is to say.
    pub(crate) reply: Vec<u32>,
    pub(crate) form: Form,
}

/// What is asked of the student at each id of a target.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Form {
    /// The id itself.
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
    Declined(&'static str),
}

/// What the teacher came to about an agent's turns, while its wishes stay as they are.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    of: BTreeMap<TurnId, Taught>,
}

// === impl Target ===

impl Target {
    /// cross_entropy on it.
    ///
    /// # Errors
    /// [`DatumError`] when there is nothing to predict.
    pub(crate) fn datum(&self, share: f32) -> Result<Datum, DatumError> {
        match &self.form {
            Form::OneHot => datum::target(&self.prompt, &self.reply, share),
            Form::TopK(likely) => datum::soft_target(&self.prompt, &self.reply, likely, share),
        }
    }
}

// === impl Targets ===

impl Targets {
    /// Whether the teacher came to something about a turn.
    pub(crate) fn knows(&self, id: TurnId) -> bool {
        self.of.contains_key(&id)
    }

    pub(crate) fn target(&self, id: TurnId) -> Option<Arc<Target>> {
        match self.of.get(&id) {
            Some(Taught::Target(target)) => Some(Arc::clone(target)),
            Some(Taught::Declined(_)) | None => None,
        }
    }

    /// Why a turn is not redo's.
    pub(crate) fn declined(&self, id: TurnId) -> Option<&'static str> {
        match self.of.get(&id) {
            Some(Taught::Declined(why)) => Some(why),
            Some(Taught::Target(_)) | None => None,
        }
    }

    /// How many turns are not redo's, by reason.
    pub(crate) fn n_declined(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for taught in self.of.values() {
            if let Taught::Declined(why) = taught {
                *counts.entry(*why).or_default() += 1;
            }
        }
        counts
    }

    pub(crate) fn put(&mut self, id: TurnId, taught: Taught) {
        if self.of.len() >= REMEMBERED {
            self.of.pop_first();
        }
        self.of.insert(id, taught);
    }

    /// A turn is not redo's.
    pub(crate) fn decline(&mut self, id: TurnId, why: &'static str) {
        self.put(id, Taught::Declined(why));
    }
}
