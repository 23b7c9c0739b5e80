//! The place of a turn that is not there: lost with a damaged page, or not come back yet with the others of its session.
//!
//! Places of a session have no gaps, or a new turn would take one in the middle. What stands there does not read, and no step
//! takes it.

use metaclaw_chat::{AgentId, TurnId};

use crate::{
    keys,
    store::{Source, StoreError, StoreTxn, Table},
    turn::TurnState,
    values::{self, TxnError},
};

/// What stands in the place of the turn.
pub(crate) const LOST: &str = "lost";

/// Keeps the place of a turn.
pub(crate) fn put(txn: &StoreTxn<'_>, agent: &AgentId, id: TurnId) -> Result<(), StoreError> {
    let (key, state) = (keys::turn(id), state());
    values::put(txn, Table::Turns, &key, LOST.as_bytes())?;
    values::put_json(txn, Table::States, &key, &state)?;
    txn.put(Table::Index, &keys::index(state.kind(), agent, id), b"")
}

/// Whether a place is kept.
pub(crate) fn is_there(source: &impl Source, id: TurnId) -> Result<bool, TxnError> {
    let text = values::get(source, Table::Turns, &keys::turn(id))?;
    Ok(text.is_some_and(|text| text == LOST.as_bytes()))
}

/// Frees it for the turn itself.
pub(crate) fn remove(txn: &StoreTxn<'_>, agent: &AgentId, id: TurnId) -> Result<(), StoreError> {
    let key = keys::turn(id);
    values::remove(txn, Table::Turns, &key)?;
    values::remove(txn, Table::States, &key)?;
    txn.remove(Table::Index, &keys::index(state().kind(), agent, id))
}

fn state() -> TurnState {
    let why = LOST.to_owned();
    TurnState::Spent { why }
}
