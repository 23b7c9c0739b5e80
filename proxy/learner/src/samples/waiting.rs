//! What waits for a batch, and when that is due.

use std::{sync::Arc, time::Duration};

use metaclaw_chat::TurnId;
use metaclaw_turns::Turn;

use super::target::Target;
use crate::{config::RlConfig, status::SampleCounts};

/// A batch goes early only with this many samples: one alone is noise.
const MIN_EARLY: usize = 2;

/// A turn, and what its prompt is to be answered with.
#[derive(Debug, Clone)]
pub(crate) struct Redo {
    pub(crate) turn: Arc<Turn>,
    pub(crate) target: Arc<Target>,
    /// Whether this is its first step: its verdict is pushed then, and once.
    pub(crate) is_fresh: bool,
}

/// What an agent has to train on, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    /// For redo.
    pub(crate) redo: Vec<Redo>,
    /// Those that the teacher is to answer yet.
    pub(crate) unanswered: Vec<Arc<Turn>>,
    /// For binary_rl.
    pub(crate) verdicts: Vec<Arc<Turn>>,
}

// === impl Samples ===

impl Samples {
    /// How many there are.
    pub(crate) fn counts(&self) -> SampleCounts {
        SampleCounts {
            redo: self.redo.len(),
            unanswered: self.unanswered.len(),
            binary_rl: self.verdicts.len(),
        }
    }

    /// Whether a step is due: one method has a batch, or what there is has waited long enough.
    pub(crate) fn are_due(&self, config: &RlConfig, now_ms: u64) -> bool {
        let redo = self.redo.iter().map(|sample| &sample.turn);
        is_due((redo, &self.verdicts), config, now_ms)
    }

    /// Whether nothing waits.
    pub(crate) fn are_none(&self) -> bool {
        self.redo.is_empty() && self.unanswered.is_empty() && self.verdicts.is_empty()
    }

    /// Whether one is, if the teacher has a reply to every turn that it is to answer.
    pub(crate) fn may_be_due(&self, config: &RlConfig, now_ms: u64) -> bool {
        let redo = self.redo.iter().map(|sample| &sample.turn);
        let redo = redo.chain(&self.unanswered);
        is_due((redo, &self.verdicts), config, now_ms)
    }
}

fn is_due<'a>(
    (redo, verdicts): (impl Iterator<Item = &'a Arc<Turn>> + Clone, &'a [Arc<Turn>]),
    config: &RlConfig,
    now_ms: u64,
) -> bool {
    let (n_redo, n_rl) = (redo.clone().count(), verdicts.len());
    let ended = redo.chain(verdicts).map(|turn| turn.meta.ended_ms);
    let oldest = ended.min();
    let oldest = oldest.map(|ms| Duration::from_millis(now_ms.saturating_sub(ms)));
    n_redo >= config.batch_size
        || n_rl >= config.batch_size
        || (n_redo + n_rl >= MIN_EARLY && oldest.is_some_and(|age| age >= config.max_wait.0))
}

// === impl Redo ===

impl Redo {
    pub(super) fn id(&self) -> TurnId {
        self.turn.id
    }
}
