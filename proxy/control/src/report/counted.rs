//! Counts by day of what is in no existing turn: turns with deleted texts, and the cost of learning.

use std::collections::BTreeMap;

use jiff::{civil::Date, tz::TimeZone};
use metaclaw_chat::{AgentId, Score};
use metaclaw_turns::{
    BreakCounts, DailyCounts, DayStatistics, TurnKind, TurnSummary, day_of as utc_day,
};

use super::days::day_of;

const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// The log's counts, by day of UTC and agent, minus those of existing turns.
#[derive(Debug)]
pub(super) struct CountedDays(BTreeMap<(u32, AgentId), DailyCounts>);

// === impl CountedDays ===

impl CountedDays {
    pub(super) fn new(statistics: Vec<DayStatistics>) -> Self {
        let entry = |it: DayStatistics| ((it.day, it.agent), it.counts);
        Self(statistics.into_iter().map(entry).collect())
    }

    /// Subtracts an existing turn, which the report reads itself.
    pub(super) fn is_there(&mut self, turn: &TurnSummary) {
        let key = (utc_day(turn.ended_ms), turn.agent.clone());
        let Some(counts) = self.0.get_mut(&key) else {
            return;
        };
        let of_kind = match turn.kind {
            TurnKind::Main => &mut counts.turns,
            TurnKind::Side => &mut counts.side_turns,
            TurnKind::Rollout => &mut counts.rollout_turns,
        };
        less(of_kind, 1);
        // The verdicts of rollouts are not in the counts of days.
        let score = turn.score.filter(|_| turn.kind != TurnKind::Rollout);
        match score {
            Some(Score::Good) => less(&mut counts.good, 1),
            Some(Score::Bad) => less(&mut counts.bad, 1),
            Some(Score::Unclear) => less(&mut counts.unclear, 1),
            None => {}
        }
        let usage = turn.usage.unwrap_or_default();
        less(&mut counts.tokens_in, usage.prompt_tokens);
        less(&mut counts.tokens_cached, usage.cached_tokens);
        less(&mut counts.tokens_out, usage.completion_tokens);
        counts
            .breaks
            .less(turn.broken.map(BreakCounts::from).unwrap_or_default());
    }

    /// Returns the rest by the day of UTC, as if it were a day of the owner's clock, because nothing more exact is
    /// known.
    pub(super) fn left(self) -> impl Iterator<Item = (Date, AgentId, DailyCounts)> {
        let date = |day: u32| day_of(u64::from(day) * DAY_MS, &TimeZone::UTC);
        let left = self.0.into_iter();
        left.map(move |((day, agent), counts)| (date(day), agent, counts))
    }
}

fn less(count: &mut u64, n: u64) {
    *count = count.saturating_sub(n);
}
