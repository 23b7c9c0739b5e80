//! What the bytes of a turn say, read after the agent has them all.

use http::HeaderValue;
use metaclaw_dialects::{Api, Reply};
use metaclaw_turns::{NewTurn, RawTurn, Served, StreamEnd, Tokens};

use super::{Began, Finished, Format, Read, Request, ids};
use crate::metrics::{Metrics, api_name};

// === impl Finished ===

impl Finished {
    /// The turn for the log; nothing where what was asked cannot be read.
    pub(super) fn read(mut self, metrics: &Metrics) -> Option<Read> {
        self.asked.note(metrics);
        let asked = *self.asked;
        let Request::Noted(noted) = asked.request else {
            return None;
        };
        let opened = self
            .capture
            .bytes()
            .map(|bytes| self.began.encoding.open(bytes));
        if matches!(opened, Some(None)) {
            metrics.undecodable.inc();
        }
        let opened = opened.flatten();
        // What was said is as long as the opened reply; what came of it may be a thousandth of that. Of one
        // that was let go of, or cannot be opened, there is nothing.
        let n_reply = opened
            .as_deref()
            .map_or(0, |it| self.n_bytes.max(it.len() as u64));
        let sampled = opened.as_deref().and_then(|it| self.began.sampled(it));
        let mut reply = opened.map(|bytes| self.began.read(&bytes));
        if reply.take_if(|reply| reply.n_skipped > 0).is_some() {
            metrics.overflowed.inc();
        }
        let end = how_it_ended(self.how, self.began.status, reply.as_ref());
        let reply = reply.unwrap_or_default();
        let sampled = sampled.filter(|_| end == StreamEnd::Complete);
        let tokens = sampled.map(|sampled| ids::tokens(sampled, noted.setup.served()));
        let n_ids = tokens.as_ref().map_or(0, Tokens::n_bytes) as u64;
        self.memory.set(noted.n_bytes() + n_ids + n_reply);
        let line = Line {
            api: asked.api,
            status: self.began.status,
            n_bytes: self.n_bytes,
            traceparent: asked.traceparent,
        };
        let said = noted.said;
        let turn = NewTurn {
            agent: asked.who.agent,
            session: asked.who.session,
            kind: asked.who.kind,
            chain: said.messages.last().map_or(said.chain, |last| last.chain),
            request: metaclaw_turns::Request::default(),
            reply: reply.message,
            reply_id: reply.id,
            finish_reason: reply.finish_reason,
            usage: reply.usage,
            end,
            served: Served::default(),
            started_ms: asked.started_ms,
            first_byte_ms: self.first_byte_ms,
            ended_ms: self.ended_ms,
            is_last: asked.who.is_last,
            tokens,
        };
        line.say(&turn, noted.setup.served());
        Some(Read {
            turn: RawTurn {
                turn,
                messages: said.messages,
                setup: noted.setup,
                goes_on_from: said.goes_on_from,
            },
            ack: self.ack,
            memory: self.memory,
        })
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
    fn say(&self, turn: &NewTurn, served: &Served) {
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
            upstream = served.upstream,
            model = served.model,
            adapter = served.adapter,
            skills = served.skills.len(),
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
