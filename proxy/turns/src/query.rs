//! Questions to the log. They read what is stored, never a transaction on its way.

mod list;

use std::collections::{BTreeSet, HashMap};

use metaclaw_chat::{AgentId, ChainHash, SessionId, TurnId};

pub(crate) use self::list::list;
use crate::{
    journal::{self, mark},
    keys,
    read::{SessionReader, number, turn_ids},
    record::Record,
    session::SessionRecord,
    store::{Store, Table},
    turn::{StateKind, Turn, TurnKind},
    values::{self, TxnError},
    view::{Funnel, SessionSummary},
};

/// Side turns in a row behind which a main one is looked for.
const ERRANDS: usize = 200;
/// Entries that are looked through at once: the log's thread has other things to do.
const LOOKED_THROUGH: usize = 10_000;
/// Turns that are read at once.
const READ: usize = 100;

/// The last `last` turns of a session, in order.
pub(crate) fn session_turns(
    store: &Store,
    agent: &AgentId,
    session: &SessionId,
    last: usize,
) -> Result<Vec<Turn>, TxnError> {
    let Some(number) = number(store, agent, session)? else {
        return Ok(Vec::new());
    };
    let ids = turn_ids(store, number)?;
    turns(store, &ids[ids.len().saturating_sub(last)..])
}

/// Some turns of one session.
pub(crate) fn turns(store: &Store, ids: &[TurnId]) -> Result<Vec<Turn>, TxnError> {
    let Some(first) = ids.first() else {
        return Ok(Vec::new());
    };
    let Some(session) = SessionReader::of(store, first.session)? else {
        return Ok(Vec::new());
    };
    let turns = ids.iter().map(|id| session.turn(id.seq));
    turns.filter_map(Result::transpose).collect()
}

/// The turns of an agent in one state but [`StateKind::Captured`], in the order of their ids.
pub(crate) fn moved(
    store: &Store,
    agent: &AgentId,
    kind: StateKind,
) -> Result<Vec<TurnId>, TxnError> {
    ids_under(store, &keys::index_prefix(kind, agent))
}

/// Those of one session, by its number; also captured ones.
pub(crate) fn in_session(
    store: &Store,
    agent: &AgentId,
    kind: StateKind,
    number: u64,
) -> Result<Vec<TurnId>, TxnError> {
    if kind != StateKind::Captured {
        let prefix = keys::index_prefix(kind, agent);
        return ids_under(store, &[&prefix[..], &keys::session(number)].concat());
    }
    let session: Option<SessionRecord> =
        values::get_json(store, Table::Sessions, &keys::session(number))?;
    if session.is_none_or(|session| session.agent != *agent) {
        return Ok(Vec::new());
    }
    let mut moved = BTreeSet::new();
    for pair in store.range(Table::States, keys::under(&keys::session(number))) {
        moved.extend(keys::read_turn(&pair?.0));
    }
    let mut ids = turn_ids(store, number)?;
    ids.retain(|id| !moved.contains(id));
    Ok(ids)
}

fn ids_under(store: &Store, prefix: &[u8]) -> Result<Vec<TurnId>, TxnError> {
    let mut ids = Vec::new();
    for pair in store.range(Table::Index, keys::under(prefix)) {
        ids.extend(keys::read_turn(&pair?.0));
    }
    Ok(ids)
}

