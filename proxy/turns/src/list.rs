//! Lists of turns with one line each.

use std::collections::{HashMap, hash_map::Entry};

use metaclaw_chat::{
    AgentId, LOOKED_BACK, Message, Role, Score, SessionId, TurnId, Usage, utterances,
};
use serde::{Deserialize, Serialize};

use crate::{
    journal, keys,
    lines::LineReader,
    log::{LogFuture, TurnLog},
    prompt::cut,
    query::{in_session, moved},
    read::reply,
    record::{LineRun, Record, Setup},
    session::SessionRecord,
    state,
    store::Store,
    texts, tokens,
    turn::{BreakCause, StateKind, StreamEnd, TurnKind, TurnState},
    values::{self, TxnError, TxnResult},
    verdicts,
};

const DEFAULT_LIST: usize = 50;
pub(crate) const SNIPPET: usize = 160;

/// The largest number of turns in one list.
pub const MAX_LIST: usize = 1_000;

/// Selects turns for a list, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnFilter {
    /// Only the turns of this agent.
    pub agent: Option<AgentId>,
    /// Only the turns of this session. Without `agent`, of every agent that has a session of this name.
    pub session: Option<SessionId>,
    /// Only turns in this state.
    pub state: Option<StateKind>,
    /// At most this many, up to [`MAX_LIST`]; 0 means 50.
    pub limit: usize,
    /// Only turns that come after this one in the list: the last id of the previous page.
    pub before: Option<TurnId>,
}

/// One line about a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnSummary {
    pub id: TurnId,
    /// Whose turn it is.
    pub agent: AgentId,
    pub session: SessionId,
    /// Its kind.
    pub kind: TurnKind,
    /// How the stream ended.
    pub end: StreamEnd,
    /// When the request had been read, in Unix milliseconds.
    pub started_ms: u64,
    /// When the stream ended.
    pub ended_ms: u64,
    /// The upstream's name in the configuration.
    pub upstream: String,
    /// The requested model.
    pub model: String,
    /// The adapter that answered.
    pub adapter: Option<String>,
    /// Messages in the request.
    pub n_messages: usize,
    /// The beginning of the owner's last message among the new ones, or among all if none is new (a request that was
    /// sent twice).
    pub asked: Option<String>,
    /// The beginning of the reply.
    pub answered: Option<String>,
    /// Its state.
    pub state: TurnState,
    pub score: Option<Score>,
    /// Whether the verdict has a hint.
    pub is_hinted: bool,
    /// Whether its token ids are known.
    pub has_ids: bool,
    /// The upstream's token counts.
    pub usage: Option<Usage>,
    /// The names of the skills in its prompt.
    pub skills: Vec<String>,
    /// The characters that lessons added to its prompt.
    #[serde(default)]
    pub added_chars: u64,
    /// Why its prompt broke with an earlier one of its session, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<BreakCause>,
}

/// A turn's line, with the texts whose beginnings it shows.
pub(crate) struct ListedTurn {
    pub(crate) line: TurnSummary,
    pub(crate) asked: String,
    pub(crate) answered: String,
}

// === impl TurnLog ===

impl TurnLog {
    /// Returns one line for each turn that the filter selects, the newest first.
    ///
    /// # Errors
    /// Returns the store's error, or `LogError::Damaged` if a value cannot be read.
    pub fn list(&self, filter: TurnFilter) -> LogFuture<'_, Vec<TurnSummary>> {
        self.read(move |store| list(store, &filter))
    }

    /// Returns what would have been better, by the valid verdicts on these turns: each text once. Turns that are
    /// deleted have none.
    pub fn hints(&self, turns: Vec<TurnId>) -> LogFuture<'_, Vec<String>> {
        self.read(move |store| hints(store, &turns))
    }
}

fn hints(store: &Store, turns: &[TurnId]) -> TxnResult<Vec<String>> {
    let mut hints = Vec::new();
    for id in turns {
        let verdict = values::readable(verdicts::all(store, *id))?.and_then(|mut all| all.pop());
        let hint = verdict.and_then(|verdict| verdict.hint);
        hints.extend(hint.filter(|hint| !hints.contains(hint)));
    }
    Ok(hints)
}

fn list(store: &Store, filter: &TurnFilter) -> TxnResult<Vec<TurnSummary>> {
    let limit = match filter.limit {
        0 => DEFAULT_LIST,
        limit => limit.min(MAX_LIST),
    };
    let mut sessions: HashMap<u64, Option<SessionRecord>> = HashMap::new();
    let mut lines = LineReader::new(store);
    let mut found = Vec::new();
    for id in candidates(store, filter)? {
        let id = id?;
        let session = match sessions.entry(id.session) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let session = values::readable(SessionRecord::get(store, id.session))?;
                new.insert(session.flatten())
            }
        };
        let Some(session) = session
            .as_ref()
            .filter(|session| is_theirs(filter, session))
        else {
            continue;
        };
        let is_wanted = match filter.state {
            Some(kind) => state::get(store, id)?.kind() == kind,
            None => true,
        };
        if is_wanted {
            lines.trim();
            let turn = listed(store, &mut lines, session, id);
            found.extend(values::readable(turn)?.flatten().map(|turn| turn.line));
        }
        if found.len() >= limit {
            break;
        }
    }
    Ok(found)
}

