//! What the bytes of a turn say, read after the agent has them all.

use http::HeaderValue;
use metaclaw_chat::{ChainHash, Message};
use metaclaw_dialects::{Api, Reply};
use metaclaw_turns::{JsonText, NewTurn, RawMessage, RawTurn, Request, StreamEnd};
use serde_json::{Map, Value};

use super::{Asked, Began, Finished, Format, Held};
use crate::{
    metrics::{Metrics, api_name},
    request::value,
    scan,
    splice::OWN_FIELDS,
};

/// A part of a request that no value can hold: a number beyond f64. Upstreams may take it; it is not
/// learned from.
struct Unread;

// === impl Finished ===

impl Finished {
    /// The turn for the log, and the memory that it holds until it is there; nothing, and counted,
    /// where it cannot be read.
    pub(super) fn into_turn(mut self, metrics: &Metrics) -> Option<(RawTurn, Held)> {
        let opened = self
            .capture
            .bytes()
            .map(|bytes| self.began.encoding.open(bytes));
        if matches!(opened, Some(None)) {
            metrics.undecodable.inc();
        }
        let mut reply = opened.flatten().map(|bytes| self.began.read(&bytes));
        if reply.take_if(|reply| reply.n_skipped > 0).is_some() {
            metrics.overflowed.inc();
        }
        let end = how_it_ended(self.how, self.began.status, reply.as_ref());
        let reply = reply.unwrap_or_default();
        // The texts of the request are copies of its bytes.
        if !self.request.grow(self.asked.raw.len() as u64) {
            metrics.overflowed.inc();
            return None;
        }
        let Ok((messages, tools, params)) = self.asked.read() else {
            metrics.unread.inc();
            return None;
        };
        let goes_on_from = self.asked.goes_on_from();
        let line = Line {
            api: self.asked.api,
            status: self.began.status,
            n_bytes: self.n_bytes,
            traceparent: self.asked.traceparent.clone(),
        };
        let asked = *self.asked;
        let turn = NewTurn {
            agent: asked.who.agent,
            session: asked.who.session,
            kind: asked.who.kind,
            chain: messages.last().map_or(asked.who.chain, |last| last.chain),
            request: Request {
                params,
                ..Request::default()
            },
            reply: reply.message,
            reply_id: reply.id,
            finish_reason: reply.finish_reason,
            usage: reply.usage,
            end,
            served: asked.served,
            started_ms: asked.started_ms,
            first_byte_ms: self.first_byte_ms,
            ended_ms: self.ended_ms,
            is_last: asked.who.is_last,
        };
        line.say(&turn);
        let turn = RawTurn {
            turn,
            messages,
            tools,
            goes_on_from,
        };
        Some((turn, self.request))
    }
}

/// One line per turn, without a word of it. The OpenTelemetry exporter of `proxy/cli` makes a span of
/// the same fields.
struct Line {
    api: Api,
    status: u16,
    n_bytes: u64,
    traceparent: Option<HeaderValue>,
}

// === impl Line ===

impl Line {
    fn say(&self, turn: &NewTurn) {
        let Self {
            api,
            status,
            n_bytes,
            traceparent,
        } = self;
        let traceparent = traceparent.as_ref().and_then(|it| it.to_str().ok());
        let usage = turn.usage.unwrap_or_default();
        let since = |ms: u64| ms.saturating_sub(turn.started_ms);
        tracing::info!(
            target: "metaclaw::turn",
            api = api_name(Some(*api)),
            agent = %turn.agent,
            session = %turn.session,
            kind = ?turn.kind,
            upstream = turn.served.upstream,
            model = turn.served.model,
            adapter = turn.served.adapter,
            skills = turn.served.skills.len(),
            status,
            end = ?turn.end,
            first_byte_ms = turn.first_byte_ms.map(since),
            total_ms = since(turn.ended_ms),
            n_bytes,
            prompt_tokens = usage.prompt_tokens,
            cached_tokens = usage.cached_tokens,
            completion_tokens = usage.completion_tokens,
            started_ms = turn.started_ms,
            traceparent,
            "turn"
        );
    }
}

/// What the relay saw, and what the reply itself says.
fn how_it_ended(how: StreamEnd, status: u16, reply: Option<&Reply>) -> StreamEnd {
    if !(200..300).contains(&status) {
        return StreamEnd::UpstreamError { status };
    }
    let Some(reply) = reply else {
        return StreamEnd::Overflowed;
    };
    let how = match how {
        // Clients stop reading at the end mark, and some at the finish reason: nothing is missing.
        StreamEnd::ClientGone if reply.is_whole() => StreamEnd::Complete,
        StreamEnd::Cut if reply.ended => StreamEnd::Complete,
        how => how,
    };
    let is_empty = how == StreamEnd::Complete && reply.message.is_none();
    if is_empty || reply.error.is_some() {
        return StreamEnd::UpstreamError { status };
    }
    how
}

