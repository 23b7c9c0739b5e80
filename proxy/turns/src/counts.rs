//! The counts of a whole log, as an export contains them. They are kept when the turns are deleted.

use metaclaw_chat::AgentId;
use serde::{Deserialize, Serialize};

use crate::{
    daily::{DailyCounts, DayStatistics},
    keys,
    lessons::{self, LessonCounts},
    log::{LogFuture, TurnLog},
    query, statistics,
    store::{Store, Table},
    txn::Txn,
    values::{self, TxnError},
    view::Funnel,
};

/// All counts of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCounts {
    funnels: Vec<(AgentId, Funnel)>,
    days: Vec<DayStatistics>,
    lessons: Vec<(AgentId, String, LessonCounts)>,
}

// === impl TurnLog ===

impl TurnLog {
    /// Returns all counts.
    ///
    /// # Errors
    /// Returns the store's error.
    pub fn counts(&self) -> LogFuture<'_, LogCounts> {
        self.read(read)
    }

    /// Raises each count to its value in another log, after that log's turns were restored here. Repeating this does
    /// not change the result.
    ///
    /// # Errors
    /// Returns the store's error.
    pub fn raise_counts(&self, counts: LogCounts) -> LogFuture<'_, ()> {
        self.write(move |txn| raise(txn, &counts))
    }
}

fn read(store: &Store) -> Result<LogCounts, TxnError> {
    let lessons = values::readable_json(store, Table::Lessons, &[])?.into_iter();
    let lessons = lessons.filter_map(|(key, counts)| {
        let name = keys::read_lesson(&key)?.to_owned();
        Some((keys::read_agent(&key)?, name, counts))
    });
    Ok(LogCounts {
        funnels: query::counts(store)?,
        days: statistics::statistics(store, 0)?,
        lessons: lessons.collect(),
    })
}

fn raise(txn: &mut Txn<'_>, counts: &LogCounts) -> Result<(), TxnError> {
    for (agent, other) in &counts.funnels {
        txn.count(agent, |funnel| raise_funnel(funnel, other))?;
    }
    for DayStatistics { day, agent, counts } in &counts.days {
        txn.count_on(agent, *day, |it| raise_day(it, counts))?;
    }
    for (agent, name, other) in &counts.lessons {
        lessons::change(txn, agent, name, |it| raise_lesson(it, other))?;
    }
    Ok(())
}

fn raise_all<const N: usize>(pairs: [(&mut u64, u64); N]) {
    for (count, other) in pairs {
        *count = other.max(*count);
    }
}

/// Adds the counts of an imported log. Its turns that an unfinished training step had taken are left out, because that
/// step does not exist in this log.
fn raise_funnel(it: &mut Funnel, other: &Funnel) {
    raise_all([
        (&mut it.turns, other.turns),
        (&mut it.main, other.main),
        (&mut it.rollouts, other.rollouts),
        (&mut it.complete, other.complete),
        (&mut it.with_ids, other.with_ids),
        (&mut it.judged, other.judged),
        (&mut it.judged_at_session_end, other.judged_at_session_end),
        (&mut it.trained, other.trained),
        (&mut it.held_out, other.held_out),
        (&mut it.forgotten, other.forgotten),
    ]);
    for (why, n) in &other.spent {
        let count = it.spent.entry(why.clone()).or_default();
        *count = (*count).max(*n);
    }
}

fn raise_day(it: &mut DailyCounts, other: &DailyCounts) {
    raise_all([
        (&mut it.turns, other.turns),
        (&mut it.side_turns, other.side_turns),
        (&mut it.good, other.good),
        (&mut it.bad, other.bad),
        (&mut it.unclear, other.unclear),
        (&mut it.tokens_in, other.tokens_in),
        (&mut it.tokens_cached, other.tokens_cached),
        (&mut it.tokens_out, other.tokens_out),
        (&mut it.learning_tokens, other.learning_tokens),
        (&mut it.lessons, other.lessons),
        (&mut it.breaks.own, other.breaks.own),
        (&mut it.breaks.client, other.breaks.client),
        (&mut it.breaks.upstream, other.breaks.upstream),
    ]);
}

fn raise_lesson(it: &mut LessonCounts, other: &LessonCounts) {
    raise_all([
        (&mut it.injected, other.injected),
        (&mut it.good, other.good),
        (&mut it.bad, other.bad),
    ]);
}
