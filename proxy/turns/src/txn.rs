//! Several operations in one transaction of the store.
//!
//! Each reads what is stored and what those before it wrote. It decides first and writes then, so that
//! one which refuses leaves nothing behind.

use std::ops::Deref;

use metaclaw_chat::AgentId;

use crate::{
    cache::Cache,
    journal::{self, Entry},
    keys,
    store::{Bytes, Source, StoreError, StoreTxn, Table},
    values::{self, TxnError},
    view::Funnel,
};

/// What operations work on.
pub(crate) struct Txn<'a> {
    store: &'a StoreTxn<'a>,
    pub(crate) cache: &'a mut Cache,
    /// Turns that came into the log.
    pub(crate) appended: Vec<Entry>,
}

// === impl Txn ===

impl<'a> Txn<'a> {
    pub(crate) fn new(store: &'a StoreTxn<'a>, cache: &'a mut Cache) -> Self {
        Self {
            store,
            cache,
            appended: Vec::new(),
        }
    }

    /// Changes an agent's counts.
    pub(crate) fn count(
        &self,
        agent: &AgentId,
        change: impl FnOnce(&mut Funnel),
    ) -> Result<(), StoreError> {
        let key = keys::agent(agent);
        let mut funnel: Funnel = match values::get_json(self.store, Table::Counts, &key) {
            Ok(funnel) => funnel.unwrap_or_default(),
            Err(TxnError::Store(error)) => return Err(error),
            // Counts must not keep a turn from the log.
            Err(TxnError::Refused(error)) => {
                tracing::warn!(%agent, %error, "an agent's counts begin anew");
                Funnel::default()
            }
        };
        change(&mut funnel);
        values::put_json(self.store, Table::Counts, &key, &funnel)
    }

    /// Ends the operations of the `number`th transaction.
    pub(crate) fn finish(self, number: u64) -> Result<(), StoreError> {
        journal::put(self.store, number, &self.appended)
    }
}

impl<'a> Deref for Txn<'a> {
    type Target = StoreTxn<'a>;

    fn deref(&self) -> &Self::Target {
        self.store
    }
}

impl Source for Txn<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.store.get(table, key)
    }
}
