//! Where turns stand, and the moves between: each is checked and written in one transaction.
//!
//! A turn that was never moved has no entry: it is captured.

use metaclaw_chat::{AgentId, TurnId};

use crate::{
    error::LogError,
    keys, lessons,
    new_turn::NewTurn,
    record::{Record, damaged_turn},
    session::SessionRecord,
    store::{Source, StoreError, Table},
    turn::{TurnKind, TurnState},
    txn::Txn,
    values::{self, TxnError},
    view::Funnel,
};

/// Where a turn of the log stands.
pub(crate) fn get(source: &impl Source, id: TurnId) -> Result<TurnState, TxnError> {
    let state = values::get_json(source, Table::States, &keys::turn(id))?;
    Ok(state.unwrap_or(TurnState::Captured))
}

/// Whose turn it is, and where it stands.
///
/// # Errors
/// [`LogError::NoSuchTurn`].
pub(crate) fn of_turn(txn: &Txn<'_>, id: TurnId) -> Result<(AgentId, TurnState), TxnError> {
    if txn.get(Table::Turns, &keys::turn(id))?.is_none() {
        return Err(LogError::NoSuchTurn { id }.into());
    }
    let session = SessionRecord::get(txn, id.session)?;
    let session = session.ok_or_else(|| damaged_turn(id, "its session is missing"))?;
    Ok((session.agent, get(txn, id)?))
}

/// The count of those that stand in `state`, where one is kept.
fn standing<'f>(funnel: &'f mut Funnel, state: &TurnState) -> Option<&'f mut u64> {
    match state {
        TurnState::Captured | TurnState::Judged => None,
        TurnState::Taken { .. } => Some(&mut funnel.taken),
        TurnState::Trained { .. } => Some(&mut funnel.trained),
        TurnState::HeldOut => Some(&mut funnel.held_out),
        TurnState::Spent { why } => Some(funnel.spent.entry(why.clone()).or_default()),
    }
}

/// A turn stands in a state no more.
pub(crate) fn leave(funnel: &mut Funnel, state: &TurnState) {
    if let Some(n) = standing(funnel, state) {
        *n = n.saturating_sub(1);
    }
    funnel.spent.retain(|_, n| *n > 0);
}

fn arrive(funnel: &mut Funnel, state: &TurnState) {
    if let Some(n) = standing(funnel, state) {
        *n += 1;
    }
}

/// Moves a turn whose state was just read as `from`.
pub(crate) fn advance(
    txn: &mut Txn<'_>,
    agent: &AgentId,
    id: TurnId,
    from: &TurnState,
    to: &TurnState,
) -> Result<(), StoreError> {
    remove(txn, agent, id, from)?;
    if *to != TurnState::Captured {
        values::put_json(txn, Table::States, &keys::turn(id), to)?;
        txn.put(Table::Index, &keys::index(to.kind(), agent, id), b"")?;
    }
    txn.count(agent, |funnel| {
        leave(funnel, from);
        arrive(funnel, to);
    })
}

/// Removes what is stored about a turn's state.
pub(crate) fn remove(
    txn: &Txn<'_>,
    agent: &AgentId,
    id: TurnId,
    state: &TurnState,
) -> Result<(), StoreError> {
    if *state != TurnState::Captured {
        values::remove(txn, Table::States, &keys::turn(id))?;
        txn.remove(Table::Index, &keys::index(state.kind(), agent, id))?;
    }
    Ok(())
}

/// A new turn is in the log.
pub(crate) fn enter(txn: &mut Txn<'_>, turn: &NewTurn) -> Result<(), StoreError> {
    lessons::served(txn, turn, 1)?;
    txn.count(&turn.agent, |funnel| {
        funnel.turns += 1;
        funnel.main += u64::from(turn.meta.kind == TurnKind::Main);
        funnel.complete += u64::from(turn.meta.is_whole_main());
    })?;
    let usage = turn.meta.usage.unwrap_or_default();
    txn.count_day(&turn.agent, turn.meta.ended_ms, |it| {
        *it.of_kind(turn.meta.kind) += 1;
        it.tokens_in += usage.prompt_tokens;
        it.tokens_cached += usage.cached_tokens;
        it.tokens_out += usage.completion_tokens;
    })
}

/// Whether nothing was made of a turn yet, so that another try at the same request may take its place.
pub(crate) fn is_free(txn: &Txn<'_>, id: TurnId) -> Result<bool, TxnError> {
    let state = get(txn, id)?;
    let is_judged = txn.get(Table::Verdicts, &keys::turn(id))?.is_some();
    Ok(!is_judged && matches!(state, TurnState::Captured | TurnState::Spent { .. }))
}

/// Takes an incomplete turn that is free out: the new one, another try, stands in its place.
pub(crate) fn withdraw(txn: &mut Txn<'_>, new: &NewTurn, id: TurnId) -> Result<(), StoreError> {
    let state = match get(txn, id) {
        Ok(state) => state,
        Err(TxnError::Store(error)) => return Err(error),
        Err(TxnError::Refused(error)) => return Err(StoreError::Other(error.to_string())),
    };
    match Record::get(txn, id) {
        // What its tokens cost, they cost.
        Ok(Some(old)) => txn.count_day(&new.agent, old.meta.ended_ms, |it| {
            let n = it.of_kind(old.meta.kind);
            *n = n.saturating_sub(1);
        })?,
        Ok(None) | Err(TxnError::Refused(_)) => {}
        Err(TxnError::Store(error)) => return Err(error),
    }
    remove(txn, &new.agent, id, &state)?;
    values::remove(txn, Table::Tokens, &keys::turn(id))?;
    // Of the same kind as the new one, and not complete: that is what makes it a retry.
    let is_main = u64::from(new.meta.kind == TurnKind::Main);
    lessons::served(txn, new, -1)?;
    txn.count(&new.agent, |funnel| {
        funnel.turns = funnel.turns.saturating_sub(1);
        funnel.main = funnel.main.saturating_sub(is_main);
        leave(funnel, &state);
    })
}
