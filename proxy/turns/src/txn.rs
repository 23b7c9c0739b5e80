//! Several operations in one transaction of the store.
//!
//! Each reads what is stored and what those before it wrote. It decides first and writes then, so that
//! one which refuses leaves nothing behind.

use std::ops::Deref;

use metaclaw_chat::{AgentId, TurnId};

use crate::{
    cache::Cache,
    codec::Codec,
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
    appended: Vec<Entry>,
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

    /// Notes a turn that came into the log.
    pub(crate) fn appended(&mut self, id: TurnId, reply_id: Option<&str>) {
        self.appended.push(Entry::new(id, reply_id));
    }

    /// Changes an agent's counts. They are stored once for all operations.
    pub(crate) fn count(
        &mut self,
        agent: &AgentId,
        change: impl FnOnce(&mut Funnel),
    ) -> Result<(), StoreError> {
        if !self.cache.counts.contains_key(agent) {
            let stored = values::get_json(self.store, Table::Counts, &keys::agent(agent));
            let funnel: Option<Funnel> = match stored {
                Ok(funnel) => funnel,
                Err(TxnError::Store(error)) => return Err(error),
                // Counts must not keep a turn from the log.
                Err(TxnError::Refused(error)) => {
                    tracing::warn!(%agent, %error, "an agent's counts begin anew");
                    None
                }
            };
            let counts = (funnel.unwrap_or_default(), false);
            self.cache.counts.insert(agent.clone(), counts);
        }
        if let Some((funnel, is_changed)) = self.cache.counts.get_mut(agent) {
            change(funnel);
            *is_changed = true;
        }
        Ok(())
    }

    /// Ends the operations of the `number`th transaction.
    pub(crate) fn finish(self, number: u64) -> Result<(), StoreError> {
        for (agent, (funnel, is_changed)) in &mut self.cache.counts {
            if std::mem::take(is_changed) {
                values::put_json(self.store, Table::Counts, &keys::agent(agent), funnel)?;
            }
        }
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

    fn codec(&self) -> &Codec {
        self.store.codec()
    }
}
