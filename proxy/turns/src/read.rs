//! Reassembles turns from their records and the lines of their sessions.

use std::ops::RangeBounds;

use metaclaw_chat::{Message, TurnId};

use crate::{
    keys,
    lines::LineReader,
    record::{Record, Setup},
    session::SessionRecord,
    state, step,
    store::{Bytes, Store, Table},
    texts, tokens,
    turn::{Request, Turn},
    values::TxnResult,
    verdicts, work,
};

pub(crate) fn turn(store: &Store, id: TurnId) -> TxnResult<Option<Turn>> {
    let Some(record) = Record::get(store, id)? else {
        return Ok(None);
    };
    let session = SessionRecord::of_turn(store, id)?;
    let (params, served): Setup = texts::value(store, &record.setup)?;
    let tools = record.tools.as_deref();
    let mut overruled = verdicts::all(store, id)?;
    let mut lines = LineReader::new(store);
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
            messages: lines.messages(id, &[&record.old[..], &record.new[..]].concat())?,
            tools: tools.map(|name| texts::value(store, name)).transpose()?,
            params,
        },
        reply: reply(&mut lines, id, &record)?,
        served,
        meta: record.meta,
        state: state::get(store, id)?,
        verdict: overruled.pop(),
        overruled,
        uses: step::uses(store, id)?,
        tokens: tokens::get(store, id)?,
    }))
}

pub(crate) fn reply(
    lines: &mut LineReader<'_, Store>,
    id: TurnId,
    record: &Record,
) -> TxnResult<Option<Message>> {
    let reply = record.reply.map(|line| lines.value(id, line, id.seq));
    reply.transpose()
}

pub(crate) fn turn_ids(store: &Store, number: u64) -> TxnResult<Vec<TurnId>> {
    ids_in(store, keys::under(&keys::session(number))).collect()
}

/// Returns the ids of turns whose keys are in a range. No key is read before its id is asked for.
pub(crate) fn ids_in<R: RangeBounds<Bytes>>(
    store: &Store,
    range: R,
) -> impl DoubleEndedIterator<Item = TxnResult<TurnId>> + use<R> {
    let keys = store.range(Table::Turns, range).map(|pair| {
        work::count(1);
        Ok(keys::read_first_piece(&pair?.0))
    });
    keys.filter_map(Result::transpose)
}
