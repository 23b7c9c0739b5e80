//! Converts a finished capture into the turn that the log accepts.

use metaclaw_dialects::{Api, vllm::Sampled};
use metaclaw_turns::{NewTurn, Served, StreamEnd, Tokens};

use crate::{
    budget::{CaptureMetrics, Held},
    conversation::begin_turn,
    long_texts::LongTexts,
    recording::Recording,
};

// === impl Recording ===

impl Recording {
    /// Decodes the reply and reads the request. Returns the turn, and its memory, which is given back when the log is done
    /// with the turn. If the request cannot be read, counts this and returns `None`.
    pub(crate) fn decode(
        mut self: Box<Self>,
        metrics: &CaptureMetrics,
        texts: &mut LongTexts,
    ) -> Option<(NewTurn, Held)> {
        let _entered = self.request.span.clone().entered();
        let response = self.response;
        let copied = self.reply.bytes();
        let opened = copied.as_deref().and_then(|bytes| {
            let opened = response.encoding.open(bytes);
            if opened.is_none() {
                metrics.undecodable.inc();
            }
            opened
        });
        // What was said is as long as the opened reply; what came of it may be a thousandth of that. Of one that was
        // dropped, or cannot be opened, there is nothing.
        let n_reply = opened
            .as_ref()
            .map_or(0, |opened| self.n_bytes.max(opened.len() as u64));
        let sampled = opened.as_ref().and_then(|opened| response.sampled(opened));
        let mut reply = opened.map(|opened| response.parse(&opened));
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
        let parent = request
            .parent
            .take()
            .and_then(|parent| parent.get()?.clone());
        let whole = sampled.filter(|_| end == StreamEnd::Complete);
        turn.tokens = whole.map(|sampled| tokens(sampled, &turn.served, parent));
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

/// The longest text of a caller in the line, in characters.
const LONGEST: usize = 100;

/// Writes a turn's line in the current span. Fields that the turn does not contain are passed separately.
pub(crate) fn log_turn(
    turn: &NewTurn,
    api: Api,
    status: u16,
    n_bytes: u64,
    traceparent: Option<&str>,
) {
    let served = &turn.served;
    let usage = turn.meta.usage.as_ref();
    let since = |ms: u64| ms.saturating_sub(turn.meta.started_ms);
    tracing::info!(
        target: "metaclaw::turn",
        api = api.name(),
        agent = %turn.agent,
        session = %turn.session,
        kind = ?turn.meta.kind,
        upstream = served.upstream,
        model = bounded(&served.model),
        adapter = served.adapter,
        skills = served.skills.len(),
        status,
        end = ?turn.meta.end,
        first_byte_ms = turn.meta.first_byte_ms.map(since),
        total_ms = since(turn.meta.ended_ms),
        n_bytes,
        prompt_tokens = usage.map(|usage| usage.prompt_tokens),
        cached_tokens = usage.map(|usage| usage.cached_tokens),
        completion_tokens = usage.map(|usage| usage.completion_tokens),
        started_ms = turn.meta.started_ms,
        traceparent = traceparent.map(bounded),
        "turn"
    );
}

/// Returns the beginning of a text, because a caller may send one as long as a request.
fn bounded(text: &str) -> &str {
    let end = text
        .char_indices()
        .nth(LONGEST)
        .map_or(text.len(), |(end, _)| end);
    &text[..end]
}
