//! Where turns stand, and the moves between: each re-checked and written in one transaction.

use std::sync::Arc;

use metaclaw_chat::{AgentId, TurnId, Verdict};

use crate::{
    error::LogError,
    index, keys,
    record::damaged,
    store::{Table, Value},
    tail::SessionRecord,
    times,
    turn::{NewTurn, StateKind, TurnKind, TurnState},
    txn::{Fault, Source, Txn},
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

fn read_some(id: TurnId, value: Option<Value>) -> Result<Option<TurnState>, Fault> {
    let read = |value: Value| read(&value).ok_or_else(|| damaged(id, "its state is unknown"));
    value.map(read).transpose()
}

/// Where a turn of the log stands. One that was never moved has no entry.
pub(crate) fn get(source: &impl Source, id: TurnId) -> Result<TurnState, Fault> {
    let state = read_some(id, source.get(Table::States, &keys::turn(id))?)?;
    Ok(state.unwrap_or(TurnState::Captured))
}

/// Where an agent's turn stands, to be checked again when the transaction runs.
pub(crate) fn get_guarded(
    txn: &mut Txn<'_>,
    agent: &AgentId,
    id: TurnId,
) -> Result<TurnState, Fault> {
    let value = txn.get_guarded(Table::States, &keys::turn(id))?;
    if let Some(state) = read_some(id, value)? {
        return Ok(state);
    }
    if index::is_captured(txn, agent, id)? {
        return Ok(TurnState::Captured);
    }
    Err(LogError::NoSuchTurn { id }.into())
}

/// What is known about a session.
pub(crate) fn session(txn: &mut Txn<'_>, number: u64) -> Result<Option<Arc<SessionRecord>>, Fault> {
    if let Some(known) = txn.cache.sessions.get(&number) {
        return Ok(Some(Arc::clone(known)));
    }
    let record: Option<SessionRecord> = txn.get_json(Table::Sessions, &keys::session(number))?;
    Ok(record.map(|record| {
        let record = Arc::new(record);
        txn.cache.sessions.insert(number, Arc::clone(&record));
        record
    }))
}

/// Whose turn it is.
pub(crate) fn agent_of(txn: &mut Txn<'_>, id: TurnId) -> Result<AgentId, Fault> {
    let session = session(txn, id.session)?.ok_or(LogError::NoSuchTurn { id })?;
    Ok(session.agent.clone())
}

/// Changes an agent's counts.
pub(crate) fn count(
    txn: &mut Txn<'_>,
    agent: &AgentId,
    change: impl FnOnce(&mut Funnel),
) -> Result<(), Fault> {
    let key = keys::agent_prefix(agent);
    let mut funnel = txn.counts(&key)?;
    change(&mut funnel);
    txn.put_counts(key, funnel);
    Ok(())
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

fn leave(funnel: &mut Funnel, state: &TurnState) {
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
) -> Result<(), Fault> {
    index::remove(txn, from.kind(), agent, id)?;
    index::put(txn, to.kind(), agent, id);
    txn.put(Table::States, keys::turn(id), write(to));
    count(txn, agent, |funnel| {
        leave(funnel, from);
        arrive(funnel, to);
    })
}

/// A new turn is in the log.
pub(crate) fn enter(txn: &mut Txn<'_>, turn: &NewTurn) -> Result<(), Fault> {
    let is_main = turn.kind == TurnKind::Main;
    count(txn, &turn.agent, |funnel| {
        funnel.turns += 1;
        funnel.main += u64::from(is_main);
        funnel.complete += u64::from(is_main && turn.is_complete());
    })
}

/// Takes an incomplete turn out, so that another try at the same request can stand in its place.
///
/// False, and nothing done, if something was made of it already.
pub(crate) fn withdraw(
    txn: &mut Txn<'_>,
    turn: &NewTurn,
    id: TurnId,
    old_ended_ms: u64,
) -> Result<bool, Fault> {
    let key = keys::turn(id);
    let state = get_guarded(txn, &turn.agent, id)?;
    let is_free = matches!(state, TurnState::Captured | TurnState::Spent { .. });
    if !is_free || txn.get(Table::Verdicts, &keys::piece(&key, 0))?.is_some() {
        return Ok(false);
    }
    index::remove(txn, state.kind(), &turn.agent, id)?;
    if state != TurnState::Captured {
        txn.remove(Table::States, keys::turn(id));
    }
    times::remove(txn, old_ended_ms, id);
    txn.remove_long(Table::Tokens, &key)?;
    // Of the same kind as the new one, and not complete: that is what makes it a retry.
    let is_main = u64::from(turn.kind == TurnKind::Main);
    count(txn, &turn.agent, |funnel| {
        funnel.turns = funnel.turns.saturating_sub(1);
        funnel.main = funnel.main.saturating_sub(is_main);
        leave(funnel, &state);
    })?;
    Ok(true)
}

/// Gives a turn its verdict; false if it has one.
///
/// A captured turn is judged thereby; one that is spent or held out stays so.
pub(crate) fn judge(txn: &mut Txn<'_>, id: TurnId, verdict: &Verdict) -> Result<bool, Fault> {
    let agent = agent_of(txn, id)?;
    let state = get_guarded(txn, &agent, id)?;
    let key = keys::turn(id);
    if txn
        .get_guarded(Table::Verdicts, &keys::piece(&key, 0))?
        .is_some()
    {
        return Ok(false);
    }
    txn.put_json(Table::Verdicts, &key, verdict)?;
    if state == TurnState::Captured {
        advance(txn, &agent, id, (&state, &TurnState::Judged))?;
    }
    count(txn, &agent, |funnel| funnel.judged += 1)?;
    Ok(true)
}

/// Moves a free turn out of the way of training; false if it is not free.
pub(crate) fn set_aside(txn: &mut Txn<'_>, id: TurnId, to: &TurnState) -> Result<bool, Fault> {
    let agent = agent_of(txn, id)?;
    let state = get_guarded(txn, &agent, id)?;
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
