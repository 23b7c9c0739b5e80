//! Who is asking: which agent, in which session, for the owner or on an errand of its own.

mod error;
mod lineage;
mod replies;
mod runtime;
mod side;

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use http::{HeaderMap, HeaderName};
use lru::LruCache;
use metaclaw_chat::{AgentId, ChainHash, NameError, SaidHash, SessionId};
use metaclaw_dialects::request::ChatRequest;
use metaclaw_turns::TurnKind;
use serde_json::Value;

pub(crate) use self::{error::IdentityError, lineage::Lineage, side::SidePatterns};
use self::{
    replies::{Replied, Replies},
    runtime::Runtime,
};
use crate::{
    auth::Caller,
    config::{AgentConfig, CompatConfig, Mode},
    lock::lock,
};

/// How many sessions' agents are remembered.
const BOUND: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();

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

/// What a request says about itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claims<'a> {
    pub headers: &'a HeaderMap,
    pub chat: &'a ChatRequest,
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
    agents: Mutex<LruCache<(Caller, SessionId), NamedAgent>>,
    side: SidePatterns,
    session_implies_side: bool,
    /// What is different for single agents.
    config: BTreeMap<AgentId, AgentConfig>,
}

/// An agent that a line of OpenClaw's names.
#[derive(Debug, Clone)]
struct NamedAgent {
    agent: AgentId,
    /// The line stands in the system text, which is the application's: a user's text may be anybody's.
    by_system: bool,
}

// === impl Identifier ===

impl Identifier {
    pub(crate) fn new(
        lineage: Lineage,
        side: SidePatterns,
        compat: &CompatConfig,
        config: BTreeMap<AgentId, AgentConfig>,
    ) -> Self {
        Self {
            lineage,
            replies: Arc::new(Replies::new()),
            agents: Mutex::new(LruCache::new(BOUND)),
            side,
            session_implies_side: compat.session_implies_side,
            config,
        }
    }

    /// Who asks, and the hash of the conversation before the request's first message. What only the
    /// conversation can tell is remembered for the next request.
    pub(crate) fn identify(
        &self,
        claims: &Claims<'_>,
    ) -> Result<(Identity, ChainHash), IdentityError> {
        let system = Runtime::of_system(claims.chat);
        let user = Runtime::of_user(claims.chat);
        let named = self::session(claims)?;
        let is_named_by_header = matches!(named, Some((_, NamedBy::Us)));
        let named = named.map(|(session, _)| session).or(system.session);
        let told = self.told(claims.caller, named.as_ref(), (system.agent, &user));
        let agent = self.agent(claims, told)?;
        let replied = self.replied(claims, &agent);
        let start = match &replied {
            Some(replied) => replied.chain,
            None => ChainHash::start(&agent),
        };
        let named = named.or(user.session);
        let session = named.or_else(|| Some(replied?.session));
        let session = session.unwrap_or_else(|| {
            let key = cache_key(claims);
            let chains = claims.chat.chains(start);
            self.lineage.session(&agent, key.as_deref(), &chains)
        });
        let who = Identity {
            kind: self.kind(claims, is_named_by_header)?,
            is_last: flag(claims)?,
            agent,
            session,
        };
        Ok((who, start))
    }

    /// What remembers the reply to a request by its id, for a request that goes on from it; `start` is the
    /// hash of the conversation before the request's first message.
    pub(crate) fn on_reply_id(
        &self,
        who: &Identity,
        chat: &ChatRequest,
        start: ChainHash,
    ) -> Box<dyn FnOnce(String) + Send> {
        let chain = chat.chains(start).pop().unwrap_or(start);
        let replied = Replied {
            session: who.session.clone(),
            chain: chain.then_said(SaidHash::ASSISTANT),
        };
        let (replies, agent) = (Arc::clone(&self.replies), who.agent.clone());
        Box::new(move |id| replies.put(&agent, id, replied))
    }

    /// The agent that a line of OpenClaw's names, now or at the beginning of this session: what the system
    /// text says goes before what a user's text says.
    fn told(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        (system, user): (Option<AgentId>, &Runtime),
    ) -> Option<NamedAgent> {
        let named = |by_system| move |agent| NamedAgent { agent, by_system };
        let system = system.map(named(true));
        let user_said = user.agent.clone().map(named(false));
        // A session that is named by a user's text alone is not looked up: it may be anybody's.
        let Some(session) = session else {
            return system.or(user_said);
        };
        let mut agents = lock(&self.agents);
        let key = (caller.clone(), session.clone());
        let known = agents.get(&key).cloned();
        let (by_system, by_user) = match known {
            Some(known) if known.by_system => (Some(known), None),
            known => (None, known),
        };
        let told = system.or(by_system).or(user_said).or(by_user)?;
        agents.put(key, told.clone());
        Some(told)
    }

