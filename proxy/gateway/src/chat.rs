//! Handles chats in each of the three chat APIs: identifies the turn, adds lessons, asks an upstream, relays the reply.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, request::Parts, uri::PathAndQuery,
};
use memchr::memmem;
use metaclaw_capture::{
    CapturedRequest, Encoding, Format, OnCalls, Parent, Recorder, ResponseMeta,
};
use metaclaw_chat::{ChainHash, Message, SenderId, excerpt, now_ms, work::looks_at};
use metaclaw_dialects::{
    Api,
    request::{Absent, Changes, ChatRequest, KnownValues, PromptLimit, TrimmedPrompt, splice},
    translate::translated_reply_id,
    vllm,
};
use metaclaw_skills::Lessons;
use metaclaw_turns::{LessonRef, Rollout, Served, TurnKind};
use serde_json::Value;
use tokio::sync::OnceCell;
use tracing::{Span, field::display};

use crate::{
    auth::caller::{AuthError, Caller},
    body::{Body, guarded},
    gathered::Gathered,
    headers,
    histories::Histories,
    identity::{self, Identifier, Identity},
    metrics::RequestMetrics,
    past_replies::PastReplies,
    privacy::{Asked, Keeper, Keeping},
    relay::Relay,
    respond::GatewayError,
    route::{RouteError, below_v1},
    routing::{self, Answer, Upstreams},
    session_key::SessionKey,
    sessions::{SessionContext, SessionContexts},
    upstream::Upstream,
};

const ADAPTER: HeaderName = HeaderName::from_static("x-metaclaw-adapter");
const PREVIOUS: &str = "previous_response_id";

pub(crate) struct Chat {
    pub known: KnownValues,
    pub identifier: Identifier,
    pub keeper: Keeper,
    pub sessions: Arc<SessionContexts>,
    pub upstreams: Arc<Upstreams>,
    pub past: Arc<dyn PastReplies>,
    /// Sampling parameters for chats with the policy model that do not set them.
    pub sampling: Vec<(&'static str, f64)>,
    /// The most tokens of a prompt; 0 never drops any message.
    pub max_context_tokens: usize,
    /// Without it, histories pass unchanged.
    pub histories: Option<Arc<Histories>>,
    /// Without it, nothing is recorded.
    pub recorder: Option<Recorder>,
}

struct ChatTurn {
    route: PathAndQuery,
    headers: HeaderMap,
    chat: ChatRequest,
    who: Identity,
    caller: Caller,
    start: ChainHash,
    keeping: Keeping,
    context: SessionContext,
    trimmed: Option<TrimmedPrompt>,
    rollout: Option<Arc<Rollout>>,
    started_ms: u64,
}

/// Keeps the adapter of a running turn loaded. The session's pause begins when this is dropped.
struct InSession {
    sessions: Arc<SessionContexts>,
    who: Identity,
    _context: SessionContext,
    _running: Option<Arc<()>>,
}

// === impl Chat ===

impl Chat {
    pub(crate) async fn serve(
        self: Arc<Self>,
        request: Request<Bytes>,
    ) -> Result<Response<Body>, GatewayError> {
        let route = below_v1(&request)?;
        let api = Api::of_path(route.path())
            .ok_or_else(|| RouteError::not_found(request.method(), route.path()))?;
        let (head, raw) = request.into_parts();
        let metrics = RequestMetrics::from_extensions(&head.extensions);
        let chat = ChatRequest::parse_with(api, raw, &self.known)?;
        if let Some(recorder) = &self.recorder {
            recorder.keep_up().await;
        }
        let turn = self.turn(chat, route, head, &metrics);
        let turn = turn.await?;
        let in_session = InSession {
            sessions: Arc::clone(&self.sessions),
            who: turn.who.clone(),
            _context: turn.context.clone(),
            _running: turn.rollout.is_none().then(|| self.sessions.chat_begins()),
        };
        let answer = turn.ask_any(&self, &metrics).await?;
        let reply = turn.relay(&self, answer);
        Ok(reply.map(|body| guarded(body, in_session)))
    }

