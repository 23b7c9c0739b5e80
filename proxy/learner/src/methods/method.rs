//! The interface of a training method.

use std::{fmt, future, sync::Arc};

use futures_util::{FutureExt as _, future::BoxFuture};
use metaclaw_chat::{Score, TurnId};
use metaclaw_trainer_api::{BackendError, Datum, DatumError, LossConfig, LossFn};
use metaclaw_turns::Turn;
use serde::Serialize;

use super::{
    logprobs::LogprobClient,
    surrogate::{Distil, Surrogate},
};
use crate::{
    formulas::RatioClip,
    sample::{AnchorReply, Baselines, Batch, ExcludeReason, Teaching},
};

/// A training method: which judged turns it uses, and how it builds examples from them.
pub(crate) trait Method: fmt::Debug + Send + Sync {
    /// The name in `rl.method`.
    fn name(&self) -> &'static str;

    /// An alternative name in `rl.method`.
    fn alias(&self) -> Option<&'static str> {
        None
    }

    /// The signals that it learns from. Two methods with the same signal cannot be combined.
    fn signals(&self) -> &'static [TrainingSignal];

    /// Returns what the method does with a judged turn whose ids are known.
    fn wants(&self, turn: &Turn, teaching: Teaching<'_>) -> Want;

    /// Returns the examples of a batch, possibly none.
    ///
    /// # Errors
    /// Returns [`NotAnExample`] for the first sample that cannot be trained on.
    fn group(&self, batch: &Batch, objective: &Objective) -> Result<Group, NotAnExample>;

    /// Returns whether the method can use a turn with this verdict. This is called only for a method that learns from
    /// verdicts.
    fn takes(&self, score: Option<Score>) -> bool {
        matches!(score, Some(Score::Good | Score::Bad))
    }

    /// Returns what the advantage of a turn is compared with.
    fn compares(&self) -> Compares {
        Compares::Nothing
    }

    /// Returns the advantage of each turn by its verdict, before the limit; a turn with 0 is not trained on.
    fn advantages(&self, turns: &[&Arc<Turn>], _baselines: Baselines) -> Vec<f32> {
        vec![0.0; turns.len()]
    }

    /// Returns the loss that is used if `rl.loss_fn` is not set.
    fn usual_loss(&self) -> LossFn {
        LossFn::Cispo
    }

    /// Returns the text that gives the teacher a hint, or `None` for the hint in the form of a wish.
    fn words_of_hint(&self, _hint: &str) -> Option<String> {
        None
    }

    /// Computes the weights of examples that depend on the current policy, before each pass of the step. Returns the
    /// loss if it is computed here; the default does nothing.
    ///
    /// # Errors
    /// Returns the training server's errors.
    fn refresh<'a>(
        &'a self,
        _examples: &'a mut [Example],
        _policy: LogprobClient<'a>,
    ) -> BoxFuture<'a, Result<Option<f64>, BackendError>> {
        future::ready(Ok(None)).boxed()
    }
}

/// The signals that a method can learn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrainingSignal {
    /// The teacher's reply to the turn's prompt.
    Target,
    /// How probable a teacher that was given a hint finds the turn's own reply.
    Hint,
    /// The verdict on the turn.
    Verdict,
}

/// What a method does with a judged turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// The teacher has to answer its prompt.
    Target,
    /// The method uses the turn's own ids as they are.
    Own,
    /// The prompts with its hints have to be rendered first.
    Hint,
    /// Something else must happen first.
    Wait,
    Never(ExcludeReason),
}

/// What the advantage of a turn is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compares {
    /// Nothing: the verdict is the advantage, or there is none.
    Nothing,
    /// The mean score of the agent's turns.
    Baseline,
    /// The other turns of its batch.
    Batch,
    /// Other replies to the same prompt, which come into its batch.
    Siblings,
}

/// The settings of `rl.*` that the examples of a step depend on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Objective {
    pub(crate) w_redo: f32,
    pub(crate) w_opd: f32,
    pub(crate) w_rl: f32,
    /// The setting `rl.anchor`.
    pub(crate) anchor: f32,
    pub(crate) policy_loss: PolicyLoss,
    /// The loss for rollouts, which does not depend on `rl.method`.
    pub(crate) rollout_loss: PolicyLoss,
    /// Bounds of the ratio in hybrid and opd.
    pub(crate) clip: RatioClip,
}

/// A loss with its constants.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PolicyLoss {
    pub(crate) loss: LossFn,
    pub(crate) config: LossConfig,
}

/// The examples of one loss.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    pub(crate) method: &'static dyn Method,
    pub(crate) loss: LossFn,
    pub(crate) loss_config: LossConfig,
    pub(crate) examples: Vec<Example>,
}

/// The example of one sample for the training server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Example {
    pub(crate) datum: Datum,
    /// The turns that it is made of; an anchor has none.
    pub(crate) turns: Vec<TurnId>,
    /// The source of weights that are computed during the step, or `None` if the datum has its weights.
    pub(crate) state: Option<ExampleState>,
}

/// The source of an example's weights, computed from the policy at that time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExampleState {
    /// The turn's own reply, which a teacher has to rate.
    Distil(Arc<Distil>),
    /// The same with its advantages, which the first pass of a step computes.
    Surrogate(Surrogate),
    /// A reply of the base model.
    Anchor(AnchorTerm),
}

/// A reply of the base model that the weights are kept near, with its weight in a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AnchorTerm {
    pub(crate) reply: Arc<AnchorReply>,
    /// The weight of the divergence at one id, with its share of the batch.
    pub(crate) share: f32,
}

/// A sample that cannot be trained on.
#[derive(Debug, thiserror::Error)]
#[error("the token ids of {turns:?} are no sequence: {error}")]
pub(crate) struct NotAnExample {
    pub(crate) turns: Vec<TurnId>,
    #[source]
    pub(crate) error: DatumError,
}

// === impl Method ===

impl PartialEq for dyn Method {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

// === impl Group ===

impl Group {
    /// Returns examples of a cross_entropy with fixed weights.
    pub(crate) fn weighted(method: &'static dyn Method, examples: Vec<Example>) -> Self {
        Self {
            method,
            loss: LossFn::CrossEntropy,
            loss_config: LossConfig::new(),
            examples,
        }
    }
}

// === impl Example ===

impl Example {
    /// # Errors
    /// Returns [`NotAnExample`] for the first sample that cannot be trained on.
    pub(crate) fn new(
        turns: Vec<TurnId>,
        datum: Result<Datum, DatumError>,
    ) -> Result<Self, NotAnExample> {
        match datum {
            Ok(datum) => Ok(Self {
                datum,
                turns,
                state: None,
            }),
            Err(error) => Err(NotAnExample { turns, error }),
        }
    }

    /// Returns examples with weights that are computed during the step.
    pub(crate) fn refreshed_by(self, state: ExampleState) -> Self {
        Self {
            state: Some(state),
            ..self
        }
    }

    /// Returns the number of ids that the model reads.
    pub(crate) fn n_tokens(&self) -> usize {
        self.datum.parts().model_input_tokens.len()
    }
}

// === impl ExampleState ===

impl ExampleState {
    /// Returns the number of the reply's ids, which all have weights.
    pub(crate) fn n_trained(&self) -> usize {
        match self {
            Self::Distil(distil) => distil.reply.len(),
            Self::Surrogate(surrogate) => surrogate.n_ids(),
            Self::Anchor(anchor) => anchor.reply.ids.len(),
        }
    }
}
