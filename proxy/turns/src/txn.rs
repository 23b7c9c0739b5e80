//! Several operations in one transaction of the store.
//!
//! Each one sees the stored data and what earlier ones wrote, except for counts, which are written at the end. It first
//! decides and then writes, so that an operation that refuses leaves nothing behind.

use std::{
    cell::RefCell,
    collections::{HashMap, hash_map::Entry},
};

use metaclaw_chat::{AgentId, TurnId};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    counts::{DailyCounts, Funnel, LessonCounts, day_of},
    journal::{self, JournalEntry},
    keys,
    mask::Mask,
    session::SessionCache,
    store::{Bytes, StoreResult, StoreSource, StoreTxn, Table},
    turn::BreakCause,
    values,
};

#[derive(derive_more::Deref)]
pub(crate) struct Txn<'a> {
    #[deref(forward)]
    store: &'a StoreTxn<'a>,
    pub(crate) cache: &'a mut SessionCache,
    pub(crate) mask: &'a Mask,
    pub(crate) appended: Vec<JournalEntry>,
    pub(crate) broken: Vec<(TurnId, BreakCause)>,
    /// Counts that were changed. They are written once, at the end, because most turns change the same ones.
    pub(crate) funnels: ChangedCounts<Funnel>,
    pub(crate) days: ChangedCounts<DailyCounts>,
    pub(crate) lessons: ChangedCounts<LessonCounts>,
}

/// The counts of one table that a transaction changed, by key.
#[derive(Debug)]
pub(crate) struct ChangedCounts<T> {
    table: Table,
    by_key: RefCell<HashMap<Vec<u8>, T>>,
}

// === impl Txn ===

impl<'a> Txn<'a> {
    pub(crate) fn new(
        store: &'a StoreTxn<'a>,
        cache: &'a mut SessionCache,
        mask: &'a Mask,
    ) -> Self {
        Self {
            store,
            cache,
            mask,
            appended: Vec::new(),
            broken: Vec::new(),
            funnels: ChangedCounts::of(Table::Counts),
            days: ChangedCounts::of(Table::Statistics),
            lessons: ChangedCounts::of(Table::Lessons),
        }
    }

    pub(crate) fn count(
        &self,
        agent: &AgentId,
        change: impl FnOnce(&mut Funnel),
    ) -> StoreResult<()> {
        self.funnels
            .change(self, agent, &keys::agent(agent), change)
    }

    pub(crate) fn count_day(
        &self,
        agent: &AgentId,
        at_ms: u64,
        change: impl FnOnce(&mut DailyCounts),
    ) -> StoreResult<()> {
        self.count_on(agent, day_of(at_ms), change)
    }

    pub(crate) fn count_on(
        &self,
        agent: &AgentId,
        day: u32,
        change: impl FnOnce(&mut DailyCounts),
    ) -> StoreResult<()> {
        let key = keys::day(day, agent);
        self.days.change(self, agent, &key, change)
    }

    pub(crate) fn finish(self, number: u64) -> StoreResult<Vec<(TurnId, BreakCause)>> {
        self.funnels.put(self.store)?;
        self.days.put(self.store)?;
        self.lessons.put(self.store)?;
        journal::put(self.store, number, &self.appended)?;
        Ok(self.broken)
    }
}

// === impl ChangedCounts ===

impl<T: Default + Serialize + DeserializeOwned> ChangedCounts<T> {
    fn of(table: Table) -> Self {
        let by_key = RefCell::default();
        Self { table, by_key }
    }

    pub(crate) fn change(
        &self,
        store: &StoreTxn<'_>,
        agent: &AgentId,
        key: &[u8],
        change: impl FnOnce(&mut T),
    ) -> StoreResult<()> {
        let mut by_key = self.by_key.borrow_mut();
        let counts = match by_key.entry(key.to_owned()) {
            Entry::Occupied(counts) => counts.into_mut(),
            Entry::Vacant(place) => {
                let stored = values::split(values::get_json(store, self.table, key))?;
                // A damaged count must not keep a turn from the log, or a verdict.
                let stored: Option<T> = stored.unwrap_or_else(|error| {
                    tracing::warn!(%agent, %error, "stored counts of an agent cannot be read and restart at 0");
                    None
                });
                place.insert(stored.unwrap_or_default())
            }
        };
        change(counts);
        Ok(())
    }

    /// Removes counts, and what this transaction added to them.
    pub(crate) fn remove(&self, store: &StoreTxn<'_>, key: &[u8]) -> StoreResult<()> {
        self.by_key.borrow_mut().remove(key);
        store.remove(self.table, key)
    }

    fn put(&self, store: &StoreTxn<'_>) -> StoreResult<()> {
        let by_key = self.by_key.borrow();
        let mut all = by_key.iter();
        all.try_for_each(|(key, counts)| values::put_json(store, self.table, key, counts))
    }
}

impl StoreSource for Txn<'_> {
    fn get(&self, table: Table, key: &[u8]) -> StoreResult<Option<Bytes>> {
        self.store.get(table, key)
    }
}
