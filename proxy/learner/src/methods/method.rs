//! What a training method provides.

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

/// A training method: which judged turns it takes, and what it makes of them.
pub(crate) trait Method: fmt::Debug + Send + Sync {
    /// As in `rl.method`.
    fn name(&self) -> &'static str;

    /// Another name in `rl.method`.
    fn alias(&self) -> Option<&'static str> {
        None
    }

    /// What it learns from. Two methods that learn from the same do not go together.
    fn signals(&self) -> &'static [TrainingSignal];

    /// What it wants of a judged turn whose ids are there.
    fn wants(&self, turn: &Turn, teaching: Teaching<'_>) -> Want;

    /// What its examples of a batch are; there may be none.
    ///
    /// # Errors
    /// [`NotAnExample`] for the first sample that cannot be trained on.
    fn group(&self, batch: &Batch, objective: &Objective) -> Result<Group, NotAnExample>;

    /// Whether it has a use for a turn with this verdict. Only asked of a method that learns from verdicts.
    fn takes(&self, score: Option<Score>) -> bool {
        matches!(score, Some(Score::Good | Score::Bad))
    }

    /// What the advantage of a turn is measured against.
    fn compares(&self) -> Compares {
        Compares::Nothing
    }

    /// The advantage of each turn by its verdict, which is bounded afterwards; 0 pushes nothing.
    fn advantages(&self, turns: &[&Arc<Turn>], _baselines: Baselines) -> Vec<f32> {
        vec![0.0; turns.len()]
    }

    /// The loss where `rl.loss_fn` is not set.
    fn usual_loss(&self) -> LossFn {
        LossFn::Cispo
    }

    /// What the teacher is told about a hint; none: the hint in the form of a wish.
    fn words_of_hint(&self, _hint: &str) -> Option<String> {
        None
    }

    /// Works out the weights of examples that depend on the current policy, before each pass of the step. Returns the loss
    /// where it is worked out here; the default does nothing.
    ///
    /// # Errors
    /// The training server's.
    fn refresh<'a>(
        &'a self,
        _examples: &'a mut [Example],
        _policy: LogprobClient<'a>,
    ) -> BoxFuture<'a, Result<Option<f64>, BackendError>> {
        future::ready(Ok(None)).boxed()
    }
}

/// What a method learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrainingSignal {
    /// The teacher's reply to the turn's prompt.
    Target,
    /// How likely a teacher that was told a hint finds the turn's own reply.
    Hint,
    /// The verdict on the turn.
    Verdict,
}

/// What a method wants of a judged turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// The teacher is to answer its prompt.
    Target,
    /// The turn's own ids, as they are.
    Own,
    /// The prompts with its hints are to be rendered first.
    Hint,
    /// More must happen first.
    Wait,
    Never(ExcludeReason),
}

/// What the advantage of a turn is measured against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compares {
    /// Nothing: the verdict is the advantage, or there is none.
    Nothing,
    /// How good the agent's turns usually are.
    Baseline,
    /// The other turns of its batch.
    Batch,
    /// Other replies to the same prompt, which come into its batch.
    Siblings,
}

/// What of `rl.*` the examples of a step depend on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Objective {
    pub(crate) w_redo: f32,
    pub(crate) w_opd: f32,
    pub(crate) w_rl: f32,
    /// `rl.anchor`.
    pub(crate) anchor: f32,
    pub(crate) policy_loss: PolicyLoss,
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

/// What the training server is given of one sample.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Example {
    pub(crate) datum: Datum,
    /// The turns that it is made of; an anchor is of none.
    pub(crate) turns: Vec<TurnId>,
    /// What its weights are worked out from while the step is made; none where the datum has them.
    pub(crate) state: Option<ExampleState>,
}

/// What the weights of an example are worked out from, with the weights that the model has then.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExampleState {
    /// The turn's own reply, and what a teacher is to make of it.
    Distil(Arc<Distil>),
    /// The same with its advantages, which the first pass of a step works out.
    Surrogate(Surrogate),
    /// A reply of the base model.
    Anchor(AnchorTerm),
}

/// A reply that the weights are held at, with its weight in a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AnchorTerm {
    pub(crate) reply: Arc<AnchorReply>,
    /// Of the divergence at one id, with its share of the batch.
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
    /// Examples of a cross_entropy whose weights say all.
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
    /// [`NotAnExample`].
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

    /// The same, with weights that are worked out while the step is made.
    pub(crate) fn refreshed_by(self, state: ExampleState) -> Self {
        Self {
            state: Some(state),
            ..self
        }
    }

    /// How many ids the model reads.
    pub(crate) fn n_tokens(&self) -> usize {
        self.datum.parts().model_input_tokens.len()
    }
}

// === impl ExampleState ===

impl ExampleState {
    /// Ids of the reply, all of which have weights.
    pub(crate) fn n_trained(&self) -> usize {
        match self {
            Self::Distil(distil) => distil.reply.len(),
            Self::Surrogate(surrogate) => surrogate.n_ids(),
            Self::Anchor(anchor) => anchor.reply.ids.len(),
        }
    }
}
