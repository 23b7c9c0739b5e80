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
    pieces::Pieces,
    record::{self, AsItCame, Asked, Began, Encoding, Format},
    refusal::Refusal,
    relay::{Body, Relay},
    routing::{Answer, Chat},
    upstream::Upstream,
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
        let candidates = upstreams.candidates(&shared.serving, &self.who.agent, has_media);
        let chat = Chat {
            api: self.chat.api(),
            route: &self.route,
            headers: &self.headers,
            body: &|upstream, asks_ids| self.body(upstream, asks_ids),
            ids: self.asked_for_ids(),
        };
        Ok(upstreams.ask(candidates, &chat, visit).await?)
    }

    /// The request's body as this upstream gets it.
    fn body(&self, upstream: &Upstream, asks_ids: bool) -> Pieces {
        let lessons = &self.given.lessons.lessons;
        let changes = Changes {
            model: upstream.model(self.given.lease.adapter()),
            system: lessons.system_block.as_deref(),
            absent: if upstream.capabilities.appends_system {
                Absent::Field
            } else {
                Absent::Insert
            },
            user_line: lessons.user_line.as_deref(),
            fields: match (asks_ids, self.chat.api()) {
                (true, Api::Chat) => &vllm::WANTED,
                _ => &[],
            },
        };
        splice(&self.chat, changes).into()
    }

    /// What the caller asked for itself, where token ids may be asked for: for turns that are learned from.
    /// Nothing where our fields would make right what vLLM refuses.
    fn asked_for_ids(&self) -> Option<vllm::Asked> {
        if !self.is_recorded || self.who.kind != TurnKind::Main {
            return None;
        }
        if self.chat.api() != Api::Chat {
            // Neither of the others has a field for it.
            return Some(vllm::Asked::default());
        }
        let asked = vllm::Asked::of(|name| self.chat.field(name));
        // Refused without `logprobs: true`, which would come from us alone.
        let top = self.chat.field("top_logprobs");
        let is_refused = !asked.logprobs && top.is_some_and(|top| !top.is_null());
        (!is_refused).then_some(asked)
    }

    /// Sends the reply on its way, with a copy for the log.
    fn relay(self, shared: &Shared, answer: Answer, ticket: Ticket) -> Response<Body> {
        let Answer {
            upstream,
            reply,
            api,
            has_ids,
        } = answer;
        let (mut head, body) = reply.into_parts();
        head.headers = headers::downwards(head.headers);
        let adapter = upstream.adapter(&self.given.lease);
        if let Some(adapter) = adapter.and_then(|it| HeaderValue::from_str(it).ok()) {
            head.headers.insert(ADAPTER, adapter);
        }
        let began = Began {
            api,
            status: head.status.as_u16(),
            format: if headers::is_events(&head.headers) {
                Format::Sse
            } else {
                Format::Json
            },
            encoding: Encoding::of(&head.headers),
            has_ids,
        };
        let idle = upstream.idle;
        let recording = self
            .is_recorded
            .then(|| shared.recorder.begin(self.asked(&upstream), began))
            .flatten();
        let relay = Relay::new(body, recording, idle, ticket);
        Response::from_parts(head, Body::new(relay))
    }

    /// What the log is told of the request.
    fn asked(self, upstream: &Upstream) -> Asked {
        let adapter = upstream.adapter(&self.given.lease);
        Asked {
            api: self.chat.api(),
            who: self.who,
            started_ms: self.started_ms,
            traceparent: self.headers.get("traceparent").and_then(copied),
            request: record::Request::AsItCame(Box::new(AsItCame {
                upstream: upstream.name.clone(),
                model: upstream.model(adapter).map(str::to_owned),
                adapter: adapter.map(str::to_owned),
                chat: self.chat,
                start: self.start,
                lessons: self.given.lessons,
            })),
        }
    }
}

/// A header on its own: as it came, it keeps all that was read from the connection with it.
fn copied(value: &HeaderValue) -> Option<HeaderValue> {
    HeaderValue::from_bytes(value.as_bytes()).ok()
}
