//! The counts of one agent on one day. They contain no text.

use std::ops::AddAssign;

use metaclaw_chat::{AgentId, Score};
use serde::{Deserialize, Serialize};

use crate::turn::{BreakCause, TurnKind};

const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// The counts of one agent on one day, or the sum of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DailyCounts {
    /// Turns with the owner.
    pub turns: u64,
    /// The client's internal requests.
    pub side_turns: u64,
    /// Turns of rollouts. Their verdicts are not among the counts below.
    #[serde(skip_serializing_if = "is_zero")]
    pub rollout_turns: u64,
    /// Turns of that day with the valid verdict +1.
    pub good: u64,
    /// Turns of that day with the valid verdict -1.
    pub bad: u64,
    /// Turns of that day with the valid verdict 0.
    pub unclear: u64,
    /// Tokens of prompts, cached ones included, as the upstreams count them.
    pub tokens_in: u64,
    /// Cached tokens among these, from a provider's cache.
    pub tokens_cached: u64,
    pub tokens_out: u64,
    /// Tokens that judge, evolver and embeddings used.
    pub learning_tokens: u64,
    /// Lessons that came into force.
    pub lessons: u64,
    /// Prompts that a provider's cache could not serve as far as it might have.
    #[serde(skip_serializing_if = "BreakCounts::is_none")]
    pub breaks: BreakCounts,
}

/// The number of prompts that broke with an earlier prompt of their session, by who changed it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BreakCounts {
    /// `MetaClaw` itself changed it: a lesson, or another adapter.
    pub own: u64,
    /// The client changed it: its tools, its system prompt, or an earlier message.
    pub client: u64,
    /// Another upstream or another model answered.
    pub upstream: u64,
}

/// The counts of one agent on one day, with both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayStatistics {
    /// Days since 1970-01-01, in UTC.
    pub day: u32,
    /// The agent of these counts.
    pub agent: AgentId,
    #[serde(flatten)]
    pub counts: DailyCounts,
}

/// Returns the day of a time in Unix milliseconds, as days since 1970-01-01 in UTC.
pub fn day_of(ms: u64) -> u32 {
    u32::try_from(ms / DAY_MS).unwrap_or(u32::MAX)
}

/// The counts are written with every turn, so rare ones are left out when they are 0.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

// === impl BreakCounts ===

impl BreakCounts {
    /// Counts one prompt.
    pub fn add(&mut self, cause: BreakCause) {
        match cause {
            BreakCause::Lesson | BreakCause::Adapter => self.own += 1,
            BreakCause::Tools | BreakCause::System | BreakCause::History => self.client += 1,
            BreakCause::Upstream => self.upstream += 1,
        }
    }

    pub fn n(&self) -> u64 {
        self.own + self.client + self.upstream
    }

    /// The counts are written with every turn, so they are left out when all are 0.
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl From<BreakCause> for BreakCounts {
    fn from(cause: BreakCause) -> Self {
        let mut counts = Self::default();
        counts.add(cause);
        counts
    }
}

impl AddAssign for BreakCounts {
    fn add_assign(&mut self, other: Self) {
        self.own += other.own;
        self.client += other.client;
        self.upstream += other.upstream;
    }
}

// === impl DailyCounts ===

impl DailyCounts {
    pub(crate) fn of_kind(&mut self, kind: TurnKind) -> &mut u64 {
        match kind {
            TurnKind::Main => &mut self.turns,
            TurnKind::Side => &mut self.side_turns,
            TurnKind::Rollout => &mut self.rollout_turns,
        }
    }

    pub(crate) fn with_score(&mut self, score: Score) -> &mut u64 {
        match score {
            Score::Good => &mut self.good,
            Score::Bad => &mut self.bad,
            Score::Unclear => &mut self.unclear,
        }
    }
}

impl AddAssign for DailyCounts {
    fn add_assign(&mut self, other: Self) {
        self.turns += other.turns;
        self.side_turns += other.side_turns;
        self.rollout_turns += other.rollout_turns;
        self.good += other.good;
        self.bad += other.bad;
        self.unclear += other.unclear;
        self.tokens_in += other.tokens_in;
        self.tokens_cached += other.tokens_cached;
        self.tokens_out += other.tokens_out;
        self.learning_tokens += other.learning_tokens;
        self.lessons += other.lessons;
        self.breaks += other.breaks;
    }
}
