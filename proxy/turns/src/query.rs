//! Questions to the log. They read what is stored, never a batch on its way.

mod list;

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::{AgentId, ChainHash, Message, SessionId, TurnId};

pub(crate) use self::list::list;
use crate::{
    index, keys,
    record::Record,
    resolve::Resolver,
    store::Table,
    tail::SessionRecord,
    times::{self, Place},
    turn::{StateKind, Turn, TurnKind},
    txn::{Fault, Reader, Source},
    view::{Funnel, SessionSummary},
};

/// Side turns in a row behind which a main one is looked for.
const ERRANDS: usize = 200;
/// Turns that are looked through at once for a reply: the log's thread has other things to do.
const LOOKED_THROUGH: usize = 10_000;
/// Turns that are read at once because they may have it. Some servers give every reply the same id.
const READ: usize = 100;

/// Sessions that one question has seen: most of its turns are of few.
#[derive(Debug, Default)]
struct Sessions(BTreeMap<u64, Option<Arc<SessionRecord>>>);

// === impl Sessions ===

impl Sessions {
    fn get(&mut self, reader: &Reader, number: u64) -> Result<Option<Arc<SessionRecord>>, Fault> {
        if let Some(known) = self.0.get(&number) {
            return Ok(known.clone());
        }
        let record = reader.get_json(Table::Sessions, &keys::session(number))?;
        let record = record.map(Arc::new);
        self.0.insert(number, record.clone());
        Ok(record)
    }
}

/// One turn.
pub(crate) fn turn(reader: &Reader, id: TurnId) -> Result<Option<Turn>, Fault> {
    match Sessions::default().get(reader, id.session)? {
        Some(session) => Resolver::new(reader, id.session).turn(&session, id.seq),
        None => Ok(None),
    }
}

/// The session's number.
fn number(reader: &Reader, agent: &AgentId, session: &SessionId) -> Result<Option<u64>, Fault> {
    let number = reader.get(Table::Names, &keys::name(agent, session))?;
    Ok(number.and_then(|number| keys::read_u64(&number)))
}

/// The last `last` turns of a session, in order.
pub(crate) fn session_turns(
    reader: &Reader,
    agent: &AgentId,
    session: &SessionId,
    last: usize,
) -> Result<Vec<Turn>, Fault> {
    let Some(number) = number(reader, agent, session)? else {
        return Ok(Vec::new());
    };
    let record = SessionRecord {
        agent: agent.clone(),
        session: session.clone(),
        created_ms: 0,
    };
    let ids = turn_ids(reader, agent, number)?;
    let mut resolver = Resolver::new(reader, number);
    let turns = ids[ids.len().saturating_sub(last)..].iter();
    let turns = turns.map(|id| resolver.turn(&record, id.seq));
    turns.filter_map(Result::transpose).collect()
}

/// The ids of a session's turns, in order.
pub(crate) fn turn_ids(
    reader: &Reader,
    agent: &AgentId,
    number: u64,
) -> Result<Vec<TurnId>, Fault> {
    // By index: each turn is there once, and a record may have many pieces.
    let in_state = |kind| in_session(reader, agent, kind, number);
    let ids = StateKind::ALL.into_iter().map(in_state);
    let mut ids = ids.collect::<Result<Vec<_>, Fault>>()?.concat();
    ids.sort_unstable();
    Ok(ids)
}

/// The turns of an agent in one state, in the order of their ids.
pub(crate) fn in_state(
    reader: &Reader,
    agent: &AgentId,
    kind: StateKind,
) -> Result<Vec<TurnId>, Fault> {
    let ids = index::under(reader, &keys::index_prefix(kind, agent), None);
    Ok(ids.collect::<Result<_, _>>()?)
}

/// Those of one session, by its number.
pub(crate) fn in_session(
    reader: &Reader,
    agent: &AgentId,
    kind: StateKind,
    number: u64,
) -> Result<Vec<TurnId>, Fault> {
    let agents = keys::index_prefix(kind, agent);
    let prefix = [&agents[..], &keys::session(number)].concat();
    Ok(index::under(reader, &prefix, None).collect::<Result<_, _>>()?)
}

/// When the last main turn ended, in Unix milliseconds; none if there is none among the last few.
pub(crate) fn last_main_ms(reader: &Reader) -> Result<Option<u64>, Fault> {
    for turn in times::newest_first(reader, None).take(ERRANDS) {
        let turn = turn?;
        if let Some(record) = Record::get(reader, turn.id)?
            && record.header.kind == TurnKind::Main
        {
            return Ok(Some(turn.at_ms));
        }
    }
    Ok(None)
}

/// The chains that a new request may go on from, the newest first.
pub(crate) fn recent_chains(
    reader: &Reader,
    limit: usize,
) -> Result<Vec<(AgentId, ChainHash, SessionId)>, Fault> {
    let mut sessions = Sessions::default();
    let mut chains = Vec::new();
    for turn in times::newest_first(reader, None) {
        if chains.len() >= limit {
            break;
        }
        let id = turn?.id;
        let Some(session) = sessions.get(reader, id.session)? else {
            continue;
        };
        if let Some(after) = after(reader, id)? {
            chains.push((session.agent.clone(), after, session.session.clone()));
        }
    }
    Ok(chains)
}

