//! Lists of turns, a line each.

use metaclaw_chat::{Message, TurnId, Verdict};

use super::{Sessions, number, turn_ids};
use crate::{
    index, keys,
    record::{Line, Record, Setup},
    resolve::Resolver,
    state,
    store::{StoreError, Table},
    tail::SessionRecord,
    times::{self, Place},
    turn::TurnState,
    txn::{Fault, Reader, Source},
    view::{MAX_LIST, TurnFilter, TurnSummary},
};

/// Turns of a list that asks for no number.
const DEFAULT_LIST: usize = 50;
/// Characters of a text in a list.
const SNIPPET: usize = 160;

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
    if let (Some(agent), Some(kind)) = (&filter.agent, filter.state) {
        let ids = index::under(reader, &keys::index_prefix(kind, agent), filter.before);
        return Ok(Box::new(ids.rev()));
    }
    let before = filter.before.map(|id| ended(reader, id)).transpose()?;
    let turns = times::newest_first(reader, before);
    Ok(Box::new(turns.map(|turn| Ok(turn?.id))))
}

/// When a turn ended; one that is not there, before all others.
fn ended(reader: &Reader, id: TurnId) -> Result<Place, Fault> {
    let record = Record::get(reader, id)?;
    let ended_ms = record.map_or(0, |record| record.header.ended_ms());
    Ok((ended_ms, id))
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
        asked: asked(reader, id, &record.new)?,
        answered: record
            .reply
            .map(|reply| snippet(reader, &reply))
            .transpose()?,
        state,
        score: verdict.map(|verdict| verdict.score),
        has_ids,
    }))
}

/// The owner's last message among those that are new in a turn; of a request that says nothing new, as one
/// that was sent twice, among all.
fn asked(reader: &Reader, id: TurnId, new: &[Line]) -> Result<Option<String>, Fault> {
    if !new.is_empty() {
        return last_of_owner(reader, new);
    }
    let resolved = Resolver::new(reader, id.session).resolve(id.seq)?;
    let messages = resolved.as_ref().map_or(&[][..], |it| it.messages());
    last_of_owner(reader, messages)
}

fn last_of_owner(reader: &Reader, messages: &[Line]) -> Result<Option<String>, Fault> {
    for line in messages.iter().rev() {
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
