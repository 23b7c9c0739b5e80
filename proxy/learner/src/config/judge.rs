//! The settings of judging.

use metaclaw_chat::Span;
use metaclaw_reward::{Policy, Rule};
use serde::{Deserialize, Serialize};

/// `judge.*`, but for the judge's address and key, which belong to whoever builds its client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JudgeConfig {
    /// Who judges; none: a model where there is one to ask, else rules.
    pub kind: Option<JudgeKind>,
    /// Votes for one verdict, 1 to 15; asking stops when they have decided.
    pub votes: usize,
    /// The deadline of one vote.
    pub timeout: Span,
    /// How a model is asked, and its votes are read and counted.
    pub policy: Policy,
    /// Rules: the first that fits a turn decides.
    pub rules: Vec<Rule>,
    /// Whether the last turn of a session is judged too, by request and reply alone.
    pub session_end: bool,
    /// A session has ended when nobody has spoken in it for so long.
    pub session_idle: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgeKind {
    /// A judge model, by majority; rules, where there are some, come first.
    Llm,
    Rules,
    /// The owner's reward function; rules, where there are some, come first.
    Http,
    /// The policy model's own base weights, asked as a judge model is.
    Base,
    /// Nobody: turns wait for a judge.
    Off,
}

// === impl JudgeConfig ===

impl Default for JudgeConfig {
    fn default() -> Self {
        Self {
            kind: None,
            votes: 3,
            timeout: Span::secs(60),
            policy: Policy::default(),
            rules: Vec::new(),
            session_end: true,
            session_idle: Span::mins(30),
        }
    }
}
