//! What the teacher reads of a turn in addition to the student: its conversation with each hint added, as ids.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::{Score, TurnId, Verdict};
use metaclaw_turns::Turn;

use super::turns::{hint, score};

/// The number of turns whose prompts are cached; others are rendered again.
const REMEMBERED: usize = 256;

/// The teacher's prompts, one for each hint; empty if nobody said what would have been better.
pub(crate) type HintedPrompts = Arc<Vec<Vec<u32>>>;

/// The teacher's prompts by turn, as long as its wishes do not change.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    of: BTreeMap<TurnId, KnownHints>,
}

/// The prompts, and the verdict with which they were made, because another verdict may have other hints.
#[derive(Debug)]
struct KnownHints {
    told: HintedPrompts,
    verdict: Option<Verdict>,
}

// === impl Hints ===

impl Hints {
    /// Returns the teacher's prompts of a turn, or `None` while they are not known.
    pub(crate) fn told(&self, turn: &Turn) -> Option<HintedPrompts> {
        if !may_be_hinted(turn) {
            return Some(HintedPrompts::default());
        }
        let known = self.of.get(&turn.id)?;
        (known.verdict == turn.verdict).then(|| Arc::clone(&known.told))
    }

    pub(crate) fn put(&mut self, turn: &Turn, told: Vec<Vec<u32>>) {
        if self.of.len() >= REMEMBERED {
            self.of.pop_first();
        }
        let known = KnownHints {
            told: told.into(),
            verdict: turn.verdict.clone(),
        };
        self.of.insert(turn.id, known);
    }
}

/// Returns whether there may be a hint what would have been better: in the turn's verdict, or in the reaction to it if
/// it failed.
fn may_be_hinted(turn: &Turn) -> bool {
    score(turn) == Some(Score::Bad) || hint(turn).is_some()
}
