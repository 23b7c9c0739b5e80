//! Converts a finished capture into the turn that the log accepts.

use std::borrow::Cow;

use metaclaw_dialects::{Reply, vllm::Sampled};
use metaclaw_turns::{NewTurn, Served, StreamEnd, Tokens, TurnMeta};

use crate::{
    budget::Held,
    conversation::NormalizedRequest,
    line::log_turn,
    long_texts::LongTexts,
    metrics::CaptureMetrics,
    recording::{Capture, Finished},
};

/// The decoded bytes of a reply.
struct DecodedReply {
    reply: Reply,
    end: StreamEnd,
    sampled: Option<Sampled>,
    /// The largest memory that the reply can take, in bytes.
    n_bytes: u64,
}

// === impl Finished ===

impl Finished {
    /// Decodes the reply, reads the request, and returns the turn with its memory. The memory is given back when the
    /// log is done with the turn. If the request cannot be read, returns `None` and counts the loss.
    pub(crate) fn into_turn(
        self,
        metrics: &CaptureMetrics,
        texts: &mut LongTexts,
    ) -> Option<(NewTurn, Held)> {
        let mut capture = *self.capture;
        let _entered = capture.request.span.clone().entered();
        let DecodedReply {
            reply,
            end,
            sampled,
            n_bytes,
        } = capture.decode(self.end, metrics);
        let request = &mut capture.request;
        if let Some((tell, id)) = request.on_reply_id.take().zip(reply.id.clone()) {
            tell(id);
        }
        if let Some((tell, reply)) = request.on_calls.take().zip(reply.message.as_ref()) {
            tell(&request.chat, reply);
        }
        let asked = NormalizedRequest::from_request(&request.chat, request.start, texts);
        let Some(asked) = asked else {
            metrics.unreadable.inc();
            return None;
        };
        let mut served = std::mem::take(&mut request.served);
        if served.model.is_empty() {
            served.model = asked.model.unwrap_or_default();
        }
        let messages = asked.messages;
        let mut params = asked.params;
        for (name, value) in std::mem::take(&mut request.sampling) {
            params.insert(name.to_owned(), value.into());
        }
        // If the base model is not known when the reply has ended, the model is treated as a base model.
        let parent = request.parent.take().and_then(|it| it.get()?.clone());
        let tokens = sampled.map(|sampled| tokens(sampled, &served, parent));
        let n_ids = tokens.as_ref().map_or(0, Tokens::n_bytes) as u64;
        let n_messages = size_of_val(messages.as_slice());
        let n_turn = (asked.n_bytes + n_messages + size_of::<NewTurn>()) as u64;
        capture.memory.set(n_turn + n_ids + n_bytes);
        let request = capture.request;
        let turn = NewTurn {
            agent: request.agent,
            session: request.session,
            meta: TurnMeta {
                kind: request.kind,
                chain: messages.last().map_or(request.start, |last| last.chain),
                reply_id: reply.id,
                finish_reason: reply.finish_reason,
                usage: reply.usage,
                end,
                started_ms: request.started_ms,
                first_byte_ms: capture.first_byte_ms,
                ended_ms: self.ended_ms,
                is_last: request.is_last,
                masked: false,
            },
            messages,
            continues: asked.goes_on_from,
            tools: asked.tools,
            params,
            reply: reply.message,
            served,
            tokens,
        };
        log_turn(
            &turn,
            request.chat.api(),
            capture.response.status,
            capture.n_bytes,
            request.traceparent.as_deref(),
        );
        Some((turn, capture.memory))
    }
}

// === impl Capture ===

impl Capture {
    fn decode(&self, seen: StreamEnd, metrics: &CaptureMetrics) -> DecodedReply {
        let response = self.response;
        let came = self.reply.bytes();
        let opened = came.as_ref().map(|bytes| response.encoding.open(bytes));
        if matches!(opened, Some(None)) {
            metrics.undecodable.inc();
        }
        let opened: Option<Cow<'_, [u8]>> = opened.flatten();
        // The text is as long as the decompressed reply. The compressed bytes may be a thousandth of that. A copy that
        // was dropped, or cannot be decompressed, has no bytes.
        let n_bytes = opened
            .as_ref()
            .map_or(0, |it| self.n_bytes.max(it.len() as u64));
        let sampled = opened.as_ref().and_then(|it| response.sampled(it));
        let mut reply = opened.map(|bytes| response.parse(&bytes));
        if reply.take_if(|reply| reply.n_skipped > 0).is_some() {
            metrics.overflowed.inc();
        }
        let end = response.end(seen, reply.as_ref());
        DecodedReply {
            reply: reply.unwrap_or_default(),
            end,
            sampled: sampled.filter(|_| end == StreamEnd::Complete),
            n_bytes,
        }
    }
}

/// Converts sampled ids to the log's form. vLLM does not return the log-probabilities after temperature and top-p.
fn tokens(sampled: Sampled, served: &Served, parent: Option<String>) -> Tokens {
    let model = served.model.clone();
    let (base, adapter) = match parent {
        Some(parent) => (parent, Some(model)),
        None => (model, served.adapter.clone()),
    };
    Tokens {
        prompt_ids: sampled.prompt_ids,
        ids: sampled.ids,
        logprobs: sampled.logprobs,
        sampling_logprobs: Vec::new(),
        adapter,
        version: None,
        base,
        base_fingerprint: None,
    }
}
