//! Reassembles turns from their records and the lines of their sessions.

use metaclaw_chat::{Message, TurnId};

use crate::{
    keys,
    record::{Record, Setup, damaged_turn, messages},
    session::SessionRecord,
    state, step,
    store::{Store, Table},
    texts, tokens,
    turn::{Request, Turn},
    values::TxnError,
    verdicts,
};

/// Returns one turn with everything that is stored about it.
pub(crate) fn turn(store: &Store, id: TurnId) -> Result<Option<Turn>, TxnError> {
    let Some(record) = Record::get(store, id)? else {
        return Ok(None);
    };
    let session = SessionRecord::get(store, id.session)?;
    let session = session.ok_or_else(|| damaged_turn(id, "its session is missing"))?;
    let (params, served): Setup = texts::value(store, &record.setup)?;
    let tools = record.tools.as_deref();
    let mut overruled = verdicts::all(store, id)?;
    Ok(Some(Turn {
        id,
        agent: session.agent,
        session: session.session,
        parent: record.parent.map(|seq| keys::id(id.session, seq)),
        new_from: record
            .old
            .iter()
            .map(|(from, to, _)| (to - from) as usize)
            .sum(),
        request: Request {
            messages: messages(store, id, &[&record.old[..], &record.new[..]].concat())?,
            tools: tools.map(|name| texts::value(store, name)).transpose()?,
            params,
        },
        reply: reply(store, id, &record)?,
        served,
        meta: record.meta,
        state: state::get(store, id)?,
        verdict: overruled.pop(),
        overruled,
        uses: step::uses(store, id)?,
        tokens: tokens::get(store, id)?,
    }))
}

/// Returns the reply of a turn, if there is one.
pub(crate) fn reply(
    store: &Store,
    id: TurnId,
    record: &Record,
) -> Result<Option<Message>, TxnError> {
    let run = record.reply.map(|line| (line, line + 1, id.seq));
    Ok(messages(store, id, run.as_slice())?.pop())
}

/// Returns the ids of a session's turns, in order.
pub(crate) fn turn_ids(store: &Store, number: u64) -> Result<Vec<TurnId>, TxnError> {
    let mut ids = Vec::new();
    for pair in store.range(Table::Turns, keys::under(&keys::session(number))) {
        ids.extend(keys::read_first_piece(&pair?.0));
    }
    Ok(ids)
}
