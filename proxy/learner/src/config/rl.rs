//! `rl.*`: how weights are trained, with `rl.method`, the loss for advantages from verdicts (`rl.loss_fn`, `rl.clip_low`,
//! `rl.clip_high`) and `rl.rollouts.*`.

use metaclaw_chat::Span;
use metaclaw_trainer_api::{DEFAULT_ALPHA, DEFAULT_RANK, LossConfig, LossFn, wire::AdamSettings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::method_names::{Methods, Words};
use crate::{
    formulas::RatioClip,
    methods::{Method, Objective, PolicyLoss, TrainingSignal},
    sample::AdvantageForm,
};

/// `rl.*`, but for the training server's address.
#[derive(Debug, Clone, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RlConfig {
    /// The training methods of a step, joined by +: context_distillation (redo for short), opd, and one of binary_rl
    /// (binary), hybrid (combine), grpo and metaclaw (docs/training/README.md).
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
    /// The projections that have an adapter. The last five are those of gated delta nets (Qwen3.5), which also have
    /// adapters where q_proj, k_proj, v_proj and o_proj all have. lm_head is the projection to the logits.
    #[schemars(extend("enum" = TARGETS))]
    // Those that every model has in its layers.
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

const TARGETS: [&str; 13] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    "lm_head",
    "in_proj_qkv",
    "in_proj_z",
    "in_proj_b",
    "in_proj_a",
    "out_proj",
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

    /// Checks the settings that depend on each other.
    ///
    /// # Errors
    /// Returns [`RlConfigError`] with the field, its value and what is allowed.
    pub fn check(&self) -> Result<(), RlConfigError> {
        self.objective()?;
        if self.teacher == Teacher::Current && self.method.has(TrainingSignal::Target) {
            return Err(RlConfigError::Teacher {
                teacher: self.teacher,
                methods: self.method.to_string(),
                allowed: "redo is taught by base; current is for opd and hybrid",
            });
        }
        Ok(())
    }

    /// Returns the settings that the examples of a step depend on.
    ///
    /// # Errors
    /// Returns the errors of [`RlConfig::check`].
    pub(crate) fn objective(&self) -> Result<Objective, RlConfigError> {
        Ok(Objective {
            w_redo: self.w_redo,
            w_opd: self.w_opd,
            w_rl: self.w_rl,
            anchor: self.anchor,
            policy_loss: self.policy_loss()?,
            rollout_loss: self.loss(self.loss_fn.unwrap_or(LossFn::Cispo))?,
            clip: self.surrogate_clip()?,
        })
    }

    fn usual_loss(&self) -> LossFn {
        let method = self.method.learning_from(TrainingSignal::Verdict);
        method.map_or(LossFn::Cispo, Method::usual_loss)
    }

    /// Returns the bounds of the ratio in hybrid and opd; opd always uses the bounds of ppo.
    ///
    /// # Errors
    /// Returns the errors of [`RlConfig::check`].
    fn surrogate_clip(&self) -> Result<RatioClip, RlConfigError> {
        let [low, high] = if self.usual_loss() == LossFn::Ppo {
            self.checked_bounds(LossFn::Ppo, PPO)?
        } else {
            PPO
        };
        Ok(RatioClip { low, high })
    }

    /// Returns the loss for advantages from verdicts.
    ///
    /// # Errors
    /// Returns the errors of [`RlConfig::check`].
    fn policy_loss(&self) -> Result<PolicyLoss, RlConfigError> {
        let usual = self.usual_loss();
        let loss = self.loss_fn.unwrap_or(usual);
        if usual == LossFn::Ppo && loss != usual {
            return Err(RlConfigError::NotHybrids { loss });
        }
        self.loss(loss)
    }

    fn loss(&self, loss: LossFn) -> Result<PolicyLoss, RlConfigError> {
        let config = match loss {
            LossFn::Cispo => self.bounds(loss, CISPO)?,
            LossFn::Ppo => self.bounds(loss, PPO)?,
            LossFn::ImportanceSampling => self.no_bounds(loss)?,
            LossFn::CrossEntropy => {
                let why = "cross_entropy knows no log-probability that a token was sampled at";
                return Err(RlConfigError::Loss { loss, why });
            }
            LossFn::Dro => {
                let why =
                    "the square in dro is not weighted, so that long replies would count more";
                return Err(RlConfigError::Loss { loss, why });
            }
        };
        Ok(PolicyLoss { loss, config })
    }

    fn bounds(&self, loss: LossFn, usual: [f64; 2]) -> Result<LossConfig, RlConfigError> {
        let [low, high] = self.checked_bounds(loss, usual)?;
        let bounds = [("clip_low_threshold", low), ("clip_high_threshold", high)];
        Ok(bounds.map(|(key, value)| (key.to_owned(), value)).into())
    }

    fn checked_bounds(&self, loss: LossFn, usual: [f64; 2]) -> Result<[f64; 2], RlConfigError> {
        let low = self.clip_low.unwrap_or(usual[0]);
        let high = self.clip_high.unwrap_or(usual[1]);
        if !(low >= 0.0 && high > 0.0 && low <= high && high.is_finite()) {
            return Err(RlConfigError::Bounds { low, high, loss });
        }
        Ok([low, high])
    }

    fn no_bounds(&self, loss: LossFn) -> Result<LossConfig, RlConfigError> {
        let mut given = [
            ("rl.clip_low", self.clip_low),
            ("rl.clip_high", self.clip_high),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)));
        match given.next() {
            Some((key, value)) => Err(RlConfigError::Unbounded { key, value, loss }),
            None => Ok(LossConfig::new()),
        }
    }
}

