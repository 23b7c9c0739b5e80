//! The figures of a period, from the turn log. The report, the curves, the status and the page take them from here, so
//! that they all show the same numbers.
//!
//! The log counts by agent and day in UTC, and keeps these counts when it deletes texts: `CountedDays`. It does not
//! count everything. The other figures cover only turns that still exist: `ExistingTurns`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use metaclaw_chat::{AgentId, TurnId};
use metaclaw_turns::{
    BreakCounts, BrokenPrompt, DailyCounts, DayStatistics, LogError, StreamEnd, TurnFilter,
    TurnKind, TurnLog, TurnState, TurnSummary, day_of,
};
use serde::{Deserialize, Serialize};

use self::verdicts::followed;
pub(crate) use self::verdicts::{COMPLAINTS_IN, verdicts};
pub use self::verdicts::{JudgingFigures, Verdicts, effect_line};
use crate::costs::{self, CostRow};
pub use crate::shares::Share;

mod verdicts;

const DAY_MS: u64 = 24 * 3_600 * 1_000;
/// The number of turns that are read at a time, so that new turns do not wait long.
const PAGE: usize = 100;
const SHOWN_BREAKS: usize = 20;

/// Consecutive days in UTC, including the first and the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    pub first: Date,
    pub last: Date,
}

/// Tokens, as the upstreams counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatTokens {
    pub prompt: u64,
    /// The prompt's tokens that came from the provider's cache.
    pub cached: u64,
    pub completion: u64,
    /// Replies whose upstream reported no token counts. Only turns that still exist are counted.
    pub n_uncounted: u64,
}

/// Prompts that broke with an earlier prompt of their session, so that a provider's cache served less of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixReport {
    /// How many there were, by who changed the prompt.
    pub counts: BreakCounts,
    /// The latest of them, the newest first.
    pub latest: Vec<BrokenPrompt>,
}

/// The results of an upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamDay {
    pub turns: u64,
    /// Incomplete replies, by reason.
    pub errors: BTreeMap<String, u64>,
}

#[derive(Debug)]
pub(crate) struct CountedDays(Vec<DayStatistics>);

#[derive(Debug, Default)]
pub(crate) struct ExistingTurns {
    pub(crate) n: u64,
    pub(crate) sessions: BTreeSet<u64>,
    pub(crate) n_hinted: u64,
    /// Complete replies whose upstream reported no token counts.
    pub(crate) n_uncounted: u64,
    pub(crate) unused: BTreeMap<String, u64>,
    pub(crate) upstreams: BTreeMap<String, UpstreamDay>,
    pub(crate) skills: BTreeMap<String, u64>,
    pub(crate) broken: Vec<TurnId>,
    pub(crate) costs: Vec<CostRow>,
    pub(crate) added_chars: u64,
}

/// Returns the day in UTC of a time in Unix milliseconds.
pub fn date_of(at_ms: u64) -> Date {
    let at_ms = i64::try_from(at_ms).unwrap_or(i64::MAX);
    let at = Timestamp::from_millisecond(at_ms).unwrap_or(Timestamp::MAX);
    at.to_zoned(TimeZone::UTC).date()
}

/// Returns the beginning of a day in Unix milliseconds, or 0 for a day before 1970.
pub(crate) fn begin_ms(day: Date) -> u64 {
    let begin = day.to_zoned(TimeZone::UTC);
    let begin_ms = begin.map_or(0, |begin| begin.timestamp().as_millisecond());
    u64::try_from(begin_ms).unwrap_or_default()
}

// Each of the next functions returns one figure from daily counts.

/// Returns the number of turns, including those of rollouts and the client's own requests.
pub fn n_turns(counts: &DailyCounts) -> u64 {
    counts.turns + counts.side_turns + counts.rollout_turns
}

