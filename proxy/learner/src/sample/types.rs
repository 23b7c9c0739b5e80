//! A sample, and a reply that belongs to no turn.

use std::sync::Arc;

use metaclaw_chat::{Score, TurnId};
use metaclaw_turns::Turn;
use serde::Serialize;

use super::{
    hints::{HintedPrompts, Hints},
    target::{Target, Targets},
    turns::{sampled_fairly, score},
};

/// The largest advantage, because in a large batch a rare verdict is many standard deviations from the mean.
pub(crate) const MAX_ADVANTAGE: f32 = 5.0;

/// A judged turn of a batch, and what is known for training on it.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) turn: Arc<Turn>,
    /// The teacher's replies to its prompt, or `None` if only its own ids are trained on.
    pub(crate) target: Option<Arc<Target>>,
    /// The prompts with a hint, for a teacher that rates the turn's own ids.
    pub(crate) hinted: HintedPrompts,
    /// Whether no step has used it yet, because the verdict counts once.
    pub(crate) is_fresh: bool,
    /// The advantages of its own ids, or `None` if they are not trained on.
    pub(crate) push: Option<Push>,
}

/// The advantages of a turn's own ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Push {
    /// From its verdict; 0 if that gives none.
    pub(crate) advantage: f32,
    /// `[R]`: what an external teacher adds to the advantage of each id. `None` if there is no such teacher, or it was
    /// not asked.
    pub(crate) teacher_delta: Option<Arc<[f32]>>,
}

/// A reply of the base model to one of MetaClaw's questions, with the wishes in the prompt, which the weights are kept
/// near.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct AnchorReply {
    /// The question without the wishes, which the student reads.
    pub(crate) prompt: Vec<u32>,
    pub(crate) ids: Vec<u32>,
    /// `[R][K]`: the ids that the base model with the wishes finds most probable at each id.
    pub(crate) likely: Vec<Vec<u32>>,
    /// `[R][K]`: their log-probabilities.
    pub(crate) logprobs: Vec<Vec<f32>>,
}

/// What the teacher came to about an agent's turns, and whether it is to answer all of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Teaching<'a> {
    pub(crate) targets: &'a Targets,
    /// The prompts that the teacher reads in place of the turns' own.
    pub(crate) hints: &'a Hints,
    /// Whether wishes are in force that are to come into the weights.
    pub(crate) consolidates: bool,
}

// === impl Sample ===

impl Sample {
    /// Creates a sample of a turn whose own ids are trained on.
    pub(crate) fn own(turn: Arc<Turn>, hinted: HintedPrompts) -> Self {
        Self {
            turn,
            target: None,
            hinted,
            is_fresh: true,
            push: None,
        }
    }

    /// Creates a sample of a turn that the teacher answered.
    pub(crate) fn answered(turn: Arc<Turn>, target: Arc<Target>, hinted: HintedPrompts) -> Self {
        Self {
            target: Some(target),
            ..Self::own(turn, hinted)
        }
    }

    /// Creates a sample of a turn that an earlier step used, to be used again.
    pub(crate) fn again(turn: Arc<Turn>, target: Arc<Target>) -> Self {
        Self {
            is_fresh: false,
            ..Self::answered(turn, target, HintedPrompts::default())
        }
    }

    pub(crate) fn id(&self) -> TurnId {
        self.turn.id
    }

    /// Returns whether its ids are the policy's own choice, and its verdict gives or could give an advantage.
    pub(crate) fn may_be_scored(&self) -> bool {
        let is_judged = matches!(score(&self.turn), Some(Score::Good | Score::Bad));
        let advantage = self.push.as_ref().map_or(0.0, |push| push.advantage);
        advantage != 0.0 || (is_judged && sampled_fairly(&self.turn))
    }
}

// === impl Push ===

impl Push {
    /// `[R]`: the advantage of each of `n` ids, limited to -`most` and `most`.
    pub(crate) fn advantages(&self, n: usize, most: f32) -> impl Iterator<Item = f32> + '_ {
        let deltas = self.teacher_delta.iter().flat_map(|it| it.iter().copied());
        let deltas = deltas.chain(std::iter::repeat(0.0)).take(n);
        deltas.map(move |delta| (self.advantage + delta).clamp(-most, most))
    }
}