/// The default bounds of the ratio: a token that has become more probable since it was sampled counts at most twice.
/// Without a bound, a token whose log-probability rose from -9 to -0.1 would count 7,300 times. Tinker's own upper
/// bound is 4.
const CISPO: [f64; 2] = [0.0, 2.0];
/// OpenClaw-RL's bounds, given there as distances from 1: 0.2 below and 0.28 above.
const PPO: [f64; 2] = [0.8, 1.28];

/// Settings of `rl.*` that contradict each other.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RlConfigError {
    /// A loss that cannot be used with advantages.
    #[error("rl.loss_fn is {loss}, allowed: cispo, ppo, importance_sampling; {why}")]
    Loss { loss: LossFn, why: &'static str },
    /// OpenClaw-RL's method `hybrid` has one loss.
    #[error(
        "rl.loss_fn is {loss}, and rl.method hybrid is made of ppo: leave rl.loss_fn out, or set it to ppo"
    )]
    NotHybrids { loss: LossFn },
    /// A teacher that a method cannot use.
    #[error("rl.teacher is {teacher:?} with rl.method {methods}: {allowed}")]
    Teacher {
        teacher: Teacher,
        /// The methods that the teacher was set for.
        methods: String,
        allowed: &'static str,
    },
    /// A bound for a loss that has none.
    #[error("{key} is {value}: rl.loss_fn {loss} has no bounds, only cispo and ppo have")]
    Unbounded {
        key: &'static str,
        value: f64,
        loss: LossFn,
    },
    /// A lower bound above the upper one.
    #[error(
        "rl.clip_low is {low} and rl.clip_high {high}, with rl.loss_fn {loss}; allowed: 0 or more, low no more than high, high above 0"
    )]
    Bounds {
        /// The lower bound that would be used.
        low: f64,
        high: f64,
        loss: LossFn,
    },
}