/// The numbers of an agent's sessions, in order.
pub(crate) fn numbers(store: &Store, agent: &AgentId) -> Result<Vec<u64>, TxnError> {
    let mut numbers = Vec::new();
    for pair in store.range(Table::Names, keys::under(&keys::agent(agent))) {
        numbers.extend(keys::read_u64(&pair?.1));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// When the last main turn ended, in Unix milliseconds; none if there is none among the last few.
pub(crate) fn last_main_ms(store: &Store) -> Result<Option<u64>, TxnError> {
    for entry in journal::newest_first(store, None).take(ERRANDS) {
        let (_, entry) = entry?;
        let Some(record) = Record::get(store, entry.id)? else {
            continue;
        };
        let header = record.header(entry.id)?;
        if header.kind == TurnKind::Main {
            return Ok(Some(header.ended_ms()));
        }
    }
    Ok(None)
}

/// The chains that a new request may go on from, the newest first.
pub(crate) fn recent_chains(
    store: &Store,
    limit: usize,
) -> Result<Vec<(AgentId, ChainHash, SessionId)>, TxnError> {
    let (mut seen, mut chains) = (BTreeSet::new(), Vec::new());
    for entry in journal::newest_first(store, None) {
        if chains.len() >= limit {
            break;
        }
        let id = entry?.1.id;
        if !seen.insert(id) {
            continue;
        }
        let Some(record) = Record::get(store, id)? else {
            continue;
        };
        let session: Option<SessionRecord> =
            values::get_json(store, Table::Sessions, &keys::session(id.session))?;
        if let (Some(after), Some(session)) = (record.header(id)?.after(), session) {
            chains.push((session.agent, after, session.session));
        }
    }
    Ok(chains)
}

/// All sessions, or those of one agent, the newest first.
pub(crate) fn sessions(
    store: &Store,
    agent: Option<&AgentId>,
    limit: usize,
) -> Result<Vec<SessionSummary>, TxnError> {
    let mut found = Vec::new();
    for pair in store.range(Table::Sessions, keys::under(&[])).rev() {
        let (key, _) = pair?;
        let Some(number) = keys::read_u64(&key).filter(|_| key.len() == 8) else {
            continue;
        };
        let record: Option<SessionRecord> = values::get_json(store, Table::Sessions, &key)?;
        let Some(record) = record.filter(|it| agent.is_none_or(|agent| *agent == it.agent)) else {
            continue;
        };
        let ids = turn_ids(store, number)?;
        let ended = |id: &TurnId| {
            let record = Record::get(store, *id)?;
            let header = record.map(|record| record.header(*id)).transpose()?;
            Ok::<_, TxnError>(header.map(|header| header.ended_ms()))
        };
        let ended_ms = ids.last().map(ended).transpose()?.flatten();
        found.push(SessionSummary {
            number,
            agent: record.agent,
            session: record.session,
            n_turns: ids.len(),
            created_ms: record.created_ms,
            ended_ms: ended_ms.unwrap_or(record.created_ms),
        });
        if found.len() >= limit {
            break;
        }
    }
    Ok(found)
}

/// The counts of one agent, or of all together.
pub(crate) fn funnel(store: &Store, agent: Option<&AgentId>) -> Result<Funnel, TxnError> {
    let mut sum = Funnel::default();
    for name in agents(store)? {
        if agent.is_none_or(|agent| *agent == name) {
            let counts = values::get_json(store, Table::Counts, &keys::agent(&name))?;
            sum.add(&counts.unwrap_or_default());
        }
    }
    Ok(sum)
}

/// Every agent that has turns, or had some.
pub(crate) fn agents(store: &Store) -> Result<Vec<AgentId>, TxnError> {
    let mut agents: Vec<AgentId> = Vec::new();
    for pair in store.range(Table::Counts, keys::under(&[])) {
        let agent = keys::read_agent(&pair?.0);
        agents.extend(agent.filter(|agent| agents.last() != Some(agent)));
    }
    Ok(agents)
}

/// Turns with this reply id among those of the next transactions before one, the last first; and where
/// to go on.
pub(crate) fn replied(
    store: &Store,
    reply_id: &str,
    before: Option<u64>,
) -> Result<(Vec<TurnId>, Option<u64>), TxnError> {
    let mark = mark(Some(reply_id));
    let (mut found, mut n_read) = (Vec::new(), 0);
    let mut last = None;
    for (n, entry) in journal::newest_first(store, before).enumerate() {
        let (number, entry) = entry?;
        if (n >= LOOKED_THROUGH || n_read >= READ) && last.is_some_and(|last| last != number) {
            return Ok((found, last));
        }
        last = Some(number);
        // The mark is half a hash: the record decides.
        if entry.reply == mark {
            n_read += 1;
            let record = Record::get(store, entry.id)?;
            let header = record.map(|record| record.header(entry.id)).transpose()?;
            let is_it = header.is_some_and(|header| header.reply_id.as_deref() == Some(reply_id));
            found.extend(is_it.then_some(entry.id));
        }
    }
    Ok((found, None))
}

/// The adapter that each agent is served with.
pub(crate) fn serving(store: &Store) -> Result<Vec<(AgentId, String)>, TxnError> {
    let mut serving = Vec::new();
    for pair in store.range(Table::Serving, keys::under(&[])) {
        let (key, adapter) = pair?;
        let adapter = String::from_utf8(adapter.to_vec()).ok();
        serving.extend(keys::read_agent(&key).zip(adapter));
    }
    Ok(serving)
}

/// The keys that the last turns were handed in with, and their ids.
pub(crate) fn last_keys(store: &Store, n: usize) -> Result<HashMap<u64, TurnId>, TxnError> {
    let mut keys = HashMap::new();
    for entry in journal::newest_first(store, None).take(n) {
        let id = entry?.1.id;
        // One that does not read back is not one of those that were just written.
        let record = Record::get(store, id);
        match record.and_then(|record| record.map(|record| record.header(id)).transpose()) {
            Ok(Some(header)) => {
                keys.insert(header.key, id);
            }
            Ok(None) | Err(TxnError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(keys)
}
