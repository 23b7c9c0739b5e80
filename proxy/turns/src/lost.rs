//! The place of a missing turn: lost with a damaged page, or not restored yet.
//!
//! The places of a session have no gaps, because a new turn would otherwise get one in the middle. The entry cannot be
//! read as a turn, and no step takes it.

use metaclaw_chat::{AgentId, TurnId};

use crate::{
    keys,
    store::{StoreError, StoreSource, StoreTxn, Table},
    turn::TurnState,
    values::{self, TxnError},
};

/// The value at the place of the turn.
pub(crate) const LOST: &str = "lost";

/// Reserves the place of a turn.
pub(crate) fn put(txn: &StoreTxn<'_>, agent: &AgentId, id: TurnId) -> Result<(), StoreError> {
    let (key, state) = (keys::turn(id), state());
    values::put(txn, Table::Turns, &key, LOST.as_bytes())?;
    values::put_json(txn, Table::States, &key, &state)?;
    txn.put(Table::Index, &keys::index(state.kind(), agent, id), b"")
}

/// Returns whether a place is reserved.
pub(crate) fn is_there(source: &impl StoreSource, id: TurnId) -> Result<bool, TxnError> {
    let text = values::get(source, Table::Turns, &keys::turn(id))?;
    Ok(text.is_some_and(|text| text == LOST.as_bytes()))
}

/// Frees the place for the turn itself.
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
