//! What waits for a batch, and when that is due.

use std::{sync::Arc, time::Duration};

use metaclaw_chat::TurnId;
use metaclaw_trainer_api::{Datum, DatumError};
use metaclaw_turns::Turn;

use super::datum;
use crate::config::RlConfig;

/// A batch goes early only with this many samples: one alone is noise.
const MIN_EARLY: usize = 2;

/// A failed turn and the reply that was accepted after it.
#[derive(Debug, Clone)]
pub(crate) struct Correction {
    pub(crate) failed: Arc<Turn>,
    pub(crate) accepted: Arc<Turn>,
}

/// What an agent has to train on, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    /// For redo.
    pub(crate) corrections: Vec<Correction>,
    /// For binary_rl.
    pub(crate) verdicts: Vec<Arc<Turn>>,
}

// === impl Samples ===

impl Samples {
    /// How many there are, of redo and of binary_rl.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.corrections.len(), self.verdicts.len())
    }

    /// Whether a step is due: one method has a batch, or what there is has waited long enough.
    pub(crate) fn are_due(&self, config: &RlConfig, now_ms: u64) -> bool {
        let (n_redo, n_rl) = self.counts();
        let oldest = self
            .oldest_ms()
            .map(|ms| Duration::from_millis(now_ms.saturating_sub(ms)));
        n_redo >= config.batch_size
            || n_rl >= config.batch_size
            || (n_redo + n_rl >= MIN_EARLY && oldest.is_some_and(|age| age >= config.max_wait.0))
    }

    /// When the oldest became complete.
    fn oldest_ms(&self) -> Option<u64> {
        let corrections = self
            .corrections
            .iter()
            .map(|pair| pair.accepted.meta.ended_ms);
        corrections
            .chain(self.verdicts.iter().map(|turn| turn.meta.ended_ms))
            .min()
    }
}

// === impl Correction ===

impl Correction {
    pub(super) fn turns(&self) -> Vec<TurnId> {
        vec![self.failed.id, self.accepted.id]
    }

    pub(super) fn datum(&self, share: f32) -> Result<Datum, DatumError> {
        let ids = |turn: &Arc<Turn>| turn.tokens.clone().unwrap_or_default();
        datum::target(
            &ids(&self.failed).prompt_ids,
            &ids(&self.accepted).ids,
            share,
        )
    }
}
