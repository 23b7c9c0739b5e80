//! Identifies a request: its agent, its session, and whether it is a turn with the owner or a side turn.

mod claims;
mod clients;
mod conversations;
mod delegations;
mod errands;
mod remembered;
mod system_texts;

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use lru::LruCache;
use metaclaw_capture::OnCalls;
use metaclaw_chat::{AgentId, ChainHash, Said, SaidHash, SessionId, now_ms};
use metaclaw_dialects::request::{ChatRequest, MessageKey};
use metaclaw_turns::{Rollout, TurnKind};

pub(crate) use self::{
    claims::{Claims, IdentityError, OWN_HEADERS, admitted, agent_of, may_speak_for, named_agent},
    clients::Naming,
    conversations::Lineage,
    delegations::Delegations,
    errands::{SidePatterns, begins},
};
use self::{
    clients::{ErrandMark, NamedSession, Runtime, cache_key},
    conversations::{RecentReplies, Replied},
    delegations::CallingRequest,
    errands::{Shape, Shapes},
    remembered::Remembered,
    system_texts::{KNOWN, KnownTexts, SystemTexts},
};
use crate::{
    auth::caller::Caller,
    config::{AgentRoutes, CompatConfig},
    lock::lock,
};

const BOUND: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
/// The number of long messages whose hash in a conversation is remembered, about 100 bytes each.
const MESSAGES: NonZeroUsize = NonZeroUsize::new(32_768).unwrap();

#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub agent: AgentId,
    pub session: SessionId,
    pub kind: TurnKind,
    /// Who names the session.
    pub naming: Naming,
    /// Whether the session's name was made for this request, so that no turn in the log has it.
    pub is_new: bool,
    /// Whether the client says that the session ends with this turn.
    pub is_last: bool,
}

#[derive(Debug)]
pub(crate) struct Identifier {
    lineage: Lineage,
    delegations: Arc<Delegations>,
    system_texts: KnownTexts,
    said: Remembered<Said>,
    shapes: Shapes,
    replies: Arc<RecentReplies>,
    /// The agent of each session. OpenClaw names the agent at the beginning of a session, and a compacted session has
    /// lost its beginning. The caller is a part of the key, so that the holder of one key decides nothing about a
    /// session of another caller with the same name.
    agents: Mutex<LruCache<(Caller, SessionId), NamedAgent>>,
    side: SidePatterns,
    session_implies_side: bool,
    routes: AgentRoutes,
}

#[derive(Debug, Clone)]
struct NamedAgent {
    agent: AgentId,
    /// Whether the line is in the system text, which is the application's. A user's text may be anybody's.
    by_system: bool,
}

// === impl Identifier ===

impl Identifier {
    pub(crate) fn new(
        lineage: Lineage,
        delegations: Delegations,
        side: SidePatterns,
        compat: &CompatConfig,
        routes: AgentRoutes,
    ) -> Self {
        Self {
            lineage,
            delegations: Arc::new(delegations),
            system_texts: KnownTexts::new(KNOWN),
            said: Remembered::new(MESSAGES),
            shapes: Shapes::new(),
            replies: Arc::new(RecentReplies::new()),
            agents: Mutex::new(LruCache::new(BOUND)),
            side,
            session_implies_side: compat.session_implies_side,
            routes,
        }
    }

    /// Identifies a request. Returns also the hash of the conversation before its first message. What follows from the
    /// conversation alone is remembered for the next request.
    pub(crate) fn identify(
        &self,
        claims: &Claims<'_>,
    ) -> Result<(Identity, ChainHash), IdentityError> {
        let chat = claims.chat;
        let mark = ErrandMark::read(claims.headers, chat);
        let system_texts = SystemTexts::read(chat, &self.system_texts);
        let system = system_texts.runtime();
        let system = system.map_or_else(Runtime::default, Runtime::parse);
        let user = Runtime::in_user(chat);
        let reused = |session| NamedSession::new(session, Naming::Reused);
        let own = claims.own_session()?.map(NamedSession::of_ours);
        let has_own_session = own.as_ref().is_some_and(|own| own.is_ours);
        let by_application = NamedSession::of_parent(claims.headers)
            .or(own)
            .or_else(|| NamedSession::of_client(claims.headers, chat, mark))
            .or_else(|| system.session.map(reused));
        let session = by_application.as_ref().map(|named| &named.session);
        let by_line = self.agent_of_line(claims.caller, session, system.agent, &user);
        let agent = self.agent(claims, by_line)?;
        let replied = self.replied(claims, &agent);
        let start = start(replied.as_ref(), &agent);
        // If the client states the kind of the turn, its statement counts.
        let says = claims.is_main()?;
        let delegated = match says {
            None => self.delegated(claims, &agent),
            Some(_) => None,
        };
        let is_marked = mark.is_some() || delegated.is_some();
        let named = delegated
            .or(by_application)
            .or_else(|| user.session.map(reused));
        let (session, naming, is_new) = match (named, replied) {
            (Some(named), _) => (named.session, named.naming, false),
            (None, Some(replied)) => (replied.session, Naming::Unnamed, false),
            (None, None) => {
                let key = cache_key(claims.headers, chat);
                self.read_said(chat);
                let chains = chat.chains(start);
                let found = self.lineage.session(&agent, key.as_deref(), &chains);
                (found.session, Naming::Unnamed, found.is_new)
            }
        };
        let shape = Shape::read(chat, &system_texts);
        let is_side = || {
            is_marked
                || (self.session_implies_side && has_own_session)
                || self.side.is_side(chat, &system_texts)
                // A client that names each conversation is an agent, whose own turns have tools. A title may come
                // first.
                || (naming == Naming::Unique && shape.is_form())
                || self.shapes.is_errand(&agent, &session, &shape)
        };
        let kind = if says.unwrap_or_else(|| !is_side()) {
            self.shapes.note(&agent, &session, shape);
            TurnKind::Main
        } else {
            TurnKind::Side
        };
        let who = Identity {
            kind,
            naming,
            is_new,
            is_last: claims.is_last()?,
            agent,
            session,
        };
        Ok((who, start))
    }