// === impl Began ===

impl Began {
    fn read(self, bytes: &[u8]) -> Reply {
        match self.format {
            Format::Sse => self.api.read_sse(bytes),
            Format::Json => self.api.read_json(bytes),
        }
    }
}

// === impl Asked ===

impl Asked {
    /// The request in chat shape: its conversation, its tools, and what else steers the answer.
    #[expect(clippy::type_complexity, reason = "three parts, used in one place")]
    fn read(&self) -> Result<(Vec<RawMessage>, Option<JsonText>, Map<String, Value>), Unread> {
        let messages = match self.api {
            Api::Chat => self.chat_messages()?,
            Api::Messages | Api::Responses => self.other_messages()?,
        };
        let mut tools = None;
        let mut params = Map::new();
        for member in &self.layout.members {
            let raw = &self.raw[member.value.clone()];
            match (member.key.as_str(), self.api) {
                (key, _) if OWN_FIELDS.contains(&key) => {}
                (key, api) if key == scan::conversation(api) => {}
                ("system", Api::Messages) | ("instructions", Api::Responses) => {}
                ("tools", Api::Chat) => tools = Some(text(raw)?),
                ("tools", api) => {
                    let value = value(raw).ok_or(Unread)?;
                    tools = Some(JsonText::of(&api.tools(&value)).map_err(|_| Unread)?);
                }
                // A number that no f64 holds is all that can fail: nothing that steers an answer.
                (key, api) => {
                    let value = value(raw).unwrap_or(Value::Null);
                    put(&mut params, api.param(key), value);
                }
            }
        }
        Ok((messages, tools, params))
    }

    /// The reply whose conversation the request leaves out.
    fn goes_on_from(&self) -> Option<String> {
        let member = self.layout.member("previous_response_id");
        let member = member.filter(|_| self.api == Api::Responses)?;
        let id = &self.raw[member.value.clone()];
        (id.first() == Some(&b'"')).then(|| scan::text::read(id).into_owned())
    }

    /// The messages of a chat completion, as they stand there.
    fn chat_messages(&self) -> Result<Vec<RawMessage>, Unread> {
        let each = self.layout.each().iter().zip(self.chains.iter().skip(1));
        let message = |(item, chain): (&scan::Item, &ChainHash)| {
            let text = text(&self.raw[item.whole.clone()])?;
            let chain = *chain;
            Ok(RawMessage { text, chain })
        };
        each.map(message).collect()
    }

    /// The messages of another API, in chat shape.
    fn other_messages(&self) -> Result<Vec<RawMessage>, Unread> {
        let of_member = |name| {
            let member = self.layout.member(name)?;
            value(&self.raw[member.value.clone()])
        };
        let mut messages: Vec<Message> = Vec::with_capacity(self.layout.each().len() + 1);
        let beside = match self.api {
            Api::Chat => None,
            Api::Messages => of_member("system"),
            Api::Responses => of_member("instructions"),
        };
        messages.extend(beside.and_then(|value| self.api.system(&value)));
        for item in self.layout.each() {
            let value = value(&self.raw[item.whole.clone()]).ok_or(Unread)?;
            let pushed = self.api.push(&mut messages, &value);
            pushed.map_err(|_| Unread)?;
        }
        let input = of_member("input").filter(|_| self.api == Api::Responses);
        messages.extend(input.as_ref().and_then(Value::as_str).map(Message::user));
        let mut chain = self.chains.first().copied().unwrap_or(self.who.chain);
        let write = |message: &Message| {
            chain = chain.then(message);
            let text = JsonText::of(message.as_map()).map_err(|_| Unread)?;
            Ok(RawMessage { text, chain })
        };
        messages.iter().map(write).collect()
    }
}

/// A part of a request as the log stores it.
fn text(raw: &[u8]) -> Result<JsonText, Unread> {
    JsonText::new(raw).or_else(|_| {
        // Half a surrogate pair is all that is wrong with it, mostly.
        let value = value(raw).ok_or(Unread)?;
        JsonText::of(&value).map_err(|_| Unread)
    })
}

fn put(params: &mut Map<String, Value>, key: &str, value: Value) {
    params.insert(key.to_owned(), value);
}