    async fn turn(
        &self,
        chat: ChatRequest,
        route: PathAndQuery,
        head: Parts,
        metrics: &RequestMetrics,
    ) -> Result<ChatTurn, GatewayError> {
        let started_ms = now_ms();
        let caller = Caller::from_extensions(&head.extensions)?;
        let claims = identity::Claims {
            headers: &head.headers,
            chat: &chat,
            caller: &caller,
        };
        let rollout = head.extensions.get::<Arc<Rollout>>().cloned();
        let (who, start) = match &rollout {
            Some(rollout) => self.identifier.identify_rollout(&claims, rollout)?,
            None => self.identifier.identify(&claims)?,
        };
        let says_no = claims.says_no()?;
        if matches!(caller, Caller::Of(_)) {
            self.refuse_foreign(&caller, &chat, &who, rollout.is_some())
                .await?;
        }
        metrics.set_agent(&who.agent);
        let span = Span::current();
        span.record("agent", display(&who.agent));
        span.record("session", display(&who.session));
        let keeping = match &rollout {
            Some(_) => self.keeper.keeping_of_rollout(&who, says_no),
            None => self.keeper.keeping(Asked {
                who: &who,
                chat: &chat,
                start,
                says_no,
            }),
        };
        self.sessions.note_scope(&who, claims.memory_scope()?);
        let context = match (keeping, &rollout) {
            (Keeping::RelayOnly, _) => SessionContexts::nothing(),
            (_, Some(rollout)) => self.sessions.context_of_rollout(&who, rollout),
            (Keeping::Kept | Keeping::OffRecord, None) => self.sessions.context(&who, &chat).await,
        };
        let trimmed = self.trimmed(&chat, &context, metrics);
        Ok(ChatTurn {
            route,
            headers: head.headers,
            chat,
            who,
            caller,
            start,
            keeping,
            context,
            trimmed,
            rollout,
            started_ms,
        })
    }

    /// Refuses a body that names what only the owner's key may name: things stored in the account at the provider, and
    /// replies that others got.
    async fn refuse_foreign(
        &self,
        caller: &Caller,
        chat: &ChatRequest,
        who: &Identity,
        is_in_rollout: bool,
    ) -> Result<(), GatewayError> {
        let is_responses = chat.api() == Api::Responses;
        caller.refuse_stored(chat.raw(), if is_responses { PREVIOUS } else { "" })?;
        let named = chat
            .field(PREVIOUS)
            .filter(|id| is_responses && !id.is_null());
        let Some(named) = named else {
            return Ok(());
        };
        let id = named.as_str().unwrap_or_default();
        // After a restart only the log knows the replies, and it does not record the rollout of each.
        let is_own = self.identifier.knows_reply(who, id, is_in_rollout)
            || !is_in_rollout
                && matches!(self.past.conversation(&who.agent, id).await, Ok(Some(_)));
        if is_own {
            return Ok(());
        }
        let id = excerpt(id).to_string();
        Err(AuthError::ForeignReply { id }.into())
    }

