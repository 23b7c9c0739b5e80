//! What the bytes of a reply say, read after the agent has them all.

use metaclaw_dialects::{Api, Reply};
use metaclaw_turns::{NewTurn, Request, StreamEnd};
use serde_json::{Map, Value};

use super::{Asked, Began, Finished, Format, Held};
use crate::{metrics::Metrics, splice::OWN_FIELDS};

// === impl Finished ===

impl Finished {
    /// The turn for the log, and the memory that it holds until it is there.
    pub(super) fn into_turn(self, metrics: &Metrics) -> (NewTurn, Held) {
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
        let request = self.asked.request();
        let asked = *self.asked;
        let turn = NewTurn {
            agent: asked.who.agent,
            session: asked.who.session,
            kind: asked.who.kind,
            chain: asked.who.chain,
            request: Request {
                messages: asked.messages,
                ..request
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
        };
        log_line(&turn, self.began.status, self.n_bytes);
        (turn, self.request)
    }
}

/// One line per turn, without a word of it.
fn log_line(turn: &NewTurn, status: u16, n_bytes: u64) {
    let usage = turn.usage.unwrap_or_default();
    let since = |ms: u64| ms.saturating_sub(turn.started_ms);
    tracing::info!(
        target: "metaclaw::turn",
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
        "turn"
    );
}

/// What the relay saw, and what the reply itself says.
fn how_it_ended(how: StreamEnd, status: u16, reply: Option<&Reply>) -> StreamEnd {
    if !(200..300).contains(&status) {
        return StreamEnd::UpstreamError { status };
    }
    let Some(reply) = reply else {
        return StreamEnd::Overflowed;
    };
    match how {
        _ if reply.error.is_some() => StreamEnd::UpstreamError { status },
        // Clients stop reading at the end mark, and some at the finish reason: nothing is missing.
        StreamEnd::ClientGone if reply.is_whole() => StreamEnd::Complete,
        StreamEnd::Cut if reply.ended => StreamEnd::Complete,
        StreamEnd::Complete if reply.message.is_none() => StreamEnd::UpstreamError { status },
        how => how,
    }
}

// === impl Began ===

impl Began {
    fn read(self, bytes: &[u8]) -> Reply {
        match self.format {
            Format::Sse => Api::Chat.read_sse(bytes),
            Format::Json => Api::Chat.read_json(bytes),
        }
    }
}

// === impl Asked ===

impl Asked {
    /// Everything that was asked but the messages.
    fn request(&self) -> Request {
        let mut request = Request::default();
        for member in &self.layout.members {
            let key = member.key.as_str();
            if key == "messages" || OWN_FIELDS.contains(&key) {
                continue;
            }
            // A number that no f64 holds is all that can fail: nothing that steers an answer.
            let value = serde_json::from_slice(&self.raw[member.value.clone()]);
            let value = value.unwrap_or(Value::Null);
            if key == "tools" {
                request.tools = Some(value);
            } else {
                put(&mut request.params, key, value);
            }
        }
        request
    }
}

fn put(params: &mut Map<String, Value>, key: &str, value: Value) {
    params.insert(key.to_owned(), value);
}
