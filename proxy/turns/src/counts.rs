//! Counts of an agent's turns: those of one day, and how many reached each stage. They contain no text.

use std::{collections::BTreeMap, ops::AddAssign};

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
    /// Turns with the owner that follow another turn of their conversation: the owner's words may be about its reply.
    #[serde(skip_serializing_if = "is_zero")]
    pub followed: u64,
    /// Replies with words that began a conversation.
    #[serde(skip_serializing_if = "is_zero")]
    pub first_replies: u64,
    /// The words of those.
    #[serde(skip_serializing_if = "is_zero")]
    pub first_words: u64,
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

/// Main turns that had a lesson in their prompt, and their verdicts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LessonCounts {
    /// Turns with the lesson.
    pub injected: u64,
    /// Turns with the lesson judged +1.
    pub good: u64,
    /// Turns with the lesson judged -1.
    pub bad: u64,
    /// Turns of the same agents without the lesson judged +1.
    pub good_without: u64,
    /// Turns of the same agents without the lesson judged -1.
    pub bad_without: u64,
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

// === impl LessonCounts ===

impl LessonCounts {
    pub(crate) fn raise(&mut self, mut other: Self) {
        raise_all(self.stored(), other.stored());
    }

    /// The counts of the turns without the lesson are computed.
    fn stored(&mut self) -> [&mut u64; 3] {
        [&mut self.injected, &mut self.good, &mut self.bad]
    }
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

impl DailyCounts {
    pub(crate) fn raise(&mut self, mut other: Self) {
        raise_all(self.all(), other.all());
    }

    fn all(&mut self) -> [&mut u64; 17] {
        [
            &mut self.turns,
            &mut self.side_turns,
            &mut self.rollout_turns,
            &mut self.good,
            &mut self.bad,
            &mut self.unclear,
            &mut self.followed,
            &mut self.first_replies,
            &mut self.first_words,
            &mut self.tokens_in,
            &mut self.tokens_cached,
            &mut self.tokens_out,
            &mut self.learning_tokens,
            &mut self.lessons,
            &mut self.breaks.own,
            &mut self.breaks.client,
            &mut self.breaks.upstream,
        ]
    }
}

impl AddAssign for DailyCounts {
    fn add_assign(&mut self, mut other: Self) {
        add_all(self.all(), other.all());
    }
}

/// How many turns reached each stage, and why the others did not.
///
/// `turns`, `main`, `rollouts`, `complete`, `with_ids` and `judged` count every turn that ever reached this stage. `taken`,
/// `trained`, `held_out` and `spent` count turns that are in this state now, or were when they were deleted. The counts
/// are kept when the text is deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Funnel {
    pub turns: u64,
    /// Main turns among those.
    pub main: u64,
    /// Turns of rollouts among those.
    #[serde(skip_serializing_if = "is_zero")]
    pub rollouts: u64,
    /// Turns of both kinds with a complete reply.
    pub complete: u64,
    /// Turns whose token ids are known.
    pub with_ids: u64,
    /// Turns with a verdict.
    pub judged: u64,
    /// Turns among those whose valid verdict was given at the end of their session, by request and reply alone.
    #[serde(skip_serializing_if = "is_zero")]
    pub judged_at_session_end: u64,
    /// Turns in an open step.
    pub taken: u64,
    /// Turns in a finished step.
    pub trained: u64,
    /// Turns held out for measuring.
    pub held_out: u64,
    /// Excluded turns by reason.
    pub spent: BTreeMap<String, u64>,
    /// Turns whose text was deleted.
    pub forgotten: u64,
}

// === impl Funnel ===

impl Funnel {
    /// Returns the count of a kind of turn, or `None` for side turns, which are counted among all turns alone.
    pub(crate) fn of_kind(&mut self, kind: TurnKind) -> Option<&mut u64> {
        match kind {
            TurnKind::Main => Some(&mut self.main),
            TurnKind::Rollout => Some(&mut self.rollouts),
            TurnKind::Side => None,
        }
    }

    /// Adds another agent's counts.
    pub fn add(&mut self, other: &Self) {
        add_all(self.reached(), other.clone().reached());
        self.taken += other.taken;
        for (why, n) in &other.spent {
            *self.spent.entry(why.clone()).or_default() += n;
        }
    }

    /// Raises each count to that of another log, but for the turns that an unfinished training step has taken: there is
    /// no such step in this log.
    pub(crate) fn raise(&mut self, other: &Self) {
        raise_all(self.reached(), other.clone().reached());
        for (why, n) in &other.spent {
            let count = self.spent.entry(why.clone()).or_default();
            *count = (*count).max(*n);
        }
    }

    fn reached(&mut self) -> [&mut u64; 10] {
        [
            &mut self.turns,
            &mut self.main,
            &mut self.rollouts,
            &mut self.complete,
            &mut self.with_ids,
            &mut self.judged,
            &mut self.judged_at_session_end,
            &mut self.trained,
            &mut self.held_out,
            &mut self.forgotten,
        ]
    }
}

fn add_all<const N: usize>(counts: [&mut u64; N], others: [&mut u64; N]) {
    counts
        .into_iter()
        .zip(others)
        .for_each(|(count, other)| *count += *other);
}

pub(crate) fn raise_all<const N: usize>(counts: [&mut u64; N], others: [&mut u64; N]) {
    counts
        .into_iter()
        .zip(others)
        .for_each(|(count, other)| *count = (*count).max(*other));
}
