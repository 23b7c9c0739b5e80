//! The adapter that serves each agent: that of its last step, or one that the owner chose.

use metaclaw_chat::{AgentId, now_ms};
use serde::{Deserialize, Serialize};

use crate::{
    keys,
    log::{LogFuture, TurnLog},
    store::{Bytes, Store, StoreSource, Table},
    txn::Txn,
    values::TxnResult,
};

/// The first character of a choice's value. No adapter's name begins with it.
const CHOSEN: char = '=';

/// The owner's choice for an agent. It is valid until a step that starts from it serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The time in Unix milliseconds. No two choices of one agent have the same time.
    pub at_ms: u64,
    /// The adapter, or none for the base model.
    pub adapter: Option<String>,
}

/// A value of the table: the name of an adapter, or `=MS NAME`, without a name for the base model.
#[derive(Debug, PartialEq, Eq)]
enum ServingValue {
    ByStep(String),
    ByChoice(Choice),
}

// === impl TurnLog ===

impl TurnLog {
    /// Records the adapter that serves an agent, or none for the base model.
    pub fn set_serving(&self, agent: &AgentId, adapter: Option<String>) -> LogFuture<'_, ()> {
        let key = keys::agent(agent);
        let set = move |txn: &mut Txn<'_>| match adapter {
            Some(adapter) => Ok(txn.put(Table::Serving, &key, adapter.into_bytes())?),
            None => Ok(txn.remove(Table::Serving, &key)?),
        };
        self.write(set)
    }

    /// Returns the adapters that serve agents.
    pub fn serving(&self) -> LogFuture<'_, Vec<(AgentId, String)>> {
        let serving = |store: &Store| {
            let mut serving = Vec::new();
            for pair in store.range(Table::Serving, keys::under(&[])) {
                let (key, value) = pair?;
                let adapter = ServingValue::read(&value).and_then(ServingValue::adapter);
                serving.extend(keys::read_agent(&key).zip(adapter));
            }
            Ok(serving)
        };
        self.read(serving)
    }

    /// Records the owner's choice for an agent, or none for the base model.
    pub fn choose(&self, agent: &AgentId, adapter: Option<String>) -> LogFuture<'_, Choice> {
        let key = keys::agent(agent);
        self.write(move |txn| choose(txn, &key, adapter))
    }

    /// Returns the owner's choice for an agent, if it is valid.
    pub fn choice(&self, agent: &AgentId) -> LogFuture<'_, Option<Choice>> {
        let key = keys::agent(agent);
        self.read(move |store| chosen(store, &key))
    }

    /// Records the adapter of a finished step as the one that serves. Returns false and changes nothing if the owner
    /// has chosen another one since the step was planned with `choice_ms`. It may be repeated.
    pub fn serve_step(
        &self,
        agent: &AgentId,
        adapter: String,
        choice_ms: Option<u64>,
    ) -> LogFuture<'_, bool> {
        let key = keys::agent(agent);
        let serve = move |txn: &mut Txn<'_>| {
            let chosen = chosen(txn, &key)?.map(|choice| choice.at_ms);
            // After the first call there is no choice.
            let serves = chosen.is_none() || chosen == choice_ms;
            if serves {
                txn.put(Table::Serving, &key, adapter.into_bytes())?;
            }
            Ok(serves)
        };
        self.write(serve)
    }
}

/// Writes a choice. No two of one agent have the same time.
pub(crate) fn choose(txn: &mut Txn<'_>, key: &[u8], adapter: Option<String>) -> TxnResult<Choice> {
    let before = chosen(txn, key)?.map_or(0, |before| before.at_ms + 1);
    let choice = Choice {
        at_ms: now_ms().max(before),
        adapter,
    };
    let name = choice.adapter.as_deref().unwrap_or_default();
    let value = format!("{CHOSEN}{} {name}", choice.at_ms);
    txn.put(Table::Serving, key, value.into_bytes())?;
    Ok(choice)
}

/// Returns the adapter that serves an agent, or none for the base model.
pub(crate) fn serves(source: &impl StoreSource, key: &[u8]) -> TxnResult<Option<String>> {
    let value: Option<Bytes> = source.get(Table::Serving, key)?;
    Ok(value.and_then(|value| ServingValue::read(&value)?.adapter()))
}

fn chosen(source: &impl StoreSource, key: &[u8]) -> TxnResult<Option<Choice>> {
    let value: Option<Bytes> = source.get(Table::Serving, key)?;
    Ok(match value.and_then(|value| ServingValue::read(&value)) {
        Some(ServingValue::ByChoice(choice)) => Some(choice),
        Some(ServingValue::ByStep(_)) | None => None,
    })
}

// === impl ServingValue ===

impl ServingValue {
    fn read(value: &[u8]) -> Option<Self> {
        let text = str::from_utf8(value).ok()?;
        let Some(choice) = text.strip_prefix(CHOSEN) else {
            return Some(Self::ByStep(text.to_owned()));
        };
        let (at_ms, adapter) = choice.split_once(' ')?;
        Some(Self::ByChoice(Choice {
            at_ms: at_ms.parse().ok()?,
            adapter: (!adapter.is_empty()).then(|| adapter.to_owned()),
        }))
    }

    fn adapter(self) -> Option<String> {
        match self {
            Self::ByStep(adapter) => Some(adapter),
            Self::ByChoice(choice) => choice.adapter,
        }
    }
}
