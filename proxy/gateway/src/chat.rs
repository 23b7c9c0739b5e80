//! The way of a turn, in each of the three chat APIs.

use std::{future::poll_fn, mem, pin::pin, sync::Arc, task::Poll};

use futures_util::poll;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, uri::PathAndQuery};
use hyper::body::Incoming;
use metaclaw_chat::ChainHash;
use metaclaw_dialects::{Api, vllm};
use metaclaw_turns::{LessonRef, Served, TurnKind};

use crate::{
    clock,
    gateway::{InSession, Shared, Ticket},
    headers,
    identity::{self, Identity},
    inject::Given,
    media,
    metrics::Visit,
    record::{Asked, Began, Encoding, Format, Noted, Said},
    refusal::Refusal,
    relay::{Body, Relay},
    request::ChatRequest,
    splice::{Absent, Changes, splice},
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
    /// The hash of the conversation before its first message and after each.
    chains: Vec<ChainHash>,
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
    let chat = ChatRequest::parse(api, raw, &shared.seen)?;
    let (who, chains) = shared.identifier.identify(&identity::Asked {
        headers: &head.headers,
        conversation: &chat.conversation,
        field: &|name| chat.field(name),
        caller: &caller,
    })?;
    visit.is_of(&who.agent);
    let given = shared.sessions.given(&who, &chat.conversation);
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
        chains,
        given,
        started_ms,
    };
    let (answer, noted) = turn.ask_and_note(shared, visit).await?;
    let ticket = ticket.watched(visit.watch());
    Ok(turn.relay(shared, answer, noted, ticket))
}

// === impl Turn ===

impl Turn {
    /// Asks, and reads the request for the log while somebody thinks about the answer.
    async fn ask_and_note(
        &self,
        shared: &Shared,
        visit: &mut Visit,
    ) -> Result<(Answer, Option<Noted>), Refusal> {
        let mut asking = pin!(self.ask_any(shared, visit));
        if !self.is_recorded {
            return Ok((asking.await?, None));
        }
        let note = || shared.recorder.note(&self.chat, &self.chains);
        if let Poll::Ready(answer) = poll!(asking.as_mut()) {
            return Ok((answer?, note()));
        }
        // The connection's task, which the asking has woken, sends the request first.
        step_back().await;
        let noted = note();
        Ok((asking.await?, noted))
    }

    /// Asks whoever may answer this agent.
    async fn ask_any(&self, shared: &Shared, visit: &mut Visit) -> Result<Answer, Refusal> {
        let upstreams = &shared.upstreams;
        let has_media = || media::is_in(&self.chat.conversation);
        let asked = upstreams.any_of(&shared.serving, &self.who.agent, has_media);
        let outgoing = |target: &Target| self.outgoing(target);
        upstreams.ask_any(asked, outgoing, visit).await
    }

    /// The request as this target gets it.
    fn outgoing(&self, target: &Target) -> Outgoing<'_> {
        let lessons = &self.given.lessons;
        let owners = self.chat.conversation.owners();
        let ids = self.asked_for_ids(target);
        let changes = Changes {
            model: target.model(self.given.lease.adapter()),
            system: lessons.system.as_ref(),
            absent: match target {
                Target::Policy(endpoint) if endpoint.appends_system => Absent::Field,
                Target::Policy(_) | Target::Named(_) => Absent::Insert,
            },
            user_line: lessons.user_line.as_ref(),
            fields: match (ids, self.chat.api) {
                (Some(_), Api::Chat) => &vllm::WANTED,
                _ => &[],
            },
        };
        let ChatRequest {
            api, raw, layout, ..
        } = &self.chat;
        let body = splice(*api, raw, layout, &owners, changes);
        Outgoing {
            method: http::Method::POST,
            route: &self.route,
            headers: self.headers.clone(),
            body: Sent::Chat(body),
            ids,
        }
    }

    /// What the caller asked for itself, where token ids are asked for: for turns that are learned from.
    fn asked_for_ids(&self, target: &Target) -> Option<vllm::Asked> {
        let is_learned_from = self.is_recorded && self.who.kind == TurnKind::Main;
        let field = |name: &str| self.chat.field(name);
        is_learned_from
            .then(|| target.asked_for_ids(self.chat.api, field))
            .flatten()
    }

    /// Sends the reply on its way, with a copy for the log.
    fn relay(
        self,
        shared: &Shared,
        answer: Answer,
        noted: Option<Noted>,
        ticket: Ticket,
    ) -> Response<Body> {
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
            api: api.unwrap_or(self.chat.api),
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
        let asked = |said| self.asked(said, &target);
        let recording = noted.map(|noted| shared.recorder.begin(noted, asked, began));
        let relay = Relay::new(body, recording, idle, ticket);
        Response::from_parts(head, Body::new(relay))
    }

    /// What the log is told of the request.
    fn asked(self, said: Said, target: &Target) -> Asked {
        Asked {
            served: self.served(target),
            api: self.chat.api,
            who: self.who,
            said,
            system_block: self.given.lessons.system.as_ref().map(|it| it.0.clone()),
            started_ms: self.started_ms,
            traceparent: self.headers.get("traceparent").and_then(copied),
        }
    }

    fn served(&self, target: &Target) -> Served {
        let adapter = match target {
            Target::Policy(_) => self.given.lease.adapter(),
            Target::Named(_) => None,
        };
        let callers = || self.chat.field("model")?.as_str().map(str::to_owned);
        let model = target.model(adapter).map(str::to_owned).or_else(callers);
        let lessons = &self.given.lessons.lessons;
        let skills = lessons.skills.iter().map(|skill| LessonRef {
            name: skill.name.to_string(),
            version: skill.version.clone(),
        });
        Served {
            api: match self.chat.api {
                Api::Chat => None,
                other => Some(other.path().to_owned()),
            },
            upstream: target.name().to_owned(),
            model: model.unwrap_or_default(),
            adapter: adapter.map(str::to_owned),
            skills: skills.collect(),
            wishes: lessons.wishes_version.clone(),
            system_block: None,
            user_line: lessons.user_line.clone(),
        }
    }
}

/// Lets the tasks that are ready go first; tokio's own way looks at all connections as well before it
/// comes back.
async fn step_back() {
    let mut has_waited = false;
    let once = poll_fn(|cx| {
        if mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    once.await;
}

/// A header on its own: as it came, it keeps all that was read from the connection with it.
fn copied(value: &HeaderValue) -> Option<HeaderValue> {
    HeaderValue::from_bytes(value.as_bytes()).ok()
}
