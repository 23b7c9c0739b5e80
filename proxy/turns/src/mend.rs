//! Repairs a log that lost pages, so that the remaining data is found, and new turns replace nothing.

use std::collections::{BTreeMap, BTreeSet};

use metaclaw_chat::TurnId;

use crate::{
    journal, keys,
    record::{self, Record},
    session::{self, SessionRecord},
    store::{Store, StoreResult, StoreSource as _, Table},
    text::Hash,
    texts,
    values::{self, TxnError, TxnResult},
};

const AT_ONCE: usize = 100;

pub(crate) fn mend(store: &Store) -> StoreResult<()> {
    let mended = names(store)
        .and_then(|()| text_users(store))
        .and_then(|()| gaps(store))
        .and_then(|()| arrivals(store));
    mended.map_err(TxnError::into_store)
}

/// Counts missing data: transactions by their numbers in the journal, turns in the journal, and texts that a session
/// uses.
pub(crate) fn count_missing(store: &Store) -> TxnResult<u64> {
    let (mut expected, mut n) = (1_u64, 0_u64);
    for pair in store.range(Table::Journal, keys::under(&[])) {
        // Longer keys belong to restored turns.
        if let Ok(number) = <[u8; 8]>::try_from(&pair?.0[..]) {
            let number = u64::from_be_bytes(number);
            n += number.saturating_sub(expected);
            expected = number.saturating_add(1);
        }
    }
    for id in journal::newest_first(store) {
        let id = id?;
        // A deleted session leaves its turns in the journal.
        let has_session = store
            .get(Table::Sessions, &keys::session(id.session))?
            .is_some();
        let turn = values::readable(Record::get(store, id))?.flatten();
        n += u64::from(has_session && turn.is_none());
    }
    Ok(n + missing_texts(store)?.len() as u64)
}

fn names(store: &Store) -> TxnResult<()> {
    let mut sessions: Vec<(u64, SessionRecord)> = Vec::new();
    for (key, session) in values::readable_json(store, Table::Sessions, &[])? {
        sessions.extend(keys::read_u64(&key).map(|number| (number, session)));
    }
    for some in sessions.chunks(AT_ONCE) {
        store.transaction(|txn| {
            for (number, session) in some {
                let name = keys::name(&session.agent, &session.session);
                if txn.get(Table::Names, &name)?.is_none() {
                    txn.put(Table::Names, &name, &keys::session(*number))?;
                }
            }
            Ok(())
        })?;
    }
    let of_turns = turns(store)?.keys().next_back().copied();
    let last = sessions.last().map(|(number, _)| *number).max(of_turns);
    if let Some(last) = last {
        store.transaction(|txn| session::pass_numbers(txn, last))?;
    }
    Ok(())
}

/// Removes the users of lost texts. Such a text is stored again when it occurs in a new turn.
fn text_users(store: &Store) -> TxnResult<()> {
    for hash in missing_texts(store)? {
        let pairs = store.range(Table::TextUsers, keys::under(&hash));
        let keys = pairs.map(|pair| pair.map(|(key, _)| key));
        let users = keys.collect::<Result<Vec<_>, _>>()?;
        for some in users.chunks(AT_ONCE) {
            store.transaction(|txn| {
                let mut some = some.iter();
                some.try_for_each(|user| txn.remove(Table::TextUsers, user))
            })?;
        }
    }
    Ok(())
}

fn missing_texts(store: &Store) -> TxnResult<BTreeSet<Hash>> {
    let (mut missing, mut last) = (BTreeSet::new(), None);
    for pair in store.range(Table::TextUsers, keys::under(&[])) {
        let hash = pair?.0.first_chunk().copied();
        let Some(hash) = hash.filter(|_| hash != last) else {
            continue;
        };
        last = Some(hash);
        if values::readable(texts::text(store, &texts::name(&hash)))?.is_none() {
            missing.insert(hash);
        }
    }
    Ok(missing)
}

fn turns(store: &Store) -> TxnResult<BTreeMap<u64, BTreeSet<u32>>> {
    let mut sessions: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    for pair in store.range(Table::Turns, keys::under(&[])) {
        if let Some(id) = keys::read_first_piece(&pair?.0) {
            sessions.entry(id.session).or_default().insert(id.seq);
        }
    }
    Ok(sessions)
}

fn gaps(store: &Store) -> TxnResult<()> {
    let mut lost = Vec::new();
    for (session, places) in turns(store)? {
        let Some(of) = values::readable(SessionRecord::get(store, session))?.flatten() else {
            continue;
        };
        let last = places.last().copied().unwrap_or_default();
        let missing = (0..last).filter(|seq| !places.contains(seq));
        lost.extend(missing.map(|seq| (of.agent.clone(), keys::id(session, seq))));
    }
    for some in lost.chunks(AT_ONCE) {
        store.transaction(|txn| {
            let mut some = some.iter();
            some.try_for_each(|(agent, id)| record::put_lost(txn, agent, *id))
        })?;
    }
    Ok(())
}

fn arrivals(store: &Store) -> TxnResult<()> {
    let known = journal::newest_first(store).collect::<Result<BTreeSet<TurnId>, _>>()?;
    let mut missing = Vec::new();
    for (session, places) in turns(store)? {
        let ids = places.into_iter().map(|seq| keys::id(session, seq));
        for id in ids.filter(|id| !known.contains(id)) {
            if let Some(turn) = values::readable(Record::get(store, id))?.flatten() {
                missing.push((turn.meta.ended_ms, id, turn.meta.reply_id));
            }
        }
    }
    missing.sort();
    let Some((first_ms, ..)) = missing.first() else {
        return Ok(());
    };
    let places = journal::back_to(store, *first_ms)?;
    for some in missing.chunks(AT_ONCE) {
        store.transaction(|txn| {
            for (ended_ms, id, reply_id) in some {
                let before = places.iter().find(|(_, last_ms)| last_ms <= ended_ms);
                let after = before.map_or(0, |(number, _)| *number);
                let entry = (*id, journal::mark(reply_id.as_deref()));
                journal::put_back(txn, after, *ended_ms, entry)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
