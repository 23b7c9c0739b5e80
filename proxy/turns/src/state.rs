//! Where turns stand, and the moves between: each is checked and written in one transaction.
//!
//! A turn that was never moved has no entry: it is captured.

use metaclaw_chat::{AgentId, TurnId};

use crate::{
    error::LogError,
    keys,
    new_turn::NewTurn,
    record::damaged_turn,
    session::SessionRecord,
    store::{Source, StoreError, Table},
    turn::{StateKind, TurnKind, TurnState},
    txn::Txn,
    values::{self, TxnError},
    view::Funnel,
};

// === the value of table `states`: a byte for the kind, then what it carries ===

fn write(state: &TurnState) -> Vec<u8> {
    let mut value = vec![state.kind() as u8];
    match state {
        TurnState::Captured | TurnState::Judged | TurnState::HeldOut => {}
        TurnState::Taken { n } | TurnState::Trained { n } => value.extend(n.to_be_bytes()),
        TurnState::Spent { why } => value.extend(why.as_bytes()),
    }
    value
}

fn read(value: &[u8]) -> Option<TurnState> {
    let (kind, rest) = value.split_first()?;
    let kind = StateKind::ALL
        .into_iter()
        .find(|known| *known as u8 == *kind)?;
    let n = || rest.try_into().ok().map(u64::from_be_bytes);
    Some(match kind {
        StateKind::Captured => TurnState::Captured,
        StateKind::Judged => TurnState::Judged,
        StateKind::Taken => TurnState::Taken { n: n()? },
        StateKind::Trained => TurnState::Trained { n: n()? },
        StateKind::HeldOut => TurnState::HeldOut,
        StateKind::Spent => TurnState::Spent {
            why: str::from_utf8(rest).ok()?.to_owned(),
        },
    })
}

/// Where a turn of the log stands.
pub(crate) fn get(source: &impl Source, id: TurnId) -> Result<TurnState, TxnError> {
    match source.get(Table::States, &keys::turn(id))? {
        Some(value) => read(&value).ok_or_else(|| damaged_turn(id, "its state is unknown")),
        None => Ok(TurnState::Captured),
    }
}

/// Whose turn it is, and where it stands.
///
/// # Errors
/// [`LogError::NoSuchTurn`].
pub(crate) fn of_turn(txn: &Txn<'_>, id: TurnId) -> Result<(AgentId, TurnState), TxnError> {
    if txn.get(Table::Turns, &keys::turn(id))?.is_none() {
        return Err(LogError::NoSuchTurn { id }.into());
    }
    let session: Option<SessionRecord> =
        values::get_json(txn, Table::Sessions, &keys::session(id.session))?;
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
    (from, to): (&TurnState, &TurnState),
) -> Result<(), StoreError> {
    remove(txn, agent, id, from)?;
    if *to != TurnState::Captured {
        txn.put(Table::States, &keys::turn(id), write(to))?;
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
        txn.remove(Table::States, &keys::turn(id))?;
        txn.remove(Table::Index, &keys::index(state.kind(), agent, id))?;
    }
    Ok(())
}

/// A new turn is in the log.
pub(crate) fn enter(txn: &mut Txn<'_>, turn: &NewTurn) -> Result<(), StoreError> {
    let is_main = turn.kind == TurnKind::Main;
    txn.count(&turn.agent, |funnel| {
        funnel.turns += 1;
        funnel.main += u64::from(is_main);
        funnel.complete += u64::from(is_main && turn.is_complete());
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
    remove(txn, &new.agent, id, &state)?;
    values::remove(txn, Table::Tokens, &keys::turn(id))?;
    // Of the same kind as the new one, and not complete: that is what makes it a retry.
    let is_main = u64::from(new.kind == TurnKind::Main);
    txn.count(&new.agent, |funnel| {
        funnel.turns = funnel.turns.saturating_sub(1);
        funnel.main = funnel.main.saturating_sub(is_main);
        leave(funnel, &state);
    })
}

/// Moves a free turn out of the way of training; false if it is not free.
pub(crate) fn set_aside(txn: &mut Txn<'_>, id: TurnId, to: &TurnState) -> Result<bool, TxnError> {
    let (agent, state) = of_turn(txn, id)?;
    if !matches!(state, TurnState::Captured | TurnState::Judged) {
        return Ok(false);
    }
    advance(txn, &agent, id, (&state, to))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_reads_back() {
        for state in [
            TurnState::Captured,
            TurnState::Judged,
            TurnState::Taken { n: 7 },
            TurnState::Trained { n: u64::MAX },
            TurnState::Spent {
                why: "no ids".into(),
            },
            TurnState::HeldOut,
        ] {
            assert_eq!(read(&write(&state)), Some(state));
        }
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[99]), None);
        assert_eq!(read(&[StateKind::Taken as u8, 1]), None);
    }
}
