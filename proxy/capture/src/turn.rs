//! Converts a finished capture into the turn that the log accepts.

use metaclaw_dialects::vllm::Sampled;
use metaclaw_turns::{NewTurn, Served, StreamEnd, Tokens};

use crate::{
    budget::Held, conversation::begin_turn, line::log_turn, long_texts::LongTexts,
    metrics::CaptureMetrics, recording::Recording,
};

// === impl Recording ===

impl Recording {
    /// The turn, and its memory, which is given back when the log is done with it: the reply decoded, the
    /// request read. Nothing, and counted, where the request cannot be read.
    pub(crate) fn decode(
        mut self: Box<Self>,
        metrics: &CaptureMetrics,
        texts: &mut LongTexts,
    ) -> Option<(NewTurn, Held)> {
        let _entered = self.request.span.clone().entered();
        let response = self.response;
        let came = self.reply.bytes();
        let opened = came.as_ref().map(|bytes| response.encoding.open(bytes));
        if matches!(opened, Some(None)) {
            metrics.undecodable.inc();
        }
        let opened = opened.flatten();
        // What was said is as long as the opened reply; what came of it may be a thousandth of that. Of one
        // that was let go of, or cannot be opened, there is nothing.
        let n_reply = opened.as_ref();
        let n_reply = n_reply.map_or(0, |it| self.n_bytes.max(it.len() as u64));
        let sampled = opened.as_ref().and_then(|it| response.sampled(it));
        let mut reply = opened.map(|bytes| response.parse(&bytes));
        if reply.take_if(|reply| reply.n_skipped > 0).is_some() {
            metrics.overflowed.inc();
        }
        let end = response.end(self.end.unwrap_or(StreamEnd::Cut), reply.as_ref());
        let reply = reply.unwrap_or_default();
        let request = &mut self.request;
        if let Some((tell, id)) = request.on_reply_id.take().zip(reply.id.clone()) {
            tell(id);
        }
        if let Some((tell, reply)) = request.on_calls.take().zip(reply.message.as_ref()) {
            tell(&request.chat, reply);
        }
        let Some((mut turn, n_request)) = begin_turn(request, texts) else {
            metrics.unreadable.inc();
            return None;
        };
        // What is not known when the reply has ended is taken for a base model.
        let parent = request.parent.take().and_then(|it| it.get()?.clone());
        let sampled = sampled.filter(|_| end == StreamEnd::Complete);
        turn.tokens = sampled.map(|sampled| tokens(sampled, &turn.served, parent));
        turn.reply = reply.message;
        turn.meta.reply_id = reply.id;
        turn.meta.finish_reason = reply.finish_reason;
        turn.meta.usage = reply.usage;
        let usage = reply.usage.unwrap_or_default();
        metrics.prompt_tokens.add(usage.prompt_tokens);
        metrics.cached_tokens.add(usage.cached_tokens);
        turn.meta.end = end;
        turn.meta.first_byte_ms = self.first_byte_ms;
        turn.meta.ended_ms = self.ended_ms;
        let n_ids = turn.tokens.as_ref().map_or(0, Tokens::n_bytes) as u64;
        let n_messages = size_of_val(turn.messages.as_slice());
        let n_turn = (n_request + n_messages + size_of::<NewTurn>()) as u64;
        let mut memory = self.memory;
        memory.set(n_turn + n_ids + n_reply);
        log_turn(
            &turn,
            self.request.chat.api(),
            response.status,
            self.n_bytes,
            self.request.traceparent.as_deref(),
        );
        Some((turn, memory))
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
