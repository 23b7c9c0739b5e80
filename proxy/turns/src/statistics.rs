//! The counts of a log, which are kept when texts are deleted, those by day for `turns.statistics_retention`. An export
//! has all of them.

use std::collections::BTreeMap;

use metaclaw_chat::AgentId;
use serde::{Deserialize, Serialize};

use crate::{
    counts::{DailyCounts, DayStatistics, Funnel, LessonCounts},
    keys, lessons,
    log::{LogFuture, TurnLog},
    query,
    store::{Bytes, Store, Table},
    txn::Txn,
    values::{self, TxnResult},
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

    /// Returns the counts from a day on ([`crate::day_of`]), the oldest day first, and each day's by agent.
    pub fn statistics(&self, from_day: u32) -> LogFuture<'_, Vec<DayStatistics>> {
        self.read(move |store| statistics(store, from_day))
    }

    /// Returns the counts of each lesson that an agent, or any agent, ever had: by a skill's name, or [`crate::WISH`]
    /// and a wish's id.
    pub fn lesson_counts(
        &self,
        agent: Option<&AgentId>,
    ) -> LogFuture<'_, BTreeMap<String, LessonCounts>> {
        let prefix = agent.map(keys::agent).unwrap_or_default();
        self.read(move |store| lessons::counts(store, &prefix))
    }

    /// Adds counts that the log cannot know, such as tokens of learning and lessons, to the day of `at_ms`.
    pub fn count(&self, agent: &AgentId, at_ms: u64, counts: DailyCounts) -> LogFuture<'_, ()> {
        let agent = agent.clone();
        let add = move |txn: &mut Txn<'_>| Ok(txn.count_day(&agent, at_ms, |day| *day += counts)?);
        self.write(add)
    }

    /// Deletes the counts of all days before `day`. Returns the number of deleted counts (one for each day and agent).
    pub fn forget_statistics_before(&self, day: u32) -> LogFuture<'_, u64> {
        Box::pin(async move {
            let old = move |store: &Store| {
                let before = keys::between(&[], &day.to_be_bytes());
                let keys = store.range(Table::Statistics, before);
                Ok(keys
                    .map(|pair| pair.map(|(key, _)| key))
                    .collect::<Result<Vec<_>, _>>()?)
            };
            let old = self.read(old).await?;
            let n = old.len() as u64;
            if n > 0 {
                let remove = move |txn: &mut Txn<'_>| {
                    for key in &old {
                        txn.days.remove(txn, key)?;
                    }
                    Ok(())
                };
                self.write(remove).await?;
            }
            Ok(n)
        })
    }
}

pub(crate) fn statistics(store: &Store, from_day: u32) -> TxnResult<Vec<DayStatistics>> {
    let all = values::readable_json(store, Table::Statistics, &[])?.into_iter();
    let entry = |(key, counts): (Bytes, DailyCounts)| {
        let (day, agent) = key.split_first_chunk::<4>()?;
        let day = u32::from_be_bytes(*day);
        let agent = keys::read_agent(agent)?;
        Some(DayStatistics { day, agent, counts })
    };
    let entries = all.filter_map(entry);
    Ok(entries.filter(|entry| entry.day >= from_day).collect())
}

fn read(store: &Store) -> TxnResult<LogCounts> {
    let stored = values::readable_json(store, Table::Lessons, &[])?.into_iter();
    let lessons = stored.filter_map(|(key, counts)| {
        let name = keys::read_lesson(&key)?.to_owned();
        Some((keys::read_agent(&key)?, name, counts))
    });
    Ok(LogCounts {
        funnels: query::counts(store)?,
        days: statistics(store, 0)?,
        lessons: lessons.collect(),
    })
}

fn raise(txn: &mut Txn<'_>, counts: &LogCounts) -> TxnResult<()> {
    for (agent, other) in &counts.funnels {
        txn.count(agent, |funnel| funnel.raise(other))?;
    }
    for DayStatistics { day, agent, counts } in &counts.days {
        txn.count_on(agent, *day, |day| day.raise(*counts))?;
    }
    for (agent, name, other) in &counts.lessons {
        lessons::change(txn, agent, name, |lesson| lesson.raise(*other))?;
    }
    Ok(())
}
