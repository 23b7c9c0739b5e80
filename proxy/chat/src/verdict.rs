//! What a judge made of one turn.

use serde::{Deserialize, Serialize};

/// Did the turn do its job?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "i8", try_from = "i8")]
pub enum Score {
    /// -1: it set the task back.
    Bad,
    /// 0: no telling.
    Unclear,
    /// +1: it moved the task on.
    Good,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The score that it gave.
    pub score: Score,
    /// What, said beforehand, would have prevented the problem; one to three sentences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
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
    /// The owner, through the feedback call.
    Owner,
    /// Whoever judged it where it was had, before it was imported.
    Import,
}

/// The judgement of one turn, written once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The majority's score; a tie is [`Score::Unclear`].
    pub score: Score,
    pub by: JudgedBy,
    /// Votes that could be read. Invalid answers are no votes and are not here.
    pub votes: Vec<Vote>,
    /// What, said beforehand, would have helped: the owner's own complaint where there is one, else the first of the
    /// judge's hints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The judge's hints, each once, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judge_hints: Vec<String>,
    /// How much it counts, in 0..=1: 1 where the owner or a tool answered, less where silence did, and as much as the
    /// reward function says where that judged.
    pub weight: f32,
    /// Nothing had followed: it was judged by request and reply alone, when its session had ended. A verdict by what
    /// followed takes its place, should the session go on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_session_end: bool,
}

// === impl Verdict ===

impl Verdict {
    /// A verdict of full weight, with neither votes nor hints.
    pub fn new(score: Score, by: JudgedBy) -> Self {
        Self {
            score,
            by,
            votes: Vec::new(),
            hint: None,
            judge_hints: Vec::new(),
            weight: 1.0,
            at_session_end: false,
        }
    }
}

// === impl Score ===

impl Score {
    /// -1, 0 or +1.
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
