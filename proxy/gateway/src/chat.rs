//! The way of a turn, in each of the three chat APIs.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, uri::PathAndQuery};
use hyper::body::Incoming;
use metaclaw_chat::ChainHash;
use metaclaw_dialects::{
    Api,
    request::{Absent, Changes, ChatRequest, splice},
    vllm,
};
use metaclaw_turns::TurnKind;

use crate::{
    clock,
    gateway::{InSession, Shared, Ticket},
    headers,
    identity::{self, Identity},
    inject::Given,
    metrics::Visit,
    record::{self, AsItCame, Asked, Began, Encoding, Format},
    refusal::Refusal,
    relay::{Body, Relay},
    upstream::{Answer, Outgoing, Sent, Target},
};

/// Which adapter answered, on replies of the policy model.
const ADAPTER: HeaderName = HeaderName::from_static("x-metaclaw-adapter");

/// A turn that has been read and is to be asked.
struct Turn {
    route: PathAndQuery,
    headers: HeaderMap,
    chat: ChatRequest,
    who: Identity,
    start: ChainHash,
    given: Given,
    is_recorded: bool,
    started_ms: u64,
}

/// Serves one chat request.
pub(crate) async fn chat(
    shared: &Arc<Shared>,
    api: Api,
    request: Request<Incoming>,
    route: PathAndQuery,
    visit: &mut Visit,
) -> Result<Response<Body>, Refusal> {
    let caller = shared.door.admit(request.headers())?;
    let ticket = shared.enter()?;
    let (head, body) = request.into_parts();
    let raw = shared.bodies.read(body).await?;
    visit.has_read();
    let started_ms = clock::now_ms();
    let chat = ChatRequest::parse(api, raw)?;
    let (who, start) = shared.identifier.identify(&identity::Claims {
        headers: &head.headers,
        chat: &chat,
        caller: &caller,
    })?;
    visit.is_of(&who.agent);
    let given = shared.sessions.given(&who, &chat);
    let ticket = ticket.of(InSession {
        sessions: Arc::clone(&shared.sessions),
        who: who.clone(),
        _given: given.clone(),
    });
    let turn = Turn {
        route,
        headers: head.headers,
        is_recorded: !shared.config.unrecorded,
        chat,
        who,
        start,
        given,
        started_ms,
    };
    let answer = turn.ask_any(shared, visit).await?;
    let ticket = ticket.watched(visit.watch());
    Ok(turn.relay(shared, answer, ticket))
}

// === impl Turn ===

impl Turn {
    /// Asks whoever may answer this agent.
    async fn ask_any(&self, shared: &Shared, visit: &mut Visit) -> Result<Answer, Refusal> {
        let upstreams = &shared.upstreams;
        let has_media = || self.chat.has_media();
        let asked = upstreams.any_of(&shared.serving, &self.who.agent, has_media);
        let outgoing = |target: &Target| self.outgoing(target);
        upstreams.ask_any(asked, outgoing, visit).await
    }

    /// The request as this target gets it.
    fn outgoing(&self, target: &Target) -> Outgoing<'_> {
        let lessons = &self.given.lessons.lessons;
        let ids = self.asked_for_ids(target);
        let changes = Changes {
            model: target.model(self.given.lease.adapter()),
            system: lessons.system_block.as_deref(),
            absent: match target {
                Target::Policy(endpoint) if endpoint.appends_system => Absent::Field,
                Target::Policy(_) | Target::Named(_) => Absent::Insert,
            },
            user_line: lessons.user_line.as_deref(),
            fields: match (ids, self.chat.api()) {
                (Some(_), Api::Chat) => &vllm::WANTED,
                _ => &[],
            },
        };
        Outgoing {
            method: http::Method::POST,
            route: &self.route,
            headers: self.headers.clone(),
            body: Sent::Chat(splice(&self.chat, changes).into()),
            ids,
        }
    }

    /// What the caller asked for itself, where token ids are asked for: for turns that are learned from.
    fn asked_for_ids(&self, target: &Target) -> Option<vllm::Asked> {
        let is_learned_from = self.is_recorded && self.who.kind == TurnKind::Main;
        let field = |name: &str| self.chat.field(name);
        is_learned_from
            .then(|| target.asked_for_ids(self.chat.api(), field))
            .flatten()
    }

    /// Sends the reply on its way, with a copy for the log.
    fn relay(self, shared: &Shared, answer: Answer, ticket: Ticket) -> Response<Body> {
        let Answer {
            target,
            reply,
            api,
            has_ids,
        } = answer;
        let (mut head, body) = reply.into_parts();
        head.headers = headers::downwards(head.headers);
        if let Some(adapter) = target.adapter(&self.given.lease) {
            head.headers.insert(ADAPTER, adapter);
        }
        let began = Began {
            api: api.unwrap_or_else(|| self.chat.api()),
            status: head.status.as_u16(),
            format: if headers::is_events(&head.headers) {
                Format::Sse
            } else {
                Format::Json
            },
            encoding: Encoding::of(&head.headers),
            has_ids,
        };
        let idle = target.idle();
        let recording = self
            .is_recorded
            .then(|| shared.recorder.begin(self.asked(target), began))
            .flatten();
        let relay = Relay::new(body, recording, idle, ticket);
        Response::from_parts(head, Body::new(relay))
    }

    /// What the log is told of the request.
    fn asked(self, target: Target) -> Asked {
        let adapter = match target {
            Target::Policy(_) => self.given.lease.adapter(),
            Target::Named(_) => None,
        };
        Asked {
            api: self.chat.api(),
            who: self.who,
            started_ms: self.started_ms,
            traceparent: self.headers.get("traceparent").and_then(copied),
            request: record::Request::AsItCame(Box::new(AsItCame {
                adapter: adapter.map(str::to_owned),
                chat: self.chat,
                start: self.start,
                target,
                lessons: self.given.lessons,
            })),
        }
    }
}

/// A header on its own: as it came, it keeps all that was read from the connection with it.
fn copied(value: &HeaderValue) -> Option<HeaderValue> {
    HeaderValue::from_bytes(value.as_bytes()).ok()
}