    fn trimmed(
        &self,
        chat: &ChatRequest,
        context: &SessionContext,
        metrics: &RequestMetrics,
    ) -> Option<TrimmedPrompt> {
        let max_tokens = Some(self.max_context_tokens).filter(|limit| *limit > 0)?;
        let n_bytes = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let trimmed = chat.trim(PromptLimit {
            max_tokens,
            system_bytes: n_bytes(&context.lessons.system_block),
            user_bytes: n_bytes(&context.lessons.user_line),
        })?;
        metrics.trimmed(trimmed.n_dropped);
        tracing::info!(
            messages = trimmed.n_dropped,
            tokens = trimmed.n_tokens,
            left = trimmed.n_left,
            max_context_tokens = max_tokens,
            "the oldest messages were dropped from a long prompt"
        );
        Some(trimmed)
    }
}

// === impl InSession ===

impl Drop for InSession {
    fn drop(&mut self) {
        self.sessions.touch(&self.who);
    }
}

// === impl ChatTurn ===

impl ChatTurn {
    async fn ask_any(
        &self,
        server: &Chat,
        metrics: &RequestMetrics,
    ) -> Result<Answer, GatewayError> {
        let upstreams = &server.upstreams;
        let has_media = || self.chat.has_media();
        let mut candidates = upstreams.candidates(&self.who.agent, has_media);
        if let Some(rollout) = &self.rollout {
            candidates
                .keep_one_model(rollout.adapter.is_some() || upstreams.has_policy(&self.who.agent));
        }
        let last_call = || self.last_call();
        let chat = routing::RoutedChat {
            api: self.chat.api(),
            route: &self.route,
            headers: &self.headers,
            body: &|upstream, asks_ids| self.body(server, upstream, asks_ids),
            previous: self.previous(server),
            repeated: self.repeated(server, &last_call),
            ids: self.asked_for_ids(server.recorder.is_some() && self.keeping == Keeping::Kept),
        };
        Ok(routing::ask(upstreams, candidates, &chat, metrics).await?)
    }

    fn previous<'a>(&'a self, server: &'a Chat) -> Option<routing::Previous<'a>> {
        if self.chat.api() != Api::Responses {
            return None;
        }
        let id = self.chat.field(PREVIOUS)?;
        let id = id.as_str()?.to_owned();
        let is_kept = self.keeping == Keeping::Kept;
        let is_known = is_kept && server.identifier.knows_reply(&self.who, &id, false);
        Some(routing::Previous {
            id,
            agent: &self.who.agent,
            past: &*server.past,
            is_known,
            found: OnceCell::new(),
        })
    }