/// Returns the tokens of the chat.
pub fn chat_tokens(counts: &DailyCounts) -> ChatTokens {
    ChatTokens {
        prompt: counts.tokens_in,
        cached: counts.tokens_cached,
        completion: counts.tokens_out,
        n_uncounted: 0,
    }
}

/// Separates the thousands of a number's digits: `12,345`.
pub fn grouped(digits: &str, separator: char) -> String {
    let mut text = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(separator);
        }
        text.push(digit);
    }
    text
}

// === impl Period ===

impl Period {
    /// Returns the `n` days that end with `last`; at least one.
    pub fn until(last: Date, n: u32) -> Self {
        let before = i64::from(n.saturating_sub(1));
        Self {
            first: last.saturating_sub(before.days()),
            last,
        }
    }

    pub(crate) fn days(self) -> impl Iterator<Item = Date> {
        let days = self.first.series(1.day());
        days.take_while(move |day| *day <= self.last)
    }

    pub(crate) fn has(self, at_ms: u64) -> bool {
        (self.first..=self.last).contains(&date_of(at_ms))
    }
}

// === impl ChatTokens ===

impl ChatTokens {
    /// Returns the share of prompt tokens that the provider's cache served.
    pub fn cache_share(&self) -> Share {
        Share {
            n: self.cached,
            of: self.prompt,
        }
    }
}

// === impl PrefixReport ===

impl PrefixReport {
    /// Returns how many prompts broke and by whom, or `None` if none did.
    pub fn counts_line(&self) -> Option<String> {
        let by: Vec<String> = [
            (self.counts.own, "by a lesson or an adapter"),
            (self.counts.client, "by the agent"),
            (self.counts.upstream, "by another upstream or model"),
        ]
        .into_iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, whom)| format!("{n} {whom}"))
        .collect();
        let times = match self.counts.n() {
            0 => return None,
            1 => "once".to_owned(),
            n => format!("{n} times"),
        };
        Some(format!(
            "a change early in the prompt cost the cache {times}: {}",
            by.join(", ")
        ))
    }
}

/// Returns a broken prompt on one line, without the turn and the time.
pub fn broken_line(broken: &BrokenPrompt) -> String {
    let (agent, what) = (&broken.agent, &broken.what);
    let words = match (broken.before.as_str(), broken.now.as_str()) {
        ("", "") => String::new(),
        ("", now) => format!(": \"{now}\""),
        (before, "") => format!(": \"{before}\" is gone"),
        (before, now) => format!(": \"{before}\" became \"{now}\""),
    };
    format!("{agent}: {what}{words}")
}

// === impl CountedDays ===

impl CountedDays {
    pub(crate) async fn read(
        log: &TurnLog,
        period: Period,
        agent: Option<&AgentId>,
    ) -> Result<Self, LogError> {
        let mut counted = log.statistics(day_of(begin_ms(period.first))).await?;
        for one in &mut counted {
            one.counts.followed = followed(&one.counts);
        }
        counted.retain(|it| {
            period.has(u64::from(it.day) * DAY_MS) && agent.is_none_or(|wanted| *wanted == it.agent)
        });
        Ok(Self(counted))
    }

    pub(crate) fn by_day(&self) -> BTreeMap<Date, DailyCounts> {
        let mut days = BTreeMap::new();
        for DayStatistics { day, counts, .. } in &self.0 {
            let day = date_of(u64::from(*day) * DAY_MS);
            *days.entry(day).or_insert_with(DailyCounts::default) += *counts;
        }
        days
    }

    pub(crate) fn sum(&self) -> DailyCounts {
        let mut sum = DailyCounts::default();
        self.0.iter().for_each(|one| sum += one.counts);
        sum
    }

    pub(crate) fn turns_by_agent(&self) -> BTreeMap<String, u64> {
        let mut agents = BTreeMap::new();
        for DayStatistics { agent, counts, .. } in &self.0 {
            let n = n_turns(counts);
            if n > 0 {
                *agents.entry(agent.to_string()).or_default() += n;
            }
        }
        agents
    }
}