    /// The agent: what the caller may be decides, then our header, then OpenClaw's line.
    fn agent(
        &self,
        claims: &Claims<'_>,
        told: Option<NamedAgent>,
    ) -> Result<AgentId, IdentityError> {
        let plain = agent_of(claims.headers, claims.caller)?;
        let Some(told) = told else {
            return Ok(plain);
        };
        let may_be = match claims.caller {
            Caller::Any => true,
            Caller::Of(agents) => agents.contains(&told.agent),
        };
        let has_header = text(claims.headers, "x-agent-id")?.is_some();
        if has_header || !may_be {
            return Ok(plain);
        }
        if !told.by_system && self.route(&told.agent) != self.route(&plain) {
            return Err(IdentityError::ByTextAlone { agent: told.agent });
        }
        Ok(told.agent)
    }

    /// What is different in who answers this agent.
    fn route(&self, agent: &AgentId) -> (Option<Mode>, &[String]) {
        let own = self.config.get(agent);
        own.map_or((None, &[]), |own| (own.mode, &own.upstream))
    }

    /// The reply that a request of the Responses API goes on from, if it names one that is known.
    fn replied(&self, claims: &Claims<'_>, agent: &AgentId) -> Option<Replied> {
        let id = claims.chat.field("previous_response_id")?;
        self.replies.get(agent, id.as_str()?)
    }

    fn kind(
        &self,
        claims: &Claims<'_>,
        has_session_header: bool,
    ) -> Result<TurnKind, IdentityError> {
        let is_side = match ours(claims, "x-turn-type", "turn_type")? {
            Some(kind) => !kind.trim().eq_ignore_ascii_case("main"),
            None => {
                self.session_implies_side && has_session_header || self.side.is_side(claims.chat)
            }
        };
        Ok(if is_side {
            TurnKind::Side
        } else {
            TurnKind::Main
        })
    }
}

/// The agent that a request without a conversation is for: what the caller may be decides, then our header.
pub(crate) fn agent_of(headers: &HeaderMap, caller: &Caller) -> Result<AgentId, IdentityError> {
    let named = text(headers, "x-agent-id")?.map(str::parse).transpose();
    let named: Option<AgentId> = named.map_err(|source| name_error("X-Agent-Id", source))?;
    let agent = match (caller, named) {
        (Caller::Of(agents), Some(agent)) if !agents.contains(&agent) => {
            return Err(IdentityError::ForeignAgent { agent });
        }
        (Caller::Of(agents), None) => agents.first().cloned(),
        (_, named) => named,
    };
    Ok(agent.unwrap_or_else(AgentId::default_agent))
}

/// Who named a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamedBy {
    /// One of our own headers or fields.
    Us,
    /// One of a client's or provider's.
    Others,
}

/// The session, where a header or field names it.
fn session(claims: &Claims<'_>) -> Result<Option<(SessionId, NamedBy)>, IdentityError> {
    if let Some(name) = ours(claims, "x-session-id", "session_id")? {
        let session = name
            .parse()
            .map_err(|source| name_error("X-Session-Id", source))?;
        return Ok(Some((session, NamedBy::Us)));
    }
    // Not ours: one that is no name is the upstream's business, not a reason to refuse.
    let affinity = ["x-session-affinity", "session_id"];
    let header = affinity
        .iter()
        .find_map(|name| text(claims.headers, name).ok().flatten());
    let session = if let Some(name) = header {
        openclaws(name).unwrap_or(name).parse().ok()
    } else {
        cache_key(claims).and_then(|key| openclaws(&key)?.parse().ok())
    };
    Ok(session.map(|session| (session, NamedBy::Others)))
}

/// What the client tells a provider's cache, by which it finds what it has seen before.
fn cache_key(claims: &Claims<'_>) -> Option<String> {
    match claims.chat.field("prompt_cache_key")? {
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

fn flag(claims: &Claims<'_>) -> Result<bool, IdentityError> {
    let given = ours(claims, "x-session-done", "session_done")?;
    let is_set = |given: String| {
        let given = given.trim().to_ascii_lowercase();
        ["1", "true", "yes", "on"].contains(&given.as_str())
    };
    Ok(given.is_some_and(is_set))
}

/// One of our own headers, or the body field that stands for it.
fn ours(
    claims: &Claims<'_>,
    header: &'static str,
    field: &str,
) -> Result<Option<String>, IdentityError> {
    if let Some(text) = text(claims.headers, header)? {
        return Ok(Some(text.to_owned()));
    }
    Ok(match claims.chat.field(field) {
        Some(Value::String(text)) if !text.is_empty() => Some(text),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => Some(value.to_string()),
        Some(_) | None => None,
    })
}

/// A header as a text; an empty one is none.
fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, IdentityError> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    // Headers are bytes; names in other scripts come as UTF-8.
    let text = std::str::from_utf8(value.as_bytes());
    let text = text
        .map_err(|_| IdentityError::HeaderText { field: name })?
        .trim();
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn name_error(field: &'static str, source: NameError) -> IdentityError {
    IdentityError::Name { field, source }
}

#[cfg(test)]
mod tests;
