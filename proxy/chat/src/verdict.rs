//! A judge's result for one turn.

use serde::{Deserialize, Serialize};

/// Whether the turn did its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "i8", try_from = "i8")]
pub enum Score {
    /// -1: the turn made the task harder or did not help.
    Bad,
    /// 0: it is unclear.
    Unclear,
    /// +1: the turn advanced the task.
    Good,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The score of this vote.
    pub score: Score,
    /// A hint of one to three sentences that, said before the turn, would have prevented the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The model that gave it, where several models vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgedBy {
    Rules,
    /// A judge model, by majority.
    Llm,
    /// The policy model's own base weights, by majority.
    Base,
    /// The owner's reward function, behind an address.
    Http,
    /// The owner, by the feedback call.
    Owner,
    /// The judge of the system from which the turn was imported.
    Import,
    /// The outcome of the turn's rollout, and the reward of its step.
    Rollout,
}

/// The verdict on one turn. It is never changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The majority's score; a tie is [`Score::Unclear`].
    pub score: Score,
    pub by: JudgedBy,
    /// Votes that could be read. Unreadable answers are not votes and are left out.
    pub votes: Vec<Vote>,
    /// A sentence that, said before the turn, would have helped: the owner's own complaint if there is one, else the
    /// first of the judge's hints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The judge's hints, each once, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judge_hints: Vec<String>,
    /// Its weight, in 0..=1: 1 if the owner or a tool reacted, less if nobody did, and the reward function's value if
    /// that judged.
    pub weight: f32,
    /// The reward of a turn of a rollout: the rollout's outcome plus the reward of its step, if one was given. It is in
    /// -2..=2. Only a verdict by [`JudgedBy::Rollout`] has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f32>,
    /// Whether nothing had followed: the turn was judged by request and reply alone when its session had ended. If the
    /// session continues, a verdict by the reaction replaces it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_session_end: bool,
}

// === impl Vote ===

impl Vote {
    /// Makes a vote of the only judge.
    pub fn new(score: Score, hint: Option<String>) -> Self {
        Self {
            score,
            hint,
            model: None,
        }
    }
}

// === impl Verdict ===

impl Verdict {
    /// Makes a verdict of full weight, without votes and hints.
    pub fn new(score: Score, by: JudgedBy) -> Self {
        Self {
            score,
            by,
            votes: Vec::new(),
            hint: None,
            judge_hints: Vec::new(),
            weight: 1.0,
            reward: None,
            at_session_end: false,
        }
    }
}

// === impl Score ===

impl Score {
    /// Returns -1, 0 or +1.
    pub fn value(self) -> f32 {
        f32::from(i8::from(self))
    }
}

impl From<Score> for i8 {
    fn from(score: Score) -> Self {
        match score {
            Score::Bad => -1,
            Score::Unclear => 0,
            Score::Good => 1,
        }
    }
}

impl TryFrom<i8> for Score {
    type Error = String;

    fn try_from(value: i8) -> Result<Self, String> {
        match value {
            -1 => Ok(Self::Bad),
            0 => Ok(Self::Unclear),
            1 => Ok(Self::Good),
            other => Err(format!("score {other} is not allowed: -1, 0 or 1")),
        }
    }
}
