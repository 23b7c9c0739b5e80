//! The states of turns and the transitions between them. Each is checked and written in one transaction.
//!
//! A turn without an entry is captured.

use metaclaw_chat::{AgentId, TurnId};

use crate::{
    counts::{DailyCounts, Funnel},
    error::LogError,
    keys, lessons,
    new_turn::NewTurn,
    record::Record,
    session::SessionRecord,
    store::{StoreResult, StoreSource, Table},
    turn::{BreakCause, TurnState},
    txn::Txn,
    values::{self, TxnError, TxnResult},
};

pub(crate) fn get(source: &impl StoreSource, id: TurnId) -> TxnResult<TurnState> {
    let state = values::get_json(source, Table::States, &keys::turn(id))?;
    Ok(state.unwrap_or(TurnState::Captured))
}

/// Returns the agent of a turn and its state.
///
/// # Errors
/// Returns [`LogError::NoSuchTurn`] if there is none.
pub(crate) fn of_turn(txn: &Txn<'_>, id: TurnId) -> TxnResult<(AgentId, TurnState)> {
    if txn.get(Table::Turns, &keys::turn(id))?.is_none() {
        return Err(LogError::NoSuchTurn { id }.into());
    }
    Ok((SessionRecord::of_turn(txn, id)?.agent, get(txn, id)?))
}

fn standing<'f>(funnel: &'f mut Funnel, state: &TurnState) -> Option<&'f mut u64> {
    match state {
        TurnState::Captured | TurnState::Judged => None,
        TurnState::Taken { .. } => Some(&mut funnel.taken),
        TurnState::Trained { .. } => Some(&mut funnel.trained),
        TurnState::HeldOut => Some(&mut funnel.held_out),
        TurnState::Spent { why } => Some(funnel.spent.entry(why.clone()).or_default()),
    }
}

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

/// Changes the state of a turn that was just read as `from`.
pub(crate) fn advance(
    txn: &mut Txn<'_>,
    agent: &AgentId,
    id: TurnId,
    from: &TurnState,
    to: &TurnState,
) -> StoreResult<()> {
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

pub(crate) fn remove(
    txn: &Txn<'_>,
    agent: &AgentId,
    id: TurnId,
    state: &TurnState,
) -> StoreResult<()> {
    if *state != TurnState::Captured {
        values::remove(txn, Table::States, &keys::turn(id))?;
        txn.remove(Table::Index, &keys::index(state.kind(), agent, id))?;
    }
    Ok(())
}

pub(crate) fn enter(
    txn: &mut Txn<'_>,
    turn: &NewTurn,
    broken: Option<BreakCause>,
    owners: DailyCounts,
) -> StoreResult<()> {
    lessons::served(txn, turn, 1)?;
    txn.count(&turn.agent, |funnel| {
        funnel.turns += 1;
        if let Some(n) = funnel.of_kind(turn.meta.kind) {
            *n += 1;
        }
        funnel.complete += u64::from(turn.meta.is_learnable());
    })?;
    let usage = turn.meta.usage.unwrap_or_default();
    txn.count_day(&turn.agent, turn.meta.ended_ms, |day| {
        *day += owners;
        *day.of_kind(turn.meta.kind) += 1;
        day.tokens_in += usage.prompt_tokens;
        day.tokens_cached += usage.cached_tokens;
        day.tokens_out += usage.completion_tokens;
        if let Some(cause) = broken {
            day.breaks.add(cause);
        }
    })
}

/// Returns whether nothing refers to a turn yet, so that another try at the same request may replace it.
pub(crate) fn is_free(txn: &Txn<'_>, id: TurnId) -> TxnResult<bool> {
    let state = get(txn, id)?;
    let is_judged = txn.get(Table::Verdicts, &keys::turn(id))?.is_some();
    Ok(!is_judged && matches!(state, TurnState::Captured | TurnState::Spent { .. }))
}

/// Removes an incomplete turn that is free. The new turn, another try, takes its place.
pub(crate) fn withdraw(txn: &mut Txn<'_>, new: &NewTurn, id: TurnId) -> StoreResult<()> {
    let state = get(txn, id).map_err(TxnError::into_store)?;
    match Record::get(txn, id) {
        // The tokens of the first try stay counted, because they were paid.
        Ok(Some(old)) => txn.count_day(&new.agent, old.meta.ended_ms, |day| {
            let n = day.of_kind(old.meta.kind);
            *n = n.saturating_sub(1);
        })?,
        Ok(None) | Err(TxnError::Refused(_)) => {}
        Err(TxnError::Store(error)) => return Err(error),
    }
    remove(txn, &new.agent, id, &state)?;
    values::remove(txn, Table::Tokens, &keys::turn(id))?;
    lessons::served(txn, new, -1)?;
    txn.count(&new.agent, |funnel| {
        funnel.turns = funnel.turns.saturating_sub(1);
        // A retry has the same kind as the first try, which was not complete.
        if let Some(n) = funnel.of_kind(new.meta.kind) {
            *n = n.saturating_sub(1);
        }
        leave(funnel, &state);
    })
}
