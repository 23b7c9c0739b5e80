//! Lists of turns, a line each.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    rc::Rc,
};

use metaclaw_chat::{Message, TurnId};

use super::{in_session, moved};
use crate::{
    journal,
    read::{SessionReader, number, turn_ids},
    record::{Header, Record},
    state,
    store::Store,
    tokens,
    turn::{StateKind, TurnState},
    values::TxnError,
    verdicts,
    view::{MAX_LIST, TurnFilter, TurnSummary},
};

/// Turns of a list that asks for no number.
const DEFAULT_LIST: usize = 50;
/// Characters of a text in a list.
const SNIPPET: usize = 160;

/// Summaries of the turns that a filter names, the newest first.
pub(crate) fn list(store: &Store, filter: &TurnFilter) -> Result<Vec<TurnSummary>, TxnError> {
    let limit = match filter.limit {
        0 => DEFAULT_LIST,
        limit => limit.min(MAX_LIST),
    };
    let mut sessions: HashMap<u64, Option<SessionReader<'_>>> = HashMap::new();
    let mut found = Vec::new();
    for id in candidates(store, filter)? {
        let id = id?;
        let session = match sessions.entry(id.session) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(SessionReader::of(store, id.session)?),
        };
        let Some(session) = session.as_ref().filter(|it| is_theirs(filter, it)) else {
            continue;
        };
        let state = state::get(store, id)?;
        if filter.state.is_none_or(|kind| kind == state.kind()) {
            found.extend(summary(store, session, id, state)?);
        }
        if found.len() >= limit {
            break;
        }
    }
    Ok(found)
}

/// Whether a session is one of those that a filter names.
fn is_theirs(filter: &TurnFilter, session: &SessionReader<'_>) -> bool {
    let (agent, name) = (&session.session.agent, &session.session.session);
    filter.agent.as_ref().is_none_or(|it| it == agent)
        && filter.session.as_ref().is_none_or(|it| it == name)
}

type Ids<'a> = Box<dyn Iterator<Item = Result<TurnId, TxnError>> + 'a>;

/// Turns that a filter may name, the newest first, from the table that has the fewest others.
fn candidates<'a>(store: &'a Store, filter: &TurnFilter) -> Result<Ids<'a>, TxnError> {
    let ids = match (&filter.agent, &filter.session, filter.state) {
        (Some(agent), Some(session), state) => match number(store, agent, session)? {
            None => Vec::new(),
            Some(number) => match state {
                Some(kind) => in_session(store, agent, kind, number)?,
                None => turn_ids(store, number)?,
            },
        },
        (Some(agent), None, Some(kind)) if kind != StateKind::Captured => {
            moved(store, agent, kind)?
        }
        _ => return Ok(by_arrival(store, filter.before)),
    };
    let before = filter.before;
    let ids = ids.into_iter().rev();
    Ok(Box::new(
        ids.filter(move |id| before.is_none_or(|before| *id < before))
            .map(Ok),
    ))
}

/// All turns, or those behind one in the list.
fn by_arrival(store: &Store, before: Option<TurnId>) -> Ids<'_> {
    let mut seen = HashSet::new();
    let mut is_behind = before.is_none();
    let turns = journal::newest_first(store, None).filter_map(move |entry| match entry {
        Err(error) => Some(Err(error.into())),
        Ok((_, entry)) => {
            // One that was tried again stands where its last try does.
            let is_new = seen.insert(entry.id);
            let is_next = is_new && is_behind;
            is_behind |= before == Some(entry.id);
            is_next.then_some(Ok(entry.id))
        }
    });
    Box::new(turns)
}

fn summary(
    store: &Store,
    session: &SessionReader<'_>,
    id: TurnId,
    state: TurnState,
) -> Result<Option<TurnSummary>, TxnError> {
    let Some(record) = session.record(id.seq)? else {
        return Ok(None);
    };
    let header = record.header(id)?;
    let served = &session.setup(id.seq, &header)?.served;
    let asked = asked(session, id.seq, &record, &header)?;
    let reply = session.reply(&record, &header)?;
    Ok(Some(TurnSummary {
        id,
        agent: session.session.agent.clone(),
        session: session.session.session.clone(),
        kind: header.kind,
        end: header.end,
        started_ms: header.started_ms,
        ended_ms: header.ended_ms(),
        model: served.model.clone(),
        adapter: served.adapter.clone(),
        n_messages: header.n_said as usize,
        asked,
        answered: reply.as_ref().map(snippet),
        state,
        score: verdicts::all(store, id)?.last().map(|it| it.score),
        has_ids: tokens::has(store, id)?,
    }))
}

/// The owner's last message among those that are new in a turn; of a request that says nothing new, as one
/// that was sent twice, among all.
fn asked(
    session: &SessionReader<'_>,
    seq: u32,
    record: &Rc<Record>,
    header: &Header,
) -> Result<Option<String>, TxnError> {
    let n_new = match header.n_said.saturating_sub(header.new_from) {
        0 => header.n_said,
        n_new => n_new,
    };
    let new = session.messages(seq, (record, header), n_new as usize)?;
    for line in new.iter().rev() {
        let message: Message = session.value(line)?;
        if message.is_owners() {
            return Ok(Some(cut(&message.text())));
        }
    }
    Ok(None)
}

fn snippet(message: &Message) -> String {
    let text = message.text();
    if !text.is_empty() {
        return cut(&text);
    }
    let calls = message.tool_calls();
    let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
    cut(&names.join(", "))
}

/// The beginning of a text, on one line.
fn cut(text: &str) -> String {
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match one_line.char_indices().nth(SNIPPET) {
        Some((end, _)) => format!("{}…", &one_line[..end]),
        None => one_line,
    }
}
