//! The settings of this room: `mode`, `agents.<id>.mode`, `judge.*`, `rl.*`, `gate.*`.

mod judge;

use std::{collections::BTreeMap, fmt};

use metaclaw_chat::{AgentId, Span};
use metaclaw_trainer_api::{DEFAULT_ALPHA, DEFAULT_RANK};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use self::judge::{JudgeConfig, JudgeKind};

/// Everything that the learner reads of the configuration: deserialised from its root.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LearnerConfig {
    /// Whether the weights learn, and when.
    pub mode: Mode,
    /// What is different for single agents.
    pub agents: BTreeMap<AgentId, AgentConfig>,
    /// How turns are judged.
    pub judge: JudgeConfig,
    /// How weights are trained.
    pub rl: RlConfig,
    /// What they have to pass before they serve.
    pub gate: GateConfig,
}

/// `agents.<id>`, as far as it is this room's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentConfig {
    /// Its mode; without one, that of all.
    pub mode: Option<Mode>,
}

/// When to train.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// When a batch is ready and the owner is away; where no gate tests what would serve ([`GateConfig::enabled`]), only when
    /// asked to.
    #[default]
    #[serde(alias = "madmax")]
    Auto,
    /// When a batch is ready.
    Rl,
    /// Never.
    SkillsOnly,
}

/// `rl.*`, but for the training server's address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RlConfig {
    /// What a step is made of.
    pub method: Methods,
    /// Weight of redo.
    pub w_redo: f32,
    /// Weight of binary_rl.
    pub w_rl: f32,
    /// Step size; none: by the model's size, 5e-4 to 200M parameters, 1e-4 from 1B.
    pub learning_rate: Option<f64>,
    /// AdamW: decay of the first moment.
    pub beta1: f64,
    /// AdamW: decay of the second moment.
    pub beta2: f64,
    /// AdamW: added to the root of the second moment.
    pub eps: f64,
    /// AdamW: decoupled decay.
    pub weight_decay: f64,
    /// Bound of the global gradient norm; 0 is off.
    pub clip_norm: f64,
    /// Steps until the full rate; 0 is the full rate at once.
    pub warmup_steps: u64,
    /// LoRA rank.
    pub lora_rank: u32,
    /// LoRA alpha, whatever the rank.
    pub lora_alpha: f64,
    /// The projections that are adapted.
    pub targets: Words,
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
    /// Its replies to one turn, of which the best is taught, 1 to 64.
    pub draws: u32,
    /// How relevant a reply must be to be taught: a share of the mean of the teacher's replies; 0 asks for nothing.
    pub min_relevance: f64,
    /// What is asked of the weights at each id of a reply that is taught.
    pub target: TargetForm,
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

/// `gate.*`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GateConfig {
    /// Whether an adapter is tested before it serves.
    pub enabled: bool,
    /// How relevant its replies must be, as a share of the reference's relevance, 0 to 1. Where the reference is denser than the
    /// plain base model, three quarters of the base's are enough.
    pub min_relevance: f64,
}

/// Words joined by `+`, or a list of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words(pub Vec<String>);

/// `rl.method`: which methods make up a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Methods {
    /// cross_entropy on the teacher's reply, after the turn's own prompt.
    pub redo: bool,
    /// importance_sampling on the verdict.
    pub binary_rl: bool,
    /// Methods that are known and not built yet.
    pub later: Vec<String>,
}

/// Methods that have a name and no code yet.
const LATER: [&str; 4] = ["opd", "hybrid", "grpo", "metaclaw"];

// === impl LearnerConfig ===

impl LearnerConfig {
    /// An agent's mode.
    pub(crate) fn mode_of(&self, agent: &AgentId) -> Mode {
        let own = self.agents.get(agent).and_then(|own| own.mode);
        own.unwrap_or(self.mode)
    }

    /// Whether the weights of any agent are to learn.
    pub fn learns(&self) -> bool {
        let own = self.agents.values().filter_map(|own| own.mode);
        own.chain([self.mode]).any(|mode| mode != Mode::SkillsOnly)
    }
}

// === impl RlConfig ===

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
            w_rl: 0.3,
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
            batch_size: 4,
            max_wait: Span::mins(8 * 60),
            max_age: Span::mins(14 * 24 * 60),
            reuse: 4,
            consolidate: true,
            draws: 6,
            min_relevance: 0.8,
            target: TargetForm::OneHot,
        }
    }
}

// === impl GateConfig ===

impl Default for GateConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            min_relevance: 0.8,
        }
    }
}

// === impl Words ===

impl Serialize for Words {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.join("+"))
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum TextOrList {
            Text(String),
            List(Vec<String>),
        }
        let words = match TextOrList::deserialize(deserializer)? {
            TextOrList::Text(text) => text.split('+').map(|word| word.trim().to_owned()).collect(),
            TextOrList::List(words) => words,
        };
        Ok(Self(words))
    }
}

// === impl Methods ===

impl Methods {
    fn words(&self) -> Words {
        let built = [(self.redo, "redo"), (self.binary_rl, "binary_rl")];
        let built = built
            .into_iter()
            .filter(|(on, _)| *on)
            .map(|(_, name)| name.to_owned());
        Words(built.chain(self.later.iter().cloned()).collect())
    }
}

impl Default for Methods {
    fn default() -> Self {
        Self {
            redo: true,
            binary_rl: true,
            later: Vec::new(),
        }
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().0.join("+"))
    }
}

impl Serialize for Methods {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.words().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Methods {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut methods = Self {
            redo: false,
            binary_rl: false,
            later: Vec::new(),
        };
        for word in Words::deserialize(deserializer)?.0 {
            match word.as_str() {
                "redo" => methods.redo = true,
                "binary_rl" => methods.binary_rl = true,
                later if LATER.contains(&later) => methods.later.push(word),
                _ => {
                    return Err(de::Error::custom(format!(
                        "rl.method {word:?} is not known: redo, binary_rl, {} joined by +",
                        LATER.join(", ")
                    )));
                }
            }
        }
        if !methods.redo && !methods.binary_rl {
            return Err(de::Error::custom(format!(
                "rl.method {methods} is not built yet: give redo, binary_rl or both"
            )));
        }
        Ok(methods)
    }
}

#[cfg(test)]
mod tests;