    fn repeated<'a>(
        &'a self,
        server: &'a Chat,
        last_call: &'a (dyn Fn() -> Option<String> + Sync),
    ) -> Option<routing::Repeated<'a>> {
        let histories = server.histories.as_ref()?;
        let (reply, call) = match self.chat.api() {
            Api::Chat => ("\"assistant\"", "\"tool_calls\""),
            Api::Messages => ("\"assistant\"", "\"tool_use\""),
            Api::Responses => ("\"reasoning\"", "_call\""),
        };
        let has = |mark: &str| {
            let mut replies = self.chat.replies();
            replies.any(|reply| {
                looks_at(reply.len());
                memmem::find(reply.as_bytes(), mark.as_bytes()).is_some()
            })
        };
        let has_calls = has(call);
        if !has_calls && !has(reply) {
            return None;
        }
        let model = self.chat.field("model");
        Some(routing::Repeated {
            histories,
            model: model.and_then(|model| model.as_str().map(str::to_owned)),
            has_calls,
            agent: &self.who.agent,
            session: &self.who.session,
            is_new: self.who.is_new,
            last_call,
            found: OnceCell::new(),
        })
    }

    fn last_call(&self) -> Option<String> {
        let messages = self.chat.to_messages()?;
        let mut calls = messages.iter().rev().map(Message::tool_calls);
        Some(calls.find_map(|calls| calls.last().cloned())?.id)
    }

    fn lessons(&self, upstream: &Upstream) -> &Lessons {
        let adapter = upstream.adapter(&self.context.lease);
        self.context.lessons.where_answers(adapter)
    }

    fn sampling(&self, server: &Chat, upstream: &Upstream) -> Vec<(&'static str, f64)> {
        let defaults = server.sampling.iter().filter(|_| upstream.is_policy());
        let is_unsaid = |name| self.chat.field(name).is_none_or(|value| value.is_null());
        defaults
            .filter(|(name, _)| is_unsaid(name))
            .copied()
            .collect()
    }

    fn routing_fields(&self, upstream: &Upstream) -> Vec<(&'static str, String)> {
        let Some(openrouter) = &upstream.openrouter else {
            return Vec::new();
        };
        let callers = self.chat.field("model");
        let callers = callers.as_ref().and_then(Value::as_str);
        openrouter.fields(
            |name| self.chat.field(name),
            upstream.model(None).or(callers),
        )
    }

    fn body(&self, server: &Chat, upstream: &Upstream, asks_ids: bool) -> Vec<Bytes> {
        if asks_ids {
            // The server is asked now, so that its answer is known when the reply has ended.
            self.parent(upstream);
        }
        let lessons = self.lessons(upstream);
        let sampling = self.sampling(server, upstream).into_iter();
        let sampling = sampling.map(|(name, value)| (name, value.to_string()));
        let added: Vec<_> = sampling.chain(self.routing_fields(upstream)).collect();
        let mut fields: Vec<(&str, &str)> = Vec::new();
        fields.extend(added.iter().map(|(name, value)| (*name, &**value)));
        if asks_ids && self.chat.api() == Api::Chat {
            fields.extend(vllm::WANTED);
        }
        let changes = Changes {
            model: upstream.model(self.context.lease.adapter()),
            system: lessons.system_block.as_deref(),
            absent: if upstream.capabilities.appends_system {
                Absent::Field
            } else {
                Absent::Insert
            },
            user_line: lessons.user_line.as_deref(),
            sender_lines: Some(&lessons.sender_lines),
            fields: &fields,
            cuts_shared: upstream.capabilities.refuses_unknown,
            dropped: self
                .trimmed
                .as_ref()
                .map_or(&[], |trimmed| &trimmed.dropped),
        };
        splice(&self.chat, changes)
    }

    /// Returns which token ids the caller requests itself, or `None` if the proxy must not request any: for a turn that
    /// is not learned from, and if our fields would make a request valid that vLLM refuses.
    fn asked_for_ids(&self, is_recorded: bool) -> Option<vllm::RequestedIds> {
        if !is_recorded || self.who.kind == TurnKind::Side {
            return None;
        }
        // The log-probabilities of a constrained reply are not the model's own, so nothing is trained on them.
        if vllm::is_constrained(|name| self.chat.field(name)) {
            return None;
        }
        if self.chat.api() != Api::Chat {
            // The other two APIs have no field for it.
            return Some(vllm::RequestedIds::default());
        }
        let asked = vllm::RequestedIds::from_fields(|name| self.chat.field(name));
        // vLLM refuses `top_logprobs` without `logprobs: true`, which would come from us alone.
        let top = self.chat.field("top_logprobs");
        let is_refused = !asked.logprobs && top.is_some_and(|top| !top.is_null());
        (!is_refused).then_some(asked)
    }

    fn relay(self, server: &Chat, answer: Answer) -> Response<Body> {
        let Answer {
            upstream,
            reply,
            api,
            is_events,
            has_ids,
            ..
        } = answer;
        let (mut head, body) = reply.into_parts();
        head.headers = headers::end_to_end(head.headers);
        let adapter = upstream.adapter(&self.context.lease);
        if let Some(adapter) = adapter.and_then(|name| HeaderValue::from_str(name).ok()) {
            head.headers.insert(ADAPTER, adapter);
        }
        let meta = ResponseMeta {
            api,
            status: head.status.as_u16(),
            format: if is_events { Format::Sse } else { Format::Json },
            encoding: Encoding::from_headers(&head.headers),
            has_ids,
        };
        let idle = upstream.idle;
        let recorder = server.recorder.as_ref();
        // The next request in Responses may name this reply instead of repeating the conversation.
        let is_named_later = self.chat.api() == Api::Responses;
        let keeping = self.keeping;
        let captured = || self.captured(server, &upstream, api, has_ids);
        let recording = recorder.and_then(|it| match keeping {
            Keeping::Kept => it.begin(captured(), meta),
            // A sub-agent that it starts is off the record too.
            Keeping::OffRecord => it.listen(captured(), meta),
            Keeping::RelayOnly if is_named_later => it.listen(captured(), meta),
            Keeping::RelayOnly => None,
        });
        let relay = Relay::new(body, recording, idle);
        Response::from_parts(head, Body::new(Gathered::new(relay)))
    }

    fn captured(
        self,
        server: &Chat,
        upstream: &Upstream,
        replied_in: Api,
        has_ids: bool,
    ) -> CapturedRequest {
        let identifier = &server.identifier;
        identifier.read_said(&self.chat);
        let served = self.served(upstream);
        let parent = has_ids.then(|| self.parent(upstream)).flatten();
        let sampling = self.sampling(server, upstream);
        let Self {
            chat, who, start, ..
        } = self;
        let on_reply_id = (chat.api() == Api::Responses).then(|| {
            let tell = identifier.on_reply_id(&who, &chat, start);
            // It is remembered under the id that the caller gets.
            match replied_in {
                Api::Responses => tell,
                Api::Chat | Api::Messages => {
                    Box::new(move |id: String| tell(translated_reply_id(&id)))
                }
            }
        });
        let note_calls = identifier.on_calls(&self.caller, &who);
        let on_calls: OnCalls = match &server.histories {
            Some(histories) if matches!(self.keeping, Keeping::Kept) => {
                let histories = Arc::clone(histories);
                let key = SessionKey::new(&who.agent, &who.session);
                Box::new(move |chat, reply| {
                    note_calls(chat, reply);
                    histories.expect(key, reply);
                })
            }
            _ => note_calls,
        };
        let traceparent = self.headers.get("traceparent");
        CapturedRequest {
            agent: who.agent,
            session: who.session,
            kind: who.kind,
            is_last: who.is_last,
            chat,
            start,
            sampling,
            served,
            parent,
            on_reply_id,
            on_calls: Some(on_calls),
            started_ms: self.started_ms,
            traceparent: traceparent.and_then(|it| Some(it.to_str().ok()?.to_owned())),
            span: Span::current(),
        }
    }

    fn parent(&self, upstream: &Upstream) -> Option<Parent> {
        if let Some(model) = upstream.model(None) {
            return upstream.parent(model);
        }
        upstream.parent(self.chat.field("model")?.as_str()?)
    }

    fn sender_lines(&self, lessons: &Lessons) -> BTreeMap<SenderId, String> {
        if lessons.sender_lines.is_empty() {
            return BTreeMap::new();
        }
        let senders = self.chat.utterances().filter_map(|said| said.sender);
        let line = |sender: SenderId| {
            let line = lessons.sender_lines.get(&sender)?.clone();
            Some((sender, line))
        };
        senders.filter_map(line).collect()
    }

    fn served(&self, upstream: &Upstream) -> Served {
        let adapter = upstream.adapter(&self.context.lease);
        let lessons = self.lessons(upstream);
        let skills = lessons.skills.iter().map(|skill| LessonRef {
            name: skill.name.to_string(),
            version: skill.version.clone(),
        });
        Served {
            api: match self.chat.api() {
                Api::Chat => None,
                other => Some(other.path().to_owned()),
            },
            upstream: upstream.name.clone(),
            model: upstream.model(adapter).unwrap_or_default().to_owned(),
            adapter: adapter.map(str::to_owned),
            skills: skills.collect(),
            wishes: lessons.wishes_version.clone(),
            wish_ids: lessons.wish_ids.clone(),
            system_block: lessons.system_block.clone(),
            user_line: lessons.user_line.clone(),
            sender_lines: self.sender_lines(lessons),
            imported: None,
            rollout: self.rollout.as_ref().map(|rollout| rollout.mark()),
        }
    }
}
