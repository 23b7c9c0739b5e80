//! A sample, and a reply that is no turn's.

use std::sync::Arc;

use metaclaw_chat::{Score, TurnId};
use metaclaw_turns::Turn;
use serde::Serialize;

use super::{
    hints::{HintedPrompts, Hints},
    target::{Target, Targets},
    turns::{sampled_fairly, score},
};

/// The greatest advantage: in a large batch a rare verdict is many standard deviations from the mean.
pub(crate) const MAX_ADVANTAGE: f32 = 5.0;

/// A judged turn of a batch, and what is known for training on it.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) turn: Arc<Turn>,
    /// The teacher's replies to its prompt; none where only its own ids are trained on.
    pub(crate) target: Option<Arc<Target>>,
    /// The prompts with a hint, for a teacher that finds out how likely the turn's own ids are.
    pub(crate) hinted: HintedPrompts,
    /// Whether no step has had it: the verdict counts once.
    pub(crate) is_fresh: bool,
    /// How its own ids are pushed; none where they are not.
    pub(crate) push: Option<Push>,
}

/// How the ids of a turn's own reply are pushed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Push {
    /// By its verdict; 0 where that pushes nothing.
    pub(crate) advantage: f32,
    /// `[R]`: what an external teacher adds to the advantage of each id. None where there is no such teacher, or it was not
    /// asked.
    pub(crate) teacher_delta: Option<Arc<[f32]>>,
    /// What is different for a turn of a rollout; none for others.
    pub(crate) rollout: Option<RolloutPush>,
}

/// How the ids of a turn of a rollout are pushed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RolloutPush {
    /// The weight of each id: 1 / (rollouts of the step · ids of the rollout).
    pub(crate) share: f32,
    /// `[R]`: the advantages that `rl.advantages` gives each id, in place of the turn's own. None where it gives one number.
    pub(crate) by_id: Option<Arc<[f32]>>,
}

/// A reply of the base model to a question of ours, with its wishes in the prompt: the weights are held at it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct AnchorReply {
    /// The question without the wishes: what the student reads.
    pub(crate) prompt: Vec<u32>,
    pub(crate) ids: Vec<u32>,
    /// `[R][K]`: the ids that the base finds likeliest at each, told the wishes.
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
    /// A turn whose own ids are trained on.
    pub(crate) fn own(turn: Arc<Turn>, hinted: HintedPrompts) -> Self {
        Self {
            turn,
            target: None,
            hinted,
            is_fresh: true,
            push: None,
        }
    }

    /// A turn that the teacher answered.
    pub(crate) fn answered(turn: Arc<Turn>, target: Arc<Target>, hinted: HintedPrompts) -> Self {
        Self {
            target: Some(target),
            ..Self::own(turn, hinted)
        }
    }

    /// A turn that an earlier step trained on, to be trained on again.
    pub(crate) fn again(turn: Arc<Turn>, target: Arc<Target>) -> Self {
        Self {
            is_fresh: false,
            ..Self::answered(turn, target, HintedPrompts::default())
        }
    }

    pub(crate) fn id(&self) -> TurnId {
        self.turn.id
    }

    /// Whether its ids are the policy's own choice, and its verdict pushes them or could.
    pub(crate) fn may_be_scored(&self) -> bool {
        let is_judged = matches!(score(&self.turn), Some(Score::Good | Score::Bad));
        let advantage = self.push.as_ref().map_or(0.0, |push| push.advantage);
        advantage != 0.0 || (is_judged && sampled_fairly(&self.turn))
    }
}

// === impl Push ===

impl Push {
    /// `[R]`: the advantage of each of `n` ids, within -`most` and `most`.
    pub(crate) fn advantages(&self, n: usize, most: f32) -> impl Iterator<Item = f32> + '_ {
        let deltas = self.teacher_delta.iter().flat_map(|it| it.iter().copied());
        let deltas = deltas.chain(std::iter::repeat(0.0)).take(n);
        let by_id = self.rollout.as_ref().and_then(|it| it.by_id.as_ref());
        deltas.enumerate().map(move |(at, delta)| {
            let own = by_id.and_then(|it| it.get(at)).unwrap_or(&self.advantage);
            (own + delta).clamp(-most, most)
        })
    }
}
