//! What waits for a batch, and when that is due.

use std::{sync::Arc, time::Duration};

use metaclaw_turns::Turn;

use super::support::Support;
use crate::{
    config::RlConfig,
    sample::Sample,
    status::{SampleCounts, SupportCounts},
};

/// A batch goes early only with this many samples: one alone is noise.
const MIN_EARLY: usize = 2;

/// What an agent has to train on, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    /// Those that the teacher answered.
    pub(crate) answered: Vec<Sample>,
    /// Those that the teacher has still to answer.
    pub(crate) unanswered: Vec<Arc<Turn>>,
    /// Those whose own ids are pushed, by their verdict or towards a hinted teacher.
    pub(crate) own: Vec<Sample>,
    /// Those whose prompts with a hint have still to be rendered.
    pub(crate) unhinted: Vec<Arc<Turn>>,
    /// Whose verdicts are support.
    pub(crate) support: Arc<Support>,
    /// How many turns each rule for support keeps from methods that learn from verdicts.
    pub(crate) n_support: SupportCounts,
}

// === impl Samples ===

impl Samples {
    /// How many there are.
    pub(crate) fn counts(&self) -> SampleCounts {
        SampleCounts {
            redo: self.answered.len(),
            unanswered: self.unanswered.len(),
            binary_rl: self.own.len(),
            support: self.n_support,
        }
    }

    /// Whether a step is due: one method has a batch, or what there is has waited long enough.
    pub(crate) fn are_due(&self, config: &RlConfig, now_ms: u64) -> bool {
        let redo = self.answered.iter().map(|sample| &sample.turn);
        let own = self.own.iter().map(|sample| &sample.turn);
        is_due(redo, own, config, now_ms)
    }

    pub(crate) fn are_none(&self) -> bool {
        let waiting = [&self.unanswered, &self.unhinted];
        self.answered.is_empty() && self.own.is_empty() && waiting.iter().all(|it| it.is_empty())
    }

    /// Whether one is, if the teacher has a reply to every turn that it is to answer, and something to say of each whose
    /// hints it is to be told.
    pub(crate) fn may_be_due(&self, config: &RlConfig, now_ms: u64) -> bool {
        let redo = self.answered.iter().map(|sample| &sample.turn);
        let redo = redo.chain(&self.unanswered);
        let own = self.own.iter().map(|sample| &sample.turn);
        is_due(redo, own.chain(&self.unhinted), config, now_ms)
    }
}

fn is_due<'a>(
    redo: impl Iterator<Item = &'a Arc<Turn>> + Clone,
    own: impl Iterator<Item = &'a Arc<Turn>> + Clone,
    config: &RlConfig,
    now_ms: u64,
) -> bool {
    let (n_redo, n_rl) = (redo.clone().count(), own.clone().count());
    let ended = redo.chain(own).map(|turn| turn.meta.ended_ms);
    let oldest = ended.min();
    let oldest = oldest.map(|ms| Duration::from_millis(now_ms.saturating_sub(ms)));
    n_redo >= config.batch_size
        || n_rl >= config.batch_size
        || (n_redo + n_rl >= MIN_EARLY && oldest.is_some_and(|age| age >= config.max_wait.0))
}
