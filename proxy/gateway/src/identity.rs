//! Who is asking: which agent, in which session, for the owner or on an errand of its own.

mod lineage;
mod replies;
mod runtime;
mod side;

use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, HeaderName};
use metaclaw_chat::{AgentId, ChainHash, NameError, SessionId};
use metaclaw_turns::TurnKind;
use serde_json::Value;

use self::runtime::Runtime;
pub(crate) use self::{
    lineage::Lineage,
    replies::{Replied, Replies, response_id},
    side::SidePatterns,
};
use crate::{
    auth::Caller, config::CompatConfig, recent::Recent, refusal::Refusal, request::Conversation,
};

/// How many sessions' agents are remembered, about.
const BOUND: usize = 4_096;

/// Headers that are addressed to us; no upstream sees them.
pub(crate) const OWN_HEADERS: [HeaderName; 7] = [
    HeaderName::from_static("x-session-id"),
    HeaderName::from_static("x-turn-type"),
    HeaderName::from_static("x-session-done"),
    HeaderName::from_static("x-memory-scope"),
    HeaderName::from_static("x-user-id"),
    HeaderName::from_static("x-workspace-id"),
    HeaderName::from_static("x-agent-id"),
];

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub agent: AgentId,
    pub session: SessionId,
    pub kind: TurnKind,
    /// The client says that the session ends with this turn.
    pub is_last: bool,
}

/// The hashes of a conversation: before its first message and after each. Where the session has a name,
/// nobody needs them before the log does.
#[derive(Debug)]
pub(crate) struct Chains {
    start: ChainHash,
    made: Option<Vec<ChainHash>>,
}

/// What a request says about itself.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub headers: &'a HeaderMap,
    pub conversation: &'a Conversation,
    /// A field of the body.
    pub field: &'a dyn Fn(&str) -> Option<Value>,
    pub caller: &'a Caller,
}

/// Finds out who asks, with what it remembers of earlier requests.
#[derive(Debug)]
pub(crate) struct Identifier {
    lineage: Lineage,
    replies: Arc<Replies>,
    /// Which agent a session is of: OpenClaw says it at the beginning of a session, and a session
    /// that was compacted has lost its beginning. What the holder of one key said is not believed of
    /// a session of another's, though it has the same name.
    agents: Mutex<Recent<(Caller, SessionId), AgentId>>,
    side: SidePatterns,
    session_implies_side: bool,
}

// === impl Chains ===

impl Chains {
    /// To be made, with this before the first message.
    pub(crate) fn from(start: ChainHash) -> Self {
        Self { start, made: None }
    }

    /// The one before the first message.
    pub(crate) fn start(&self) -> ChainHash {
        self.start
    }

    /// The one after the message at that place, if it was made.
    pub(crate) fn after(&self, place: usize) -> Option<ChainHash> {
        self.made.as_ref()?.get(place + 1).copied()
    }

    /// The one after the last message of this conversation, which they were begun for.
    pub(crate) fn last(&self, conversation: &Conversation) -> ChainHash {
        let last = match &self.made {
            Some(chains) => chains.last().copied(),
            None => conversation.chains(self.start).pop(),
        };
        last.unwrap_or(self.start)
    }
}

// === impl Identifier ===

impl Identifier {
    pub(crate) fn new(
        lineage: Lineage,
        replies: Arc<Replies>,
        side: SidePatterns,
        compat: &CompatConfig,
    ) -> Self {
        Self {
            lineage,
            replies,
            agents: Mutex::new(Recent::new(BOUND)),
            side,
            session_implies_side: compat.session_implies_side,
        }
    }

    /// Who asks, and the hashes of the conversation. What only the conversation can tell is remembered for
    /// the next request.
    pub(crate) fn identify(&self, asked: &Asked<'_>) -> Result<(Identity, Chains), Refusal> {
        let runtime = Runtime::find(asked.conversation);
        let named = self::session(asked)?;
        let is_named_by_header = matches!(named, Some((_, NamedBy::Us)));
        let named = named.map(|(session, _)| session).or(runtime.session);
        let agent = self.agent(asked, named.as_ref(), runtime.agent)?;
        let replied = self.goes_on_from(asked, &agent);
        let start = match &replied {
            Some(replied) => replied.chain,
            None => ChainHash::start(&agent),
        };
        let named = named.or_else(|| Some(replied?.session));
        let (session, chains) = if let Some(session) = named {
            (session, Chains::from(start))
        } else {
            let chains = asked.conversation.chains(start);
            let key = cache_key(asked);
            let session = self.lineage.session(&agent, key.as_deref(), &chains);
            (
                session,
                Chains {
                    start,
                    made: Some(chains),
                },
            )
        };
        let who = Identity {
            kind: self.kind(asked, is_named_by_header)?,
            is_last: flag(asked)?,
            agent,
            session,
        };
        Ok((who, chains))
    }

    /// The agent. What OpenClaw says of it is remembered for the session.
    fn agent(
        &self,
        asked: &Asked<'_>,
        session: Option<&SessionId>,
        runtime: Option<AgentId>,
    ) -> Result<AgentId, Refusal> {
        let Some(session) = session else {
            return agent(asked.headers, asked.caller, runtime);
        };
        let key = (asked.caller.clone(), session.clone());
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = match runtime {
            Some(agent) => {
                agents.insert(key, agent.clone());
                Some(agent)
            }
            None => agents.get_mut(&key).cloned(),
        };
        drop(agents);
        agent(asked.headers, asked.caller, runtime)
    }

