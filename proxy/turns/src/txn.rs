//! Several operations in one transaction of the store.
//!
//! Each one sees the stored data and what earlier ones wrote. It first decides and then writes, so that an operation
//! that refuses leaves nothing behind.

use std::{
    any::Any,
    cell::RefCell,
    collections::{HashMap, hash_map::Entry},
    ops::Deref,
};

use metaclaw_chat::{AgentId, TurnId};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    counts::{DailyCounts, Funnel, day_of},
    journal::{self, JournalEntry},
    keys,
    mask::Mask,
    session::SessionCache,
    store::{Bytes, StoreResult, StoreSource, StoreTxn, Table},
    turn::BreakCause,
    values,
};

pub(crate) struct Txn<'a> {
    store: &'a StoreTxn<'a>,
    pub(crate) cache: &'a mut SessionCache,
    pub(crate) mask: &'a Mask,
    pub(crate) appended: Vec<JournalEntry>,
    pub(crate) broken: Vec<(TurnId, BreakCause)>,
    /// The counts that were changed, by table and key. They are written at the end, once for all turns: reading and
    /// writing those of each lesson for each turn took a sixth of the log's CPU.
    counts: RefCell<CountsByKey>,
}

type CountsByKey = HashMap<(Table, Vec<u8>), Box<dyn Counts>>;

/// Counts of any kind, as they are stored.
trait Counts: Any {
    fn put(&self, txn: &StoreTxn<'_>, table: Table, key: &[u8]) -> StoreResult<()>;
}

impl<T: Serialize + 'static> Counts for T {
    fn put(&self, txn: &StoreTxn<'_>, table: Table, key: &[u8]) -> StoreResult<()> {
        values::put_json(txn, table, key, self)
    }
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
            counts: RefCell::default(),
        }
    }

    pub(crate) fn count(
        &self,
        agent: &AgentId,
        change: impl FnOnce(&mut Funnel),
    ) -> StoreResult<()> {
        self.change(agent, Table::Counts, &keys::agent(agent), change)
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
        self.change(agent, Table::Statistics, &key, change)
    }

    pub(crate) fn change<T: Default + Serialize + DeserializeOwned + 'static>(
        &self,
        agent: &AgentId,
        table: Table,
        key: &[u8],
        change: impl FnOnce(&mut T),
    ) -> StoreResult<()> {
        let mut changed = self.counts.borrow_mut();
        let counts = match changed.entry((table, key.to_owned())) {
            Entry::Occupied(counts) => counts.into_mut(),
            Entry::Vacant(place) => {
                let stored = values::split(values::get_json(self.store, table, key))?;
                // A damaged count must not keep a turn from the log, or a verdict.
                let stored: Option<T> = stored.unwrap_or_else(|error| {
                    tracing::warn!(%agent, %error, "counts of an agent begin anew");
                    None
                });
                place.insert(Box::new(stored.unwrap_or_default()))
            }
        };
        let counts: &mut dyn Any = &mut **counts;
        // A table has counts of one kind.
        counts.downcast_mut().map(change);
        Ok(())
    }

    /// Removes counts, with what this transaction added to them.
    pub(crate) fn remove_counts(&self, table: Table, key: &[u8]) -> StoreResult<()> {
        self.counts.borrow_mut().remove(&(table, key.to_owned()));
        self.store.remove(table, key)
    }

    pub(crate) fn finish(self, number: u64) -> StoreResult<Vec<(TurnId, BreakCause)>> {
        for ((table, key), counts) in &*self.counts.borrow() {
            counts.put(self.store, *table, key)?;
        }
        journal::put(self.store, number, &self.appended)?;
        Ok(self.broken)
    }
}

impl<'a> Deref for Txn<'a> {
    type Target = StoreTxn<'a>;

    fn deref(&self) -> &Self::Target {
        self.store
    }
}

impl StoreSource for Txn<'_> {
    fn get(&self, table: Table, key: &[u8]) -> StoreResult<Option<Bytes>> {
        self.store.get(table, key)
    }
}
