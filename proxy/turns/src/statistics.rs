//! Counts by day and agent, which are kept when texts are deleted: `turns.statistics_retention`.

use std::collections::BTreeMap;

use metaclaw_chat::AgentId;

use crate::{
    daily::{DailyCounts, DayStatistics},
    keys,
    lessons::{self, LessonCounts},
    log::{LogFuture, TurnLog},
    store::{Bytes, Store, Table},
    txn::Txn,
    values::{self, TxnError},
};

// === impl TurnLog ===

impl TurnLog {
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
        let add = move |txn: &mut Txn<'_>| Ok(txn.count_day(&agent, at_ms, |it| *it += counts)?);
        self.write(add)
    }

    /// Deletes the counts of the days before one. Returns how many there were.
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
                        txn.remove(Table::Statistics, key)?;
                    }
                    Ok(())
                };
                self.write(remove).await?;
            }
            Ok(n)
        })
    }
}

pub(crate) fn statistics(store: &Store, from_day: u32) -> Result<Vec<DayStatistics>, TxnError> {
    let all = values::readable_json(store, Table::Statistics, &[])?.into_iter();
    let entry = |(key, counts): (Bytes, DailyCounts)| {
        let (day, agent) = key.split_first_chunk::<4>()?;
        let day = u32::from_be_bytes(*day);
        let agent = keys::read_agent(agent)?;
        Some(DayStatistics { day, agent, counts })
    };
    Ok(all
        .filter_map(entry)
        .filter(|it| it.day >= from_day)
        .collect())
}
