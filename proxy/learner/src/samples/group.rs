//! What the trainer is given of the samples of each method.

use std::sync::Arc;

use metaclaw_chat::TurnId;
use metaclaw_trainer_api::{Datum, DatumError, LossConfig, LossFn};

use super::{
    anchor::{Anchor, Reply},
    datum,
    distil::Distil,
    pushed::Pushed,
    verdicts,
    work::Work,
};
use crate::config::{RlConfig, RlConfigError, VerdictMethod};

/// The group that is of no method.
pub(crate) const ANCHOR: &str = "anchor";

/// The sequences of one loss.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    /// Of `rl.method`, or [`ANCHOR`].
    pub(crate) method: &'static str,
    pub(crate) loss: LossFn,
    pub(crate) loss_config: LossConfig,
    pub(crate) sequences: Vec<Sequence>,
}

/// What the trainer is given of one sample.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sequence {
    pub(crate) datum: Datum,
    /// The turns that it is made of; an anchor is of none.
    pub(crate) turns: Vec<TurnId>,
    /// What its weights are worked out from when the step is made; none where the datum has them.
    pub(crate) work: Option<Work>,
}

/// Why a batch is nothing to train on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoGroups {
    /// A sample is no sequence.
    #[error("the token ids of {turns:?} are no sequence: {error}")]
    Sequence {
        turns: Vec<TurnId>,
        #[source]
        error: DatumError,
    },
    #[error(transparent)]
    Config(#[from] RlConfigError),
}

/// The groups of what is pushed on its own ids; they may be empty.
///
/// # Errors
/// [`NoGroups`].
pub(super) fn groups(pushed: &[Pushed], config: &RlConfig) -> Result<Vec<Group>, NoGroups> {
    Ok(match config.method.verdict {
        Some(VerdictMethod::Hybrid) => vec![distilled("hybrid", pushed, config)?],
        Some(method) => vec![
            by_verdict(method, pushed, config)?,
            distilled("opd", pushed, config)?,
        ],
        None => vec![distilled("opd", pushed, config)?],
    })
}

/// A policy loss on the ids of each turn.
fn by_verdict(
    method: VerdictMethod,
    pushed: &[Pushed],
    config: &RlConfig,
) -> Result<Group, NoGroups> {
    let loss = config.policy_loss()?;
    let pushed = pushed.iter();
    let pushed = pushed.filter(|it| it.advantage != 0.0 || it.pulls.is_some());
    let share = config.w_rl / pushed.clone().count().max(1) as f32;
    let sequences = pushed.filter_map(|it| {
        let tokens = it.turn.tokens.as_ref()?;
        let advantages: Vec<f32> = match method {
            // The original sums over all ids of a batch, so that long replies count more, and bounds nothing.
            VerdictMethod::Metaclaw => it.advantages(tokens.ids.len(), f32::MAX).collect(),
            VerdictMethod::BinaryRl | VerdictMethod::Grpo | VerdictMethod::Hybrid => {
                let each = share / tokens.ids.len().max(1) as f32;
                let bounded = it.advantages(tokens.ids.len(), verdicts::MOST);
                bounded.map(|advantage| each * advantage).collect()
            }
        };
        let datum = datum::verdict(tokens, &advantages);
        Some(Sequence::new(vec![it.turn.id], datum))
    });
    Ok(Group {
        method: method.as_str(),
        loss: loss.loss,
        loss_config: loss.config,
        sequences: sequences.collect::<Result<_, _>>()?,
    })
}

/// Both parts of hybrid, or opd alone: cross_entropy with weights that are worked out when the step is made.
fn distilled(
    method: &'static str,
    pushed: &[Pushed],
    config: &RlConfig,
) -> Result<Group, NoGroups> {
    let is_hybrid = config.method.is_openclaw();
    let clip = config.surrogate_clip()?;
    let pushed = pushed.iter().filter(|it| is_hybrid || !it.told.is_empty());
    let n = pushed.clone().count().max(1) as f32;
    let sequences = pushed.filter_map(|it| {
        let tokens = it.turn.tokens.as_ref()?;
        let each = 1.0 / (n * tokens.ids.len().max(1) as f32);
        let push = if is_hybrid {
            config.w_rl * it.advantage
        } else {
            0.0
        };
        let distil = Distil {
            prompt: tokens.prompt_ids.clone(),
            reply: tokens.ids.clone(),
            told: Arc::clone(&it.told),
            share: config.w_opd * each,
            push: push * each,
            clip,
        };
        Some(Sequence::distilled(vec![it.turn.id], distil))
    });
    Ok(Group {
        method,
        loss: LossFn::CrossEntropy,
        loss_config: LossConfig::new(),
        sequences: sequences.collect::<Result<_, _>>()?,
    })
}

/// The group of the base model's own replies, each with its share of `rl.anchor`; it may be empty.
///
/// # Errors
/// [`NoGroups`].
pub(super) fn anchored(replies: &[Arc<Reply>], config: &RlConfig) -> Result<Group, NoGroups> {
    let n = replies.len().max(1) as f32;
    let sequences = replies.iter().map(|reply| {
        let anchor = Anchor {
            share: config.anchor / (n * reply.ids.len().max(1) as f32),
            reply: Arc::clone(reply),
        };
        let sequence = Sequence::new(Vec::new(), anchor.known())?;
        Ok(Sequence {
            work: Some(Work::Anchor(anchor)),
            ..sequence
        })
    });
    Ok(Group {
        method: ANCHOR,
        loss: LossFn::CrossEntropy,
        loss_config: LossConfig::new(),
        sequences: sequences.collect::<Result<_, NoGroups>>()?,
    })
}

// === impl Sequence ===

impl Sequence {
    pub(super) fn new(
        turns: Vec<TurnId>,
        datum: Result<Datum, DatumError>,
    ) -> Result<Self, NoGroups> {
        match datum {
            Ok(datum) => Ok(Self {
                datum,
                turns,
                work: None,
            }),
            Err(error) => Err(NoGroups::Sequence { turns, error }),
        }
    }

    fn distilled(turns: Vec<TurnId>, distil: Distil) -> Result<Self, NoGroups> {
        let sequence = Self::new(turns, distil.known())?;
        Ok(Self {
            work: Some(Work::Distil(distil.into())),
            ..sequence
        })
    }

    /// How many ids the model reads.
    pub(crate) fn n_tokens(&self) -> usize {
        self.datum.parts().model_input_tokens.len()
    }
}
