//! Counts the ids that a reply has met.

use std::collections::{BTreeMap, BTreeSet};

use metaclaw_trainer_terms::SamplingParams;

#[derive(Debug, Clone)]
pub(super) struct TokenCounts {
    /// Ids of the prompt with 0, and ids of the reply with their number.
    pub(super) seen: BTreeMap<u32, u32>,
    is_counting: bool,
}

// === impl TokenCounts ===

impl TokenCounts {
    pub(super) fn new(params: &SamplingParams, prompt_ids: &[u32]) -> Self {
        let repeats = differs(params.repetition_penalty, 1.0);
        let prompt: BTreeSet<u32> = prompt_ids.iter().copied().filter(|_| repeats).collect();
        let is_counting = repeats
            || differs(params.presence_penalty, 0.0)
            || differs(params.frequency_penalty, 0.0);
        Self {
            seen: prompt.into_iter().map(|id| (id, 0)).collect(),
            is_counting,
        }
    }

    pub(super) fn accept(&mut self, id: u32) {
        if self.is_counting {
            *self.seen.entry(id).or_default() += 1;
        }
    }
}

pub(super) fn differs(value: f64, off: f64) -> bool {
    (value - off).abs() > f64::EPSILON
}