    /// Identifies a request in a rollout, which its address names. A sub-agent's turns are steps of the rollout too. A
    /// title or another side turn is no step.
    pub(crate) fn identify_rollout(
        &self,
        claims: &Claims<'_>,
        rollout: &Rollout,
    ) -> Result<(Identity, ChainHash), IdentityError> {
        let (agent, chat) = (rollout.agent.clone(), claims.chat);
        let start = start(self.replied(claims, &agent).as_ref(), &agent);
        let is_errand = || {
            let is_marked = ErrandMark::read(claims.headers, chat).is_some();
            is_marked
                || self
                    .side
                    .is_side(chat, &SystemTexts::read(chat, &self.system_texts))
        };
        let kind = if claims.is_main()?.unwrap_or_else(|| !is_errand()) {
            TurnKind::Rollout
        } else {
            TurnKind::Side
        };
        let who = Identity {
            kind,
            naming: Naming::Unique,
            is_new: false,
            is_last: false,
            session: rollout.id.session(),
            agent,
        };
        Ok((who, start))
    }

    /// Computes each message's contribution to the conversation's hash. Long messages of earlier requests come from a
    /// cache.
    pub(crate) fn read_said(&self, chat: &ChatRequest) {
        chat.said(|message| match message.key() {
            key @ MessageKey::Long(..) if message.counts() => {
                let key = (chat.api(), message.role(), key);
                self.said.of(key, || message.said())
            }
            _ => message.said(),
        });
    }

    /// Returns a function that remembers the calls of a reply, so that a conversation that begins with them is
    /// recognised.
    pub(crate) fn on_calls(&self, caller: &Caller, who: &Identity) -> OnCalls {
        let delegations = Arc::clone(&self.delegations);
        let (caller, session, kind) = (caller.clone(), who.session.clone(), who.kind);
        Box::new(move |chat, reply| {
            let request = CallingRequest {
                caller: &caller,
                session: &session,
                kind,
                chat,
            };
            delegations.note(&request, reply, now_ms());
        })
    }

    /// Returns a function that remembers the reply to a request by its id, for a request that continues it. `start` is
    /// the hash of the conversation before the request's first message.
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

    /// Returns whether the sender's agent recently got a reply with this id. In a rollout, the reply must be of the
    /// same rollout.
    pub(crate) fn knows_reply(&self, who: &Identity, id: &str, is_in_rollout: bool) -> bool {
        let replied = self.replies.get(&who.agent, id);
        replied.is_some_and(|replied| !is_in_rollout || replied.session == who.session)
    }

    /// Returns the agent that OpenClaw's line names, now or at the beginning of this session. The system text takes
    /// precedence over a user's text.
    fn agent_of_line(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        system: Option<AgentId>,
        user: &Runtime,
    ) -> Option<NamedAgent> {
        let named = |by_system| move |agent| NamedAgent { agent, by_system };
        let in_system = system.map(named(true));
        let in_user = user.agent.clone().map(named(false));
        // A session that only a user's text names is not looked up, because the text may be anybody's.
        let Some(session) = session else {
            return in_system.or(in_user);
        };
        let mut agents = lock(&self.agents);
        let key = (caller.clone(), session.clone());
        let known = agents.get(&key).cloned();
        let (by_system, by_user) = match known {
            Some(known) if known.by_system => (Some(known), None),
            known => (None, known),
        };
        let agent = in_system.or(by_system).or(in_user).or(by_user)?;
        agents.put(key, agent.clone());
        Some(agent)
    }

    /// Returns the agent. The caller's own agents decide first, then our header, then OpenClaw's line.
    fn agent(
        &self,
        claims: &Claims<'_>,
        by_line: Option<NamedAgent>,
    ) -> Result<AgentId, IdentityError> {
        let plain = agent_of(claims.headers, claims.caller)?;
        let Some(NamedAgent { agent, by_system }) = by_line else {
            return Ok(plain);
        };
        if claims.names_agent() || !claims.caller.may_be(&agent) {
            return Ok(plain);
        }
        if !by_system && !self.are_routed_alike(&agent, &plain) {
            return Err(IdentityError::ByTextAlone { agent });
        }
        Ok(claims.caller.counted(agent))
    }

    fn are_routed_alike(&self, agent: &AgentId, other: &AgentId) -> bool {
        let routes = self.routes.load();
        let route = |agent| routes.get(agent).cloned().unwrap_or_default();
        route(agent) == route(other)
    }

    fn replied(&self, claims: &Claims<'_>, agent: &AgentId) -> Option<Replied> {
        let id = claims.chat.field("previous_response_id")?;
        self.replies.get(agent, id.as_str()?)
    }

    /// Returns the session in which a model started this conversation, because a sub-agent's turns belong there.
    fn delegated(&self, claims: &Claims<'_>, agent: &AgentId) -> Option<NamedSession> {
        let session = self
            .delegations
            .session(claims.caller, agent, claims.chat, now_ms());
        session.map(|session| NamedSession::new(session, Naming::Unique))
    }
}

/// Returns the hash of the conversation before the request's first message. `replied` is the reply that the request
/// continues.
fn start(replied: Option<&Replied>, agent: &AgentId) -> ChainHash {
    replied.map_or_else(|| ChainHash::start(agent), |replied| replied.chain)
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