fn is_theirs(filter: &TurnFilter, session: &SessionRecord) -> bool {
    let (agent, name) = (&session.agent, &session.session);
    filter.agent.as_ref().is_none_or(|wanted| wanted == agent)
        && filter.session.as_ref().is_none_or(|wanted| wanted == name)
}

type FoundIds<'a> = Box<dyn Iterator<Item = TxnResult<TurnId>> + 'a>;

/// Returns turns that may match a filter, the newest first, from the table with the fewest others.
fn candidates<'a>(store: &'a Store, filter: &TurnFilter) -> TxnResult<FoundIds<'a>> {
    let mut ids = match (&filter.agent, &filter.session, filter.state) {
        (Some(agent), Some(session), state) => {
            match SessionRecord::number(store, agent, session)? {
                Some(number) => in_session(store, agent, state, number)?,
                None => Vec::new(),
            }
        }
        (Some(agent), None, Some(kind)) if kind != StateKind::Captured => {
            moved(store, &keys::index_prefix(kind, agent))?
        }
        _ => return Ok(by_arrival(store, filter.before)),
    };
    ids.retain(|id| filter.before.is_none_or(|before| *id < before));
    Ok(Box::new(ids.into_iter().rev().map(Ok)))
}

pub(crate) fn by_arrival(store: &Store, before: Option<TurnId>) -> FoundIds<'_> {
    let mut is_behind = before.is_none();
    let turns = journal::newest_first(store).filter(move |id| {
        let was_behind = is_behind;
        is_behind |= id.as_ref().is_ok_and(|id| before == Some(*id));
        was_behind || id.is_err()
    });
    Box::new(turns.map(|id| id.map_err(TxnError::from)))
}

pub(crate) fn listed(
    store: &Store,
    lines: &mut LineReader<'_, Store>,
    session: &SessionRecord,
    id: TurnId,
) -> TxnResult<Option<ListedTurn>> {
    let Some(turn) = Record::get(store, id)? else {
        return Ok(None);
    };
    // If a part of a turn is damaged, only that part is missing in its line.
    let setup = values::readable(texts::value(store, &turn.setup))?;
    let (_, served): Setup = setup.unwrap_or_default();
    let reply = values::readable(reply(lines, id, &turn))?.flatten();
    let verdict = verdicts::all(store, id)?.pop();
    let meta = &turn.meta;
    let asked = values::readable(asked(lines, id, &turn))?.flatten();
    let answered = reply.as_ref().map(answer);
    let line = TurnSummary {
        id,
        agent: session.agent.clone(),
        session: session.session.clone(),
        kind: meta.kind,
        end: meta.end,
        started_ms: meta.started_ms,
        ended_ms: meta.ended_ms,
        added_chars: served.added_chars(),
        upstream: served.upstream,
        model: served.model,
        adapter: served.adapter,
        n_messages: turn.lines().count(),
        asked: asked.as_deref().map(|text| cut(text, SNIPPET)),
        answered: answered.as_deref().map(|text| cut(text, SNIPPET)),
        state: state::get(store, id)?,
        score: verdict.as_ref().map(|verdict| verdict.score),
        is_hinted: verdict.is_some_and(|verdict| verdict.hint.is_some()),
        has_ids: tokens::has(store, id)?,
        usage: meta.usage,
        skills: served.skills.into_iter().map(|skill| skill.name).collect(),
        broken: turn.prefix.map(|prefix| prefix.cause),
    };
    Ok(Some(ListedTurn {
        line,
        asked: asked.unwrap_or_default(),
        answered: answered.unwrap_or_default(),
    }))
}

/// Returns the last typed text among the new messages of a turn, or among all messages if none is new (a request that
/// was sent twice).
fn asked(
    lines: &mut LineReader<'_, Store>,
    id: TurnId,
    turn: &Record,
) -> TxnResult<Option<String>> {
    let (before, new): (&[LineRun], _) = if turn.new.is_empty() {
        (&[], &turn.old)
    } else {
        (&turn.old, &turn.new)
    };
    let new = lines.messages(id, new)?;
    if new.iter().all(|message| message.role() != Role::User) {
        return Ok(None);
    }
    // Text that the model wrote in its calls may come back in a message.
    let mut all = lines.messages(id, &last_lines(before))?;
    let from = all.len();
    all.extend(new);
    let asked = utterances(&all).next().filter(|(at, _)| *at >= from);
    Ok(asked.map(|(_, utterance)| utterance.text.into_owned()))
}

fn last_lines(runs: &[LineRun]) -> Vec<LineRun> {
    let mut room = u32::try_from(LOOKED_BACK).unwrap_or(u32::MAX);
    let mut last = Vec::new();
    for (from, to, seq) in runs.iter().rev() {
        if room == 0 {
            break;
        }
        // The turn that has the first line of the whole run has this one, or comes before the one that has it.
        let from = (*from).max(to.saturating_sub(room));
        last.push((from, *to, *seq));
        room -= to.saturating_sub(from);
    }
    last.reverse();
    last
}

/// Returns the text of a reply, or the names of the tools that it calls.
fn answer(message: &Message) -> String {
    let text = message.text();
    if !text.is_empty() {
        return text.into_owned();
    }
    let calls = message.tool_calls();
    let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
    names.join(", ")
}