    /// The reply that a request of the Responses API goes on from, if it names one that is known.
    fn goes_on_from(&self, asked: &Asked<'_>, agent: &AgentId) -> Option<Replied> {
        let id = (asked.field)("previous_response_id")?;
        self.replies.get(agent, id.as_str()?)
    }

    fn kind(&self, asked: &Asked<'_>, has_session_header: bool) -> Result<TurnKind, Refusal> {
        if let Some(kind) = ours(asked, "x-turn-type", "turn_type")? {
            let is_main = kind.trim().eq_ignore_ascii_case("main");
            return Ok(if is_main {
                TurnKind::Main
            } else {
                TurnKind::Side
            });
        }
        let is_side = self.session_implies_side && has_session_header
            || self.side.is_side(asked.conversation);
        Ok(if is_side {
            TurnKind::Side
        } else {
            TurnKind::Main
        })
    }
}

/// The agent that a request without a conversation is for.
pub(crate) fn agent_of(headers: &HeaderMap, caller: &Caller) -> Result<AgentId, Refusal> {
    agent(headers, caller, None)
}

/// Who named a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamedBy {
    /// One of our own headers or fields.
    Us,
    /// One of a client's or provider's.
    Others,
}

/// The agent: what the caller may be decides, then our header, then OpenClaw's own line.
fn agent(
    headers: &HeaderMap,
    caller: &Caller,
    runtime: Option<AgentId>,
) -> Result<AgentId, Refusal> {
    let header = text(headers, "x-agent-id")?;
    let named = match header.map(str::parse::<AgentId>) {
        Some(Ok(agent)) => Some(agent),
        Some(Err(source)) => return Err(name_error("X-Agent-Id", source)),
        None => None,
    };
    match caller {
        Caller::Any => Ok(named.or(runtime).unwrap_or_else(AgentId::default_agent)),
        Caller::Of(agents) => match named {
            Some(agent) if agents.contains(&agent) => Ok(agent),
            Some(agent) => Err(Refusal::ForeignAgent {
                agent: agent.as_str().to_owned(),
            }),
            None => Ok(runtime
                .filter(|agent| agents.contains(agent))
                .or_else(|| agents.first().cloned())
                .unwrap_or_else(AgentId::default_agent)),
        },
    }
}

/// The session, where a header or field names it.
fn session(asked: &Asked<'_>) -> Result<Option<(SessionId, NamedBy)>, Refusal> {
    if let Some(name) = ours(asked, "x-session-id", "session_id")? {
        let session = name
            .parse()
            .map_err(|source| name_error("X-Session-Id", source))?;
        return Ok(Some((session, NamedBy::Us)));
    }
    // Not ours: one that is no name is the upstream's business, not a reason to refuse.
    let affinity = ["x-session-affinity", "session_id"];
    let header = affinity
        .iter()
        .find_map(|name| text(asked.headers, name).ok().flatten());
    let session = if let Some(name) = header {
        openclaws(name).unwrap_or(name).parse().ok()
    } else {
        cache_key(asked).and_then(|key| openclaws(&key)?.parse().ok())
    };
    Ok(session.map(|session| (session, NamedBy::Others)))
}

/// What the client tells a provider's cache, by which it finds what it has seen before.
fn cache_key(asked: &Asked<'_>) -> Option<String> {
    match (asked.field)("prompt_cache_key")? {
        Value::String(key) => Some(key),
        _ => None,
    }
}

/// The session in a name of OpenClaw's: it says `<uuid>:0` in headers and in `prompt_cache_key`, and
/// `<uuid>` in its text. What others say in `prompt_cache_key` may as well be one for all that they ask,
/// or one for each user: it tells conversations apart that begin alike, and makes none of two.
fn openclaws(name: &str) -> Option<&str> {
    let (id, attempt) = name.split_once(':')?;
    let is_number = !attempt.is_empty() && attempt.bytes().all(|b| b.is_ascii_digit());
    let is_uuid = id.len() == 36 && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    (is_number && is_uuid).then_some(id)
}

fn flag(asked: &Asked<'_>) -> Result<bool, Refusal> {
    let given = ours(asked, "x-session-done", "session_done")?;
    let is_set = |given: String| {
        let given = given.trim().to_ascii_lowercase();
        ["1", "true", "yes", "on"].contains(&given.as_str())
    };
    Ok(given.is_some_and(is_set))
}

/// One of our own headers, or the body field that stands for it.
fn ours(asked: &Asked<'_>, header: &'static str, field: &str) -> Result<Option<String>, Refusal> {
    if let Some(text) = text(asked.headers, header)? {
        return Ok(Some(text.to_owned()));
    }
    Ok(match (asked.field)(field) {
        Some(Value::String(text)) if !text.is_empty() => Some(text),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => Some(value.to_string()),
        Some(_) | None => None,
    })
}

/// A header as a text; an empty one is none.
fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, Refusal> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    // Headers are bytes; names in other scripts come as UTF-8.
    let text = std::str::from_utf8(value.as_bytes());
    let text = text
        .map_err(|_| Refusal::HeaderText { field: name })?
        .trim();
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn name_error(field: &'static str, source: NameError) -> Refusal {
    Refusal::Name { field, source }
}

#[cfg(test)]
mod tests;