/// A turn's chain with its reply, without looking at its messages.
fn after(reader: &Reader, id: TurnId) -> Result<Option<ChainHash>, Fault> {
    let Some(record) = Record::get(reader, id)? else {
        return Ok(None);
    };
    let Some(reply) = record.reply else {
        return Ok(None);
    };
    let reply: Message = reply.value(reader)?;
    let is_reply = reply.role() == metaclaw_chat::Role::Assistant;
    Ok(is_reply.then(|| record.header.chain.then(&reply)))
}

/// All sessions, or those of one agent, the newest first.
pub(crate) fn sessions(
    reader: &Reader,
    agent: Option<&AgentId>,
    limit: usize,
) -> Result<Vec<SessionSummary>, Fault> {
    let (from, to) = keys::under(&[]);
    let mut found = Vec::new();
    for pair in reader.store.range(Table::Sessions, from, to).rev() {
        let (key, _) = pair?;
        let (Some(number), true) = (key.first_chunk::<8>(), key.ends_with(&[0, 0])) else {
            continue;
        };
        let number = u64::from_be_bytes(*number);
        let record: Option<SessionRecord> =
            reader.get_json(Table::Sessions, &keys::session(number))?;
        let Some(record) = record.filter(|it| agent.is_none_or(|agent| *agent == it.agent)) else {
            continue;
        };
        let ids = turn_ids(reader, &record.agent, number)?;
        let last = ids
            .last()
            .map(|id| Record::get(reader, *id))
            .transpose()?
            .flatten();
        found.push(SessionSummary {
            number,
            agent: record.agent,
            session: record.session,
            n_turns: ids.len(),
            created_ms: record.created_ms,
            ended_ms: last.map_or(record.created_ms, |last| last.header.ended_ms()),
        });
        if found.len() >= limit {
            break;
        }
    }
    Ok(found)
}

/// The counts of one agent, or of all together.
pub(crate) fn funnel(reader: &Reader, agent: Option<&AgentId>) -> Result<Funnel, Fault> {
    let mut sum = Funnel::default();
    for name in agents(reader)? {
        if agent.is_none_or(|agent| *agent == name) {
            let counts = reader.get_json(Table::Counts, &keys::agent_prefix(&name))?;
            sum.add(&counts.unwrap_or_default());
        }
    }
    Ok(sum)
}

/// Every agent that has turns.
pub(crate) fn agents(reader: &Reader) -> Result<Vec<AgentId>, Fault> {
    let (from, to) = keys::under(&[]);
    let mut agents: Vec<AgentId> = Vec::new();
    for pair in reader.store.range(Table::Counts, from, to) {
        agents.extend(agent_in(&pair?.0).filter(|agent| agents.last() != Some(agent)));
    }
    Ok(agents)
}

fn agent_in(key: &[u8]) -> Option<AgentId> {
    let end = key.iter().position(|byte| *byte == 0)?;
    str::from_utf8(&key[..end]).ok()?.parse().ok()
}

/// Turns with this reply id that are entered by it: those whose API names replies, and those that were
/// written before format 3.
pub(crate) fn named(reader: &Reader, reply_id: &str) -> Result<Vec<TurnId>, Fault> {
    let (from, to) = keys::under(&keys::reply_hash(reply_id));
    let mut found = Vec::new();
    for pair in reader.store.range(Table::Replies, from, to) {
        let (key, seq) = pair?;
        let session = key
            .last_chunk::<8>()
            .map(|number| u64::from_be_bytes(*number));
        let seq = keys::read_u32(&seq);
        found.extend(
            session
                .zip(seq)
                .map(|(session, seq)| TurnId { session, seq }),
        );
    }
    Ok(found)
}

/// Turns with this reply id among the next before one, [`LOOKED_THROUGH`] or fewer, the last first; and
/// where to go on.
pub(crate) fn replied(
    reader: &Reader,
    reply_id: &str,
    before: Option<Place>,
) -> Result<(Vec<TurnId>, Option<Place>), Fault> {
    let mark = times::mark(Some(&keys::reply_hash(reply_id)));
    let (mut found, mut n_read) = (Vec::new(), 0);
    for (turn, n) in times::newest_first(reader, before).zip(1..) {
        let turn = turn?;
        // The mark is half a hash: the record decides.
        if turn.reply == mark {
            n_read += 1;
            let record = Record::get(reader, turn.id)?;
            let reply = record.and_then(|record| record.header.reply_id);
            found.extend((reply.as_deref() == Some(reply_id)).then_some(turn.id));
        }
        if n == LOOKED_THROUGH || n_read == READ {
            return Ok((found, Some((turn.at_ms, turn.id))));
        }
    }
    Ok((found, None))
}

/// The adapter that each agent is served with.
pub(crate) fn serving(reader: &Reader) -> Result<Vec<(AgentId, String)>, Fault> {
    let (from, to) = keys::under(&[]);
    let mut serving = Vec::new();
    for pair in reader.store.range(Table::Serving, from, to) {
        let (key, adapter) = pair?;
        let adapter = String::from_utf8(adapter.to_vec()).ok();
        serving.extend(agent_in(&key).zip(adapter));
    }
    Ok(serving)
}
