//! `POST /v1/chat/completions`: the way of a turn.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, Request, Response, header, uri::PathAndQuery};
use hyper::body::Incoming;
use metaclaw_chat::Message;
use metaclaw_turns::{LessonRef, Served};

use crate::{
    clock,
    gateway::{InSession, Shared, Ticket},
    headers,
    identity::{self, Identity},
    inject::Given,
    media,
    metrics::Visit,
    record::{self, Began, Encoding, Format},
    refusal::Refusal,
    relay::{Body, Relay, full},
    request::ChatRequest,
    splice::{Absent, Changes, splice},
    upstream::{Answer, Outgoing, Target},
};

/// Which adapter answered, on replies of the policy model.
const ADAPTER: HeaderName = HeaderName::from_static("x-metaclaw-adapter");

/// A turn that has been read and is to be asked.
struct Turn {
    route: PathAndQuery,
    headers: HeaderMap,
    chat: ChatRequest,
    who: Identity,
    given: Given,
    started_ms: u64,
}

/// Serves one chat request.
pub(crate) async fn chat(
    shared: &Arc<Shared>,
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
    let chat = ChatRequest::parse(raw)?;
    if chat.messages.is_none() {
        shared.metrics.unread.inc();
    }
    let messages: &[Message] = chat.messages.as_deref().unwrap_or_default();
    let who = shared.identifier.identify(&identity::Asked {
        headers: &head.headers,
        messages,
        field: &|name| chat.field(name),
        caller: &caller,
    })?;
    visit.is_of(&who.agent);
    let given = shared.sessions.given(&who, messages);
    let ticket = ticket.of(InSession {
        sessions: Arc::clone(&shared.sessions),
        who: who.clone(),
        _given: given.clone(),
    });
    let turn = Turn {
        route,
        headers: head.headers,
        chat,
        who,
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
        let messages = self.chat.messages.as_deref().unwrap_or_default();
        let has_media = media::is_in(messages);
        let asked = upstreams.any_of(&shared.serving, &self.who.agent, has_media);
        let outgoing = |target: &Target| self.outgoing(target);
        upstreams.ask_any(asked, outgoing, visit).await
    }

    /// The request as this target gets it.
    fn outgoing(&self, target: &Target) -> Outgoing<'_> {
        let lessons = &self.given.lessons;
        let messages = self.chat.messages.as_deref().unwrap_or_default();
        let owners: Vec<bool> = messages.iter().map(Message::is_owners).collect();
        let changes = Changes {
            model: target.model(self.given.lease.adapter()),
            system: lessons
                .system_block
                .as_deref()
                .filter(|_| !messages.is_empty()),
            absent: match target {
                Target::Policy(endpoint) if endpoint.appends_system => Absent::Field,
                Target::Policy(_) | Target::Named(_) => Absent::Insert,
            },
            user_line: lessons.user_line.as_deref(),
        };
        let body = splice(&self.chat.raw, &self.chat.layout, &owners, changes);
        let mut headers = self.headers.clone();
        headers.insert(header::CONTENT_LENGTH, body.len().into());
        Outgoing {
            method: http::Method::POST,
            route: &self.route,
            headers,
            body: full(body),
        }
    }

    /// Sends the reply on its way, with a copy for the log.
    fn relay(self, shared: &Shared, answer: Answer, ticket: Ticket) -> Response<Body> {
        let Answer { target, reply } = answer;
        let (mut head, body) = reply.into_parts();
        head.headers = headers::downwards(head.headers);
        if let Some(adapter) = target.adapter(&self.given.lease) {
            head.headers.insert(ADAPTER, adapter);
        }
        let began = Began {
            status: head.status.as_u16(),
            format: format(&head.headers),
            encoding: Encoding::of(&head.headers),
        };
        let recording = match self.asked(&target) {
            Some(asked) => shared.recorder.begin(asked, began),
            None => None,
        };
        let relay = Relay::new(body, recording, target.idle(), ticket);
        Response::from_parts(head, Body::new(relay))
    }

    /// What the log is told of the request; nothing, where it could not be read.
    fn asked(self, target: &Target) -> Option<record::Asked> {
        let served = self.served(target);
        Some(record::Asked {
            messages: self.chat.messages?,
            raw: self.chat.raw,
            layout: self.chat.layout,
            who: self.who,
            started_ms: self.started_ms,
            served,
        })
    }

    fn served(&self, target: &Target) -> Served {
        let adapter = match target {
            Target::Policy(_) => self.given.lease.adapter(),
            Target::Named(_) => None,
        };
        let callers = || self.chat.field("model")?.as_str().map(str::to_owned);
        let model = target.model(adapter).map(str::to_owned).or_else(callers);
        let lessons = &self.given.lessons;
        let skills = lessons.skills.iter().map(|skill| LessonRef {
            name: skill.name.to_string(),
            version: skill.version.clone(),
        });
        Served {
            upstream: target.name().to_owned(),
            model: model.unwrap_or_default(),
            adapter: adapter.map(str::to_owned),
            skills: skills.collect(),
            wishes: lessons.wishes_version.clone(),
            system_block: lessons.system_block.clone(),
            user_line: lessons.user_line.clone(),
        }
    }
}

/// How a reply's copy is to be read.
fn format(headers: &HeaderMap) -> Format {
    const EVENTS: &str = "text/event-stream";
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()?.trim_start().get(..EVENTS.len()));
    if kind.is_some_and(|kind| kind.eq_ignore_ascii_case(EVENTS)) {
        Format::Sse
    } else {
        Format::Json
    }
}