/// `rl.rollouts.*`.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RolloutsConfig {
    /// What is compared in a group of rollouts: outcomes (group), or outcome plus step reward of the turns with the
    /// same number (step). Without it, step for groups with step rewards, else group (docs/training/grpo.md).
    pub advantage: Option<AdvantageForm>,
    /// How many rollouts make up one step that nobody asked for. A step has whole groups.
    #[schemars(range(min = 2))]
    #[default(32)]
    pub batch_size: usize,
    /// The age from which a turn is no longer used, in optimizer steps since the weights that sampled it.
    #[default(4)]
    pub max_lag: u64,
    /// How long the gate waits for rollouts on held-out tasks.
    #[default(Span::mins(10))]
    pub gate_wait: Span,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn loss(rl: Value) -> Result<(LossFn, Vec<f64>), String> {
        let rl: RlConfig = serde_json::from_value(rl).unwrap();
        let loss = rl.policy_loss().map_err(|error| error.to_string())?;
        let mut bounds: Vec<f64> = loss.config.into_values().collect();
        bounds.reverse();
        Ok((loss.loss, bounds))
    }

    #[test]
    fn each_loss_has_bounds_of_its_own_unless_others_are_given() {
        for (rl, expected) in [
            (json!({}), (LossFn::Cispo, vec![0.0, 2.0])),
            (json!({"clip_high": 4}), (LossFn::Cispo, vec![0.0, 4.0])),
            (json!({"loss_fn": "ppo"}), (LossFn::Ppo, vec![0.8, 1.28])),
            (
                json!({"loss_fn": "ppo", "clip_low": 0.5, "clip_high": 1.5}),
                (LossFn::Ppo, vec![0.5, 1.5]),
            ),
            (
                json!({"loss_fn": "importance_sampling"}),
                (LossFn::ImportanceSampling, vec![]),
            ),
            (
                json!({"method": "metaclaw"}),
                (LossFn::ImportanceSampling, vec![]),
            ),
            (
                json!({"method": "metaclaw", "loss_fn": "cispo"}),
                (LossFn::Cispo, vec![0.0, 2.0]),
            ),
            (json!({"method": "hybrid"}), (LossFn::Ppo, vec![0.8, 1.28])),
        ] {
            assert_eq!(loss(rl).unwrap(), expected);
        }
    }

    #[test]
    fn methods_may_be_called_by_the_names_of_other_systems() {
        for (given, known) in [
            ("redo", "context_distillation"),
            ("binary", "binary_rl"),
            ("combine", "hybrid"),
            ("binary+opd", "binary_rl+opd"),
        ] {
            let rl: RlConfig = serde_json::from_value(json!({"method": given})).unwrap();
            assert_eq!(rl.method.to_string(), known, "{given}");
        }
    }

    #[test]
    fn each_method_has_teachers_of_its_own() {
        for (method, teacher, is_fine) in [
            ("redo+opd", "base", true),
            ("hybrid", "current", true),
            ("redo+opd", "current", false),
        ] {
            let rl = json!({"method": method, "teacher": teacher});
            let rl: RlConfig = serde_json::from_value(rl).unwrap();
            assert_eq!(rl.check().is_ok(), is_fine, "{method} {teacher}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused_in_words() {
        for (rl, said) in [
            (
                json!({"clip_low": 3}),
                "rl.clip_low is 3 and rl.clip_high 2, with rl.loss_fn cispo",
            ),
            (json!({"clip_high": 0}), "high above 0"),
            (
                json!({"loss_fn": "importance_sampling", "clip_high": 2}),
                "rl.clip_high is 2: rl.loss_fn importance_sampling has no bounds",
            ),
            (
                json!({"loss_fn": "dro"}),
                "rl.loss_fn is dro, allowed: cispo, ppo, importance_sampling",
            ),
            (json!({"loss_fn": "cross_entropy"}), "allowed: cispo"),
            (
                json!({"method": "hybrid", "loss_fn": "cispo"}),
                "hybrid is made of ppo",
            ),
            (
                json!({"method": "metaclaw", "clip_high": 2}),
                "importance_sampling has no bounds",
            ),
        ] {
            let error = loss(rl.clone()).unwrap_err();
            assert!(error.contains(said), "{rl}: {error}");
        }
    }
}
