//! `rl.*`: how weights are trained.

use metaclaw_chat::Span;
use metaclaw_trainer_api::{DEFAULT_ALPHA, DEFAULT_RANK, LossFn, wire::AdamSettings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::{methods::Methods, rollouts::RolloutsConfig, words::Words};
use crate::methods::TrainingSignal;

/// `rl.*`, but for the training server's address.
#[derive(Debug, Clone, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RlConfig {
    /// The training methods of a step, joined by +: context_distillation (redo for short), opd, and one of binary_rl,
    /// hybrid, grpo and metaclaw (docs/training/README.md).
    pub method: Methods,
    /// The weight of context_distillation.
    #[schemars(range(min = 0.0))]
    #[default(1.0)]
    pub w_redo: f32,
    /// The weight of opd, and of the opd part of hybrid.
    #[schemars(range(min = 0.0))]
    #[default(1.0)]
    pub w_opd: f32,
    /// The weight of what verdicts reinforce: binary_rl, grpo, and that part of hybrid. metaclaw has no weight.
    #[schemars(range(min = 0.0))]
    #[default(0.3)]
    pub w_rl: f32,
    /// The loss for what verdicts reinforce. Without it, cispo is used, importance_sampling for metaclaw, and ppo for
    /// hybrid (docs/training/methods.md).
    #[schemars(with = "Option<String>", extend("enum" = ["cispo", "ppo", "importance_sampling"]))]
    pub loss_fn: Option<LossFn>,
    /// The lower bound of a token's probability ratio to when it was sampled. Without it, 0 for cispo and 0.8 for ppo.
    #[schemars(range(min = 0.0))]
    pub clip_low: Option<f64>,
    /// The upper bound of a token's probability ratio. Without it, 2 for cispo and 1.28 for ppo.
    #[schemars(range(min = 0.0))]
    pub clip_high: Option<f64>,
    /// The learning rate. Without it, the model's size decides: 5e-4 up to 200M parameters, 1e-4 from 1B.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub learning_rate: Option<f64>,
    /// AdamW's decay rate of the first moment.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[default(0.9)]
    pub beta1: f64,
    /// AdamW's decay rate of the second moment.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[default(0.95)]
    pub beta2: f64,
    /// AdamW's epsilon, which is added to the root of the second moment.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[default(1e-8)]
    pub eps: f64,
    /// AdamW's weight decay.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// The largest global gradient norm. 0 turns clipping off.
    #[schemars(range(min = 0.0))]
    #[default(1.0)]
    pub clip_norm: f64,
    /// How many steps pass until the learning rate is full.
    #[default(3)]
    pub warmup_steps: u64,
    /// The rank of the LoRA adapters.
    #[schemars(range(min = 1, max = 512))]
    #[default(DEFAULT_RANK)]
    pub lora_rank: u32,
    /// LoRA's alpha. It does not change with the rank.
    #[schemars(with = "u64", range(min = 1))]
    #[default(f64::from(DEFAULT_ALPHA))]
    pub lora_alpha: f64,
    /// The projections that have an adapter. lm_head is the projection to the logits.
    #[schemars(extend("enum" = TARGETS))]
    // All but lm_head.
    #[default(Words(TARGETS[..7].iter().map(|&target| target.to_owned()).collect()))]
    pub targets: Words,
    /// How many optimizer steps are taken on one batch. They are tested together. Without it, 2 if rl.method has
    /// context_distillation, else 1.
    #[schemars(range(min = 1, max = 16))]
    pub epochs: Option<u64>,
    /// How many samples of each method make up one step.
    #[schemars(range(min = 1))]
    #[default(4)]
    pub batch_size: usize,
    /// How long a sample waits until a batch of at least two samples is trained on.
    #[default(Span::mins(8 * 60))]
    pub max_wait: Span,
    /// The age from which samples are no longer used.
    #[default(Span::mins(14 * 24 * 60))]
    pub max_age: Span,
    /// The most steps that one sample of context_distillation is used in, each with as many new samples. 1 uses it once.
    #[schemars(range(min = 1, max = 64))]
    #[default(4)]
    pub reuse: usize,
    /// Trains standing wishes into the weights: the teacher answers every judged turn of an agent that has wishes again.
    /// With false, it answers only failed turns again.
    #[default(true)]
    pub consolidate: bool,
    /// Which verdicts are not trained on: those of turns that led to a lesson in force (own), those of all turns that
    /// began before the newest lesson (strict), or none (off). A teacher may still answer these turns again
    /// (docs/training/methods.md).
    pub support_query: SupportQuery,
    /// The model that makes the targets. base is the model without adapters, so learned mistakes are not taught again.
    /// current is the model as it is trained now, for opd and hybrid.
    #[default(Teacher::Base)]
    pub teacher: Teacher,
    /// How many replies the teacher samples for one turn. Those that are relevant and follow the wishes are targets.
    #[schemars(range(min = 1, max = 64))]
    #[default(4)]
    pub draws: u32,
    /// How relevant a reply must be to become a target, as a share of the mean of the teacher's replies. 0 accepts any.
    #[schemars(range(min = 0.0, max = 2.0))]
    #[default(0.8)]
    pub min_relevance: f64,
    /// The target at each token: the teacher's token, or its 20 likeliest tokens by their probabilities.
    #[default(TargetForm::OneHot)]
    pub target: TargetForm,
    /// The weight of the divergence from the model without adapters and with the wishes in its prompt, on questions of
    /// our own. 0 turns it off (docs/training/methods.md).
    #[schemars(range(min = 0.0))]
    pub anchor: f32,
    /// The most steps that are made for one agent. 0 means no limit.
    pub max_steps: u64,
    /// Trains weights only when `metaclaw train-step` asks for a step, in modes rl and auto.
    pub manual_train_trigger: bool,
    pub rollouts: RolloutsConfig,
}

/// The projections that `rl.targets` may name.
const TARGETS: [&str; 8] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    "lm_head",
];

/// `rl.teacher`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Teacher {
    /// The model without adapters, which does not move: what was learned wrongly cannot teach itself.
    #[default]
    Base,
    /// The weights that the step starts from; for opd and hybrid.
    Current,
}

/// `rl.support_query`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SupportQuery {
    /// The verdict of a turn that was evidence for a lesson in force is not trained on.
    #[default]
    Own,
    /// No verdict of a turn that began before the agent's newest lesson came into force is trained on, as in the Python
    /// MetaClaw.
    Strict,
    /// Every verdict may be trained on.
    Off,
}

/// `rl.target`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// The optimiser's settings, but for the learning rate.
    pub(crate) fn adam(&self) -> AdamSettings {
        AdamSettings {
            beta1: Some(self.beta1),
            beta2: Some(self.beta2),
            eps: Some(self.eps),
            weight_decay: Some(self.weight_decay),
            grad_clip_norm: Some(self.clip_norm),
            skip_over: None,
        }
    }

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

    /// Steps that are taken on each batch of rollouts: one, as published, unless `rl.epochs` says otherwise.
    pub(crate) fn rollout_epochs(&self) -> u64 {
        self.epochs.unwrap_or(1).max(1)
    }
}
