//! When samples make a batch, and what a batch asks the trainer to do.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metaclaw_chat::{Score, TurnId};
use metaclaw_trainer_api::{Datum, DatumError, LossFn};
use metaclaw_turns::Turn;

use crate::{
    advantage::advantage,
    config::RlConfig,
    datum,
    sample::{is_tool_turn, reason, sampled_fairly},
};

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

/// The usual reward of an agent's recent turns, tool turns and others apart.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Baselines {
    pub(crate) tool: f32,
    pub(crate) chat: f32,
}

/// The samples of one step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    corrections: Vec<Correction>,
    verdicts: Vec<(Arc<Turn>, f32)>,
    /// Turns that are in no batch, and why: their advantage is 0.
    pub(crate) spent: Vec<(TurnId, &'static str)>,
}

/// One forward_backward call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    pub(crate) loss: LossFn,
    pub(crate) datums: Vec<Datum>,
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

    /// The first `limit` of each method.
    pub(crate) fn batch(&self, config: &RlConfig, baselines: Baselines, limit: usize) -> Batch {
        let corrections: Vec<Correction> = self.corrections.iter().take(limit).cloned().collect();
        let mut batch = Batch {
            corrections,
            ..Batch::default()
        };
        for turn in &self.verdicts {
            let given = baselines.advantage(turn);
            if given == 0.0 {
                batch.spent.push((turn.id, reason::NO_ADVANTAGE));
            } else if batch.verdicts.len() < limit {
                batch.verdicts.push((Arc::clone(turn), given));
            }
        }
        if config.method.binary_rl {
            batch.push_corrections_too(baselines);
        }
        batch
    }
}

// === impl Baselines ===

impl Baselines {
    /// A of a turn, times the weight of its verdict.
    fn advantage(self, turn: &Turn) -> f32 {
        let Some(verdict) = &turn.verdict else {
            return 0.0;
        };
        let usual = if is_tool_turn(turn) {
            self.tool
        } else {
            self.chat
        };
        verdict.weight * advantage(verdict.score.value(), usual)
    }
}

// === impl Batch ===

impl Batch {
    /// The turns of corrections have verdicts as well, and are taken once: this is their only step.
    fn push_corrections_too(&mut self, baselines: Baselines) {
        let turns = self
            .corrections
            .iter()
            .flat_map(|pair| [&pair.failed, &pair.accepted]);
        let fair = turns.filter(|turn| sampled_fairly(turn));
        let pushed = fair.map(|turn| (Arc::clone(turn), baselines.advantage(turn)));
        let pushed: Vec<_> = pushed.filter(|(_, given)| *given != 0.0).collect();
        self.verdicts.extend(pushed);
    }

    /// Whether there is nothing to train on.
    pub(crate) fn is_empty(&self) -> bool {
        self.corrections.is_empty() && self.verdicts.is_empty()
    }

    /// Samples of redo and of binary_rl.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.corrections.len(), self.verdicts.len())
    }

    /// Every turn that the step takes, each once, in order.
    pub(crate) fn turns(&self) -> Vec<TurnId> {
        self.by_id().into_keys().collect()
    }

    /// The mean score of its turns, and the share of good ones.
    pub(crate) fn rewards(&self) -> (f32, f32) {
        let scores = self
            .by_id()
            .into_values()
            .filter_map(|turn| turn.verdict.as_ref().map(|v| v.score));
        let scores: Vec<Score> = scores.collect();
        let n = scores.len().max(1) as f32;
        let good = scores.iter().filter(|score| **score == Score::Good).count();
        (
            scores.iter().map(|score| score.value()).sum::<f32>() / n,
            good as f32 / n,
        )
    }

    /// The losses that it needs.
    pub(crate) fn losses(&self) -> Vec<LossFn> {
        let redo = (!self.corrections.is_empty()).then_some(LossFn::CrossEntropy);
        let rl = (!self.verdicts.is_empty()).then_some(LossFn::ImportanceSampling);
        redo.into_iter().chain(rl).collect()
    }

    /// One call for each method; the gradients of both add up. Each sample has the weight w/(B·|M|).
    ///
    /// # Errors
    /// [`DatumError`] when a turn's ids are no sequence.
    pub(crate) fn groups(&self, config: &RlConfig) -> Result<Vec<Group>, DatumError> {
        let share = config.w_redo / self.corrections.len().max(1) as f32;
        let redo = self
            .corrections
            .iter()
            .map(|pair| pair.datum(share))
            .collect::<Result<Vec<_>, _>>()?;
        let share = config.w_rl / self.verdicts.len().max(1) as f32;
        let pushed = self
            .verdicts
            .iter()
            .filter_map(|(turn, given)| Some((turn.tokens.as_ref()?, given)));
        let pushed = pushed.map(|(tokens, given)| datum::verdict(tokens, share * given));
        let pushed = pushed.collect::<Result<Vec<_>, _>>()?;
        let groups = [
            Group {
                loss: LossFn::CrossEntropy,
                datums: redo,
            },
            Group {
                loss: LossFn::ImportanceSampling,
                datums: pushed,
            },
        ];
        Ok(groups
            .into_iter()
            .filter(|group| !group.datums.is_empty())
            .collect())
    }

    fn by_id(&self) -> BTreeMap<TurnId, &Turn> {
        let pairs = self
            .corrections
            .iter()
            .flat_map(|pair| [&pair.failed, &pair.accepted]);
        let alone = self.verdicts.iter().map(|(turn, _)| turn);
        pairs.chain(alone).map(|turn| (turn.id, &**turn)).collect()
    }
}

// === impl Correction ===

impl Correction {
    fn datum(&self, share: f32) -> Result<Datum, DatumError> {
        let ids = |turn: &Arc<Turn>| turn.tokens.clone().unwrap_or_default();
        datum::target(
            &ids(&self.failed).prompt_ids,
            &ids(&self.accepted).ids,
            share,
        )
    }
}

#[cfg(test)]
mod tests;
