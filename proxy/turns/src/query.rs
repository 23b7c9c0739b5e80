//! Questions to the log. They read what is stored, never a batch on its way.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use metaclaw_chat::{AgentId, ChainHash, Message, SessionId, TurnId, Verdict};

use crate::{
    keys,
    record::{Line, Record, Setup},
    resolve::Resolver,
    state,
    store::{Key, StoreError, Table},
    tail::SessionRecord,
    turn::{StateKind, Turn, TurnKind, TurnState},
    txn::{Fault, Reader, Source},
    view::{Funnel, MAX_LIST, SessionSummary, TurnFilter, TurnSummary},
};

/// Turns of a list that asks for no number.
const DEFAULT_LIST: usize = 50;
/// Characters of a text in a list.
const SNIPPET: usize = 160;
/// Side turns in a row behind which a main one is looked for.
const ERRANDS: usize = 200;

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
    indexed(reader, &keys::index_prefix(kind, agent))
}

/// Those of one session, by its number.
pub(crate) fn in_session(
    reader: &Reader,
    agent: &AgentId,
    kind: StateKind,
    number: u64,
) -> Result<Vec<TurnId>, Fault> {
    let agents = keys::index_prefix(kind, agent);
    indexed(reader, &[&agents[..], &keys::session(number)].concat())
}

fn indexed(reader: &Reader, prefix: &[u8]) -> Result<Vec<TurnId>, Fault> {
    let (from, to) = keys::under(prefix);
    let ids = reader.store.range(Table::Index, from, to);
    let ids = ids.filter_map(|pair| pair.map(|(key, _)| keys::read_turn(&key)).transpose());
    Ok(ids.collect::<Result<_, StoreError>>()?)
}

/// When the last main turn ended, in Unix milliseconds; none if there is none among the last few.
pub(crate) fn last_main_ms(reader: &Reader) -> Result<Option<u64>, Fault> {
    let (from, to) = keys::under(&[]);
    for pair in reader
        .store
        .range(Table::Times, from, to)
        .rev()
        .take(ERRANDS)
    {
        let (key, _) = pair?;
        let Some(id) = keys::read_turn(&key) else {
            continue;
        };
        if let Some(record) = Record::get(reader, id)?
            && record.header.kind == TurnKind::Main
        {
            return Ok(Some(record.header.ended_ms()));
        }
    }
    Ok(None)
}

/// The chains that a new request may go on from, the newest first.
pub(crate) fn recent_chains(
    reader: &Reader,
    limit: usize,
) -> Result<Vec<(AgentId, ChainHash, SessionId)>, Fault> {
    let (from, to) = keys::under(&[]);
    let mut sessions = Sessions::default();
    let mut chains = Vec::new();
    for pair in reader.store.range(Table::Times, from, to).rev() {
        if chains.len() >= limit {
            break;
        }
        let (key, _) = pair?;
        let Some(id) = keys::read_turn(&key) else {
            continue;
        };
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

/// Summaries of the turns that a filter names, the newest first.
pub(crate) fn list(reader: &Reader, filter: &TurnFilter) -> Result<Vec<TurnSummary>, Fault> {
    let limit = match filter.limit {
        0 => DEFAULT_LIST,
        limit => limit.min(MAX_LIST),
    };
    let mut sessions = Sessions::default();
    let mut found = Vec::new();
    for id in candidates(reader, filter)? {
        let id = id?;
        let Some(session) = sessions.get(reader, id.session)? else {
            continue;
        };
        let is_agent = filter
            .agent
            .as_ref()
            .is_none_or(|agent| *agent == session.agent);
        let is_session = filter
            .session
            .as_ref()
            .is_none_or(|name| *name == session.session);
        if !is_agent || !is_session {
            continue;
        }
        let state = state::get(reader, id)?;
        if filter.state.is_none_or(|kind| kind == state.kind()) {
            found.extend(summary(reader, &session, id, state)?);
        }
        if found.len() >= limit {
            break;
        }
    }
    Ok(found)
}

type Ids<'a> = Box<dyn Iterator<Item = Result<TurnId, StoreError>> + 'a>;

/// Turns that a filter may name, the newest first, from the table that has the fewest others.
fn candidates<'a>(reader: &'a Reader, filter: &TurnFilter) -> Result<Ids<'a>, Fault> {
    if let (Some(agent), Some(session)) = (&filter.agent, &filter.session) {
        let number = number(reader, agent, session)?;
        let ids = number.map(|number| turn_ids(reader, agent, number));
        let ids = ids.transpose()?;
        let before = filter.before;
        let ids = ids.unwrap_or_default().into_iter().rev();
        return Ok(Box::new(
            ids.filter(move |id| before.is_none_or(|before| *id < before))
                .map(Ok),
        ));
    }
    let (mut table, mut prefix) = (Table::Times, Key::default());
    if let (Some(agent), Some(kind)) = (&filter.agent, filter.state) {
        (table, prefix) = (Table::Index, keys::index_prefix(kind, agent));
    }
    let (from, mut to) = keys::under(&prefix);
    if let Some(before) = filter.before {
        to = match table {
            Table::Times => Bound::Excluded(time_key(reader, before)?),
            _ => Bound::Excluded([&prefix[..], &keys::turn(before)].concat().into()),
        };
    }
    let pairs = reader.store.range(table, from, to).rev();
    Ok(Box::new(pairs.filter_map(|pair| {
        pair.map(|(key, _)| keys::read_turn(&key)).transpose()
    })))
}

