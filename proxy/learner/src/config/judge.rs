//! The settings of judging.

use std::collections::BTreeMap;

use metaclaw_chat::Span;
use metaclaw_reward::{Policy, Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `judge.*`, but for the judge's address and key, which belong to whoever builds its client.
#[derive(Debug, Clone, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct JudgeConfig {
    /// Who judges turns: a judge model (llm), your own reward function at judge.url (http), the policy model without
    /// its adapter (base), only judge.rules (rules), or nobody, so that turns wait (off). Without it, llm if there is a
    /// model to ask, else base if weights are trained and there are no rules, else rules (docs/training/judging.md).
    pub kind: Option<JudgeKind>,
    /// How many votes one verdict takes. Voting stops as soon as the result is decided.
    #[schemars(range(min = 1, max = 15))]
    #[default(3)]
    pub votes: usize,
    /// The share of the votes that must agree: below it, the verdict is 0. 0.6 asks for three of five. With 0, the most
    /// votes decide.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub consensus: f64,
    /// The deadline of one vote.
    #[default(Span::secs(60))]
    pub timeout: Span,
    /// How a model is asked, and how its votes are counted: by our rules, by MetaClaw's or by OpenClaw-RL's.
    pub policy: Policy,
    /// Rules that judge a turn before a model does. The first rule that matches decides.
    #[schemars(
        with = "Vec<BTreeMap<String, String>>",
        extend("shape" = "a list of {on: reply or next, pattern, min_words, max_words, score: -1, 0 or 1}")
    )]
    pub rules: Vec<Rule>,
    /// Judges the last turn of a session as well, by request and reply alone. Its verdict has the weight 0.3.
    #[default(true)]
    pub session_end: bool,
    /// How long a session must be silent to count as ended.
    #[default(Span::mins(30))]
    pub session_idle: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JudgeKind {
    /// A judge model, by majority; rules, where there are some, come first.
    Llm,
    /// The rules of `judge.rules` alone.
    Rules,
    /// The owner's reward function; rules, where there are some, come first.
    Http,
    /// The policy model's own base weights, asked as a judge model is.
    Base,
    /// Nobody: turns wait for a judge.
    Off,
}
