//! The samples that wait for a batch, and when a step is due.

use std::{sync::Arc, time::Duration};

use metaclaw_turns::Turn;

use super::support::Support;
use crate::{
    config::RlConfig,
    sample::Sample,
    status::{SampleCounts, SupportCounts},
};

/// The fewest samples of an early batch, because a single sample is noise.
const MIN_EARLY: usize = 2;

/// An agent's samples, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    /// Samples that the teacher answered.
    pub(crate) answered: Vec<Sample>,
    /// Turns that the teacher has not answered yet.
    pub(crate) unanswered: Vec<Arc<Turn>>,
    /// Samples whose own ids get an advantage, by their verdict or from a hinted teacher.
    pub(crate) own: Vec<Sample>,
    /// Turns whose prompts with a hint are not rendered yet.
    pub(crate) unhinted: Vec<Arc<Turn>>,
    /// The turns whose verdicts are support.
    pub(crate) support: Arc<Support>,
    /// The number of turns that each rule for support keeps from methods that learn from verdicts.
    pub(crate) n_support: SupportCounts,
}

// === impl Samples ===

impl Samples {
    /// Returns the numbers of samples.
    pub(crate) fn counts(&self) -> SampleCounts {
        SampleCounts {
            redo: self.answered.len(),
            unanswered: self.unanswered.len(),
            binary_rl: self.own.len(),
            support: self.n_support,
        }
    }

    /// Returns whether a step is due: one method has a full batch, or the samples have waited long enough.
    pub(crate) fn are_due(&self, config: &RlConfig, now_ms: u64) -> bool {
        let redo = self.answered.iter().map(|sample| &sample.turn);
        let own = self.own.iter().map(|sample| &sample.turn);
        is_due(redo, own, config, now_ms)
    }

    pub(crate) fn are_none(&self) -> bool {
        let waiting = [&self.unanswered, &self.unhinted];
        self.answered.is_empty() && self.own.is_empty() && waiting.iter().all(|it| it.is_empty())
    }

    /// Returns whether a step would be due if the teacher answered every turn, and every prompt with a hint could be
    /// rendered.
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
    let oldest = oldest.map(|ms| Duration::from_millis(now_ms.abs_diff(ms)));
    n_redo >= config.batch_size
        || n_rl >= config.batch_size
        || (n_redo + n_rl >= MIN_EARLY && oldest.is_some_and(|age| age >= config.max_wait.0))
}
