//! `rl.*`: how weights are trained.

use metaclaw_chat::Span;
use metaclaw_trainer_api::{DEFAULT_ALPHA, DEFAULT_RANK, LossFn};
use serde::{Deserialize, Serialize};

use super::{methods::Methods, words::Words};
use crate::methods::TrainingSignal;

/// `rl.*`, but for the training server's address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RlConfig {
    /// What a step is made of.
    pub method: Methods,
    pub w_redo: f32,
    pub w_opd: f32,
    /// Weight of what verdicts push; metaclaw has none.
    pub w_rl: f32,
    /// The loss of what is pushed by its verdict; none: cispo.
    pub loss_fn: Option<LossFn>,
    /// Least ratio of a token's probability to that at which it was sampled; none: as the loss has it.
    pub clip_low: Option<f64>,
    /// Greatest ratio; none: as the loss has it.
    pub clip_high: Option<f64>,
    /// Step size; none: by the model's size, 5e-4 to 200M parameters, 1e-4 from 1B.
    pub learning_rate: Option<f64>,
    /// AdamW: decay of the first moment.
    pub beta1: f64,
    /// AdamW: decay of the second moment.
    pub beta2: f64,
    /// AdamW: added to the root of the second moment.
    pub eps: f64,
    pub weight_decay: f64,
    /// Bound of the global gradient norm; 0 is off.
    pub clip_norm: f64,
    /// Steps until the full rate; 0 is the full rate at once.
    pub warmup_steps: u64,
    pub lora_rank: u32,
    /// LoRA alpha, whatever the rank.
    pub lora_alpha: f64,
    /// The projections that are adapted.
    pub targets: Words,
    /// Weight of the divergence from the base model with the wishes in its prompt; 0 is none.
    pub anchor: f32,
    /// The most steps that are made for an agent; 0 is no bound.
    pub max_steps: u64,
    /// Steps that are taken on each batch; none: 2 where redo is among the methods, else 1.
    pub epochs: Option<u64>,
    /// Samples of one step, for each method.
    pub batch_size: usize,
    /// A batch of at least two goes when its oldest sample has waited so long.
    pub max_wait: Span,
    /// Older turns are not trained on.
    pub max_age: Span,
    /// The most steps that one sample of redo serves in, at least 1.
    pub reuse: usize,
    /// Whether standing wishes go from the prompt into the weights: then every turn of an agent that has some is
    /// answered again.
    pub consolidate: bool,
    /// Who says what is better.
    pub teacher: Teacher,
    /// Its replies to one turn, of which those that pass are taught, 1 to 64.
    pub draws: u32,
    /// How relevant a reply must be to be taught: a share of the mean of the teacher's replies; 0 asks for nothing.
    pub min_relevance: f64,
    /// What is asked of the weights at each id of a reply that is taught.
    pub target: TargetForm,
}

/// `rl.teacher`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Teacher {
    /// The model without adapters, which does not move: what was learned wrongly cannot teach itself.
    #[default]
    Base,
    /// The weights that the step starts from; for opd and hybrid.
    Current,
    /// The session's own reply that was accepted after a complaint, whatever it is; for redo, in comparisons.
    Session,
}

/// `rl.target`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetForm {
    /// The id that the teacher drew.
    #[default]
    OneHot,
    /// What the teacher found likely there: the 20 likeliest ids, by their probabilities.
    TopK,
}

// === impl RlConfig ===

impl RlConfig {
    /// Steps that are taken on each batch. Targets of redo stay what they are while the weights move, and what has to be tested
    /// is one adapter a batch: terse, three right in a row with session 12 in place of 20. The published forms of the other
    /// methods take one.
    pub(crate) fn epochs(&self) -> u64 {
        let default = if self.method.has(TrainingSignal::Target) {
            2
        } else {
            1
        };
        self.epochs.unwrap_or(default).max(1)
    }
}

impl Default for RlConfig {
    fn default() -> Self {
        let targets = [
            "q_proj",
            "k_proj",
            "v_proj",
            "o_proj",
            "gate_proj",
            "up_proj",
            "down_proj",
        ];
        Self {
            method: Methods::default(),
            w_redo: 1.0,
            w_opd: 1.0,
            w_rl: 0.3,
            loss_fn: None,
            clip_low: None,
            clip_high: None,
            learning_rate: None,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.0,
            clip_norm: 1.0,
            warmup_steps: 3,
            lora_rank: DEFAULT_RANK,
            lora_alpha: f64::from(DEFAULT_ALPHA),
            targets: Words(targets.map(str::to_owned).to_vec()),
            anchor: 0.0,
            max_steps: 0,
            epochs: None,
            batch_size: 4,
            max_wait: Span::mins(8 * 60),
            max_age: Span::mins(14 * 24 * 60),
            reuse: 4,
            consolidate: true,
            teacher: Teacher::Base,
            draws: 4,
            min_relevance: 0.8,
            target: TargetForm::OneHot,
        }
    }
}