fn time_key(reader: &Reader, id: TurnId) -> Result<Key, Fault> {
    let record = Record::get(reader, id)?;
    Ok(keys::time(
        record.map_or(0, |record| record.header.ended_ms()),
        id,
    ))
}

/// A turn's record with the first setup behind it.
fn setup(reader: &Reader, id: TurnId, record: &Record) -> Result<Option<Setup>, Fault> {
    let (mut found, mut base) = (record.setup.clone(), record.header.base);
    while let (None, Some(seq)) = (&found, base) {
        let Some(record) = Record::get(reader, TurnId { seq, ..id })? else {
            return Ok(None);
        };
        (found, base) = (record.setup, record.header.base.filter(|base| *base < seq));
    }
    Ok(found)
}

fn summary(
    reader: &Reader,
    session: &SessionRecord,
    id: TurnId,
    state: TurnState,
) -> Result<Option<TurnSummary>, Fault> {
    let Some(record) = Record::get(reader, id)? else {
        return Ok(None);
    };
    let served = setup(reader, id, &record)?
        .map(|setup| setup.served)
        .unwrap_or_default();
    let verdict: Option<Verdict> = reader.get_json(Table::Verdicts, &keys::turn(id))?;
    let has_ids = reader
        .get(Table::Tokens, &keys::piece(&keys::turn(id), 0))?
        .is_some();
    let header = record.header;
    Ok(Some(TurnSummary {
        id,
        agent: session.agent.clone(),
        session: session.session.clone(),
        kind: header.kind,
        end: header.end,
        started_ms: header.started_ms,
        ended_ms: header.ended_ms(),
        model: served.model,
        adapter: served.adapter,
        n_messages: header.n_messages(),
        asked: asked(reader, &record.new)?,
        answered: record
            .reply
            .map(|reply| snippet(reader, &reply))
            .transpose()?,
        state,
        score: verdict.map(|verdict| verdict.score),
        has_ids,
    }))
}

/// The owner's last message among a record's own.
fn asked(reader: &Reader, new: &[Line]) -> Result<Option<String>, Fault> {
    for line in new.iter().rev() {
        let message: Message = line.value(reader)?;
        if message.is_owners() {
            return Ok(Some(cut(&message.text())));
        }
    }
    Ok(None)
}

fn snippet(reader: &Reader, line: &Line) -> Result<String, Fault> {
    let message: Message = line.value(reader)?;
    let text = message.text();
    if text.is_empty() {
        let calls = message.tool_calls();
        let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        return Ok(cut(&names.join(", ")));
    }
    Ok(cut(&text))
}

/// The beginning of a text, on one line.
fn cut(text: &str) -> String {
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match one_line.char_indices().nth(SNIPPET) {
        Some((end, _)) => format!("{}…", &one_line[..end]),
        None => one_line,
    }
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

/// Turns with this reply id: of each session the latest.
pub(crate) fn by_reply(reader: &Reader, reply_id: &str) -> Result<Vec<TurnId>, Fault> {
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