// === impl ExistingTurns ===

impl ExistingTurns {
    /// Reads the turns that ended in a period. The log lists turns in the order in which they ended.
    pub(crate) async fn read(log: &TurnLog, period: Period) -> Result<Self, LogError> {
        let mut existing = Self::default();
        let mut filter = TurnFilter {
            limit: PAGE,
            ..TurnFilter::default()
        };
        loop {
            let turns = log.list(filter.clone()).await?;
            let within = turns.iter().filter(|turn| period.has(turn.ended_ms));
            within.for_each(|turn| existing.add(turn));
            // If the clock was set back for a moment, the search ends only when all turns of a page are older.
            if turns
                .iter()
                .all(|turn| date_of(turn.ended_ms) < period.first)
            {
                return Ok(existing);
            }
            filter.before = turns.last().map(|turn| turn.id);
        }
    }

    fn add(&mut self, turn: &TurnSummary) {
        self.n += 1;
        self.added_chars += turn.added_chars;
        costs::add(&mut self.costs, date_of(turn.ended_ms), turn);
        self.sessions.insert(turn.id.session);
        self.n_hinted += u64::from(turn.is_hinted);
        let upstream = self.upstreams.entry(turn.upstream.clone()).or_default();
        upstream.turns += 1;
        match failure(turn.end) {
            Some(why) => *upstream.errors.entry(why).or_default() += 1,
            None => self.n_uncounted += u64::from(turn.usage.is_none()),
        }
        if let Some(why) = unused(turn) {
            *self.unused.entry(why).or_default() += 1;
        }
        if turn.broken.is_some() && self.broken.len() < SHOWN_BREAKS {
            self.broken.push(turn.id);
        }
        for name in &turn.skills {
            *self.skills.entry(name.clone()).or_default() += 1;
        }
    }
}

fn failure(end: StreamEnd) -> Option<String> {
    Some(match end {
        StreamEnd::Complete => return None,
        StreamEnd::Cut => "the upstream's connection broke".to_owned(),
        StreamEnd::ClientGone => "the agent hung up".to_owned(),
        StreamEnd::UpstreamError { status: 200 } => "an error in the reply's stream".to_owned(),
        StreamEnd::UpstreamError { status } => format!("answered with error {status}"),
        StreamEnd::Overflowed => "too large to be kept".to_owned(),
    })
}

/// Returns why nothing is learned from a turn, or `None` if something was learned or still may be.
fn unused(turn: &TurnSummary) -> Option<String> {
    match (turn.kind, &failure(turn.end), &turn.state) {
        (TurnKind::Side, ..) => Some("errands of the client's own".to_owned()),
        (_, Some(why), _) | (_, _, TurnState::Spent { why }) => Some(why.clone()),
        (_, _, TurnState::HeldOut) => Some("kept for measuring".to_owned()),
        (TurnKind::Main | TurnKind::Rollout, None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn a_period_is_days_of_utc_that_end_with_the_last() {
        let last = date(2026, 3, 1);
        let days = |n| Period::until(last, n).days().collect::<Vec<_>>();
        assert_eq!(days(2), [date(2026, 2, 28), last]);
        assert_eq!(days(1), [last]);
        assert_eq!(days(0), [last]);
        assert_eq!(days(400).len(), 400);
        let begin = begin_ms(last);
        let period = Period::until(last, 1);
        let within = [begin - 1, begin, begin + DAY_MS - 1, begin + DAY_MS];
        assert_eq!(
            within.map(|at_ms| period.has(at_ms)),
            [false, true, true, false]
        );
        assert_eq!(date_of(u64::MAX).year(), 9999);
    }

    #[test]
    fn numbers_are_read_by_their_thousands() {
        let shown = ["0", "999", "1000", "1234567"].map(|digits| grouped(digits, ','));
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
