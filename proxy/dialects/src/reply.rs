//! A model's reply in one type for all APIs.

use metaclaw_chat::{Message, StopReason, Usage, breaks_off};
use serde_json::Value;

use crate::{
    fields::JsonFields,
    sse::{SseEvent, SseReader},
    tail::last_event,
};

/// A model's reply, as far as it has arrived. Of several choices, it is the first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// The upstream's id of the reply, for example `chatcmpl-123`, `msg_123` or `resp_123`.
    pub id: Option<String>,
    /// The model that answered, according to the upstream.
    pub model: Option<String>,
    /// The assistant's message in OpenAI's chat form with unknown fields, or `None` if no part of it has arrived.
    /// Thinking is in its `reasoning_content`.
    pub message: Option<Message>,
    /// Why the model stopped, in OpenAI's words (`stop`, `length`, `tool_calls`, `content_filter`). A reason without
    /// such a word is unchanged. Some upstreams never give one.
    pub finish_reason: Option<String>,
    /// Its token counts, if the upstream gives them.
    pub usage: Option<Usage>,
    /// Whether the stream's own end mark has arrived.
    pub ended: bool,
    /// An error that the upstream sent inside a reply with status 200.
    pub error: Option<Value>,
    /// Number of events that were too long to read. If there are any, the message has gaps.
    pub n_skipped: u64,
}

/// Bytes of a stream that are read at once, so that its events are not all in memory too.
const AT_ONCE: usize = 64 << 10;

/// The end mark of chat completions, which some servers of the other APIs send too.
const DONE: &str = "[DONE]";

/// Assembles the events of one API's stream.
pub(crate) trait Accumulate: Default {
    const ENDS: &'static [&'static str];

    /// Adds one event to the `reply`. Its kind is the data's `type`, or else the `event:` line. Unknown events are
    /// ignored.
    fn event(&mut self, kind: &str, data: &JsonFields<'_>, reply: &mut Reply);

    fn finish(self, reply: Reply) -> Reply;
}

#[derive(Default)]
struct ReplyStream<A> {
    reply: Reply,
    events: A,
}

// === impl Reply ===

impl Reply {
    /// Returns whether no text is missing: the stream's end mark has arrived, or a stop reason, and the server did not
    /// break off.
    pub fn is_whole(&self) -> bool {
        match &self.finish_reason {
            Some(reason) => !breaks_off(reason),
            None => self.ended,
        }
    }

    /// Returns its stop reason if that is a word whose meaning is not known.
    pub fn unknown_reason(&self) -> Option<&str> {
        let reason = self.finish_reason.as_deref();
        reason.filter(|reason| StopReason::of(reason).is_none())
    }

    pub(crate) fn begin(&mut self, named: &Value) {
        self.id = self.id.take().or_else(|| text(&named["id"]));
        self.model = self.model.take().or_else(|| text(&named["model"]));
    }
}

/// Reads a whole event stream, or the received part, in the pieces in which it arrived. Text after the end mark is not
/// part of the reply, because a client that reads it as it arrives stops there.
pub(crate) fn read_sse<'a, A: Accumulate>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Reply {
    let mut reader = SseReader::new();
    let mut stream = ReplyStream::<A>::default();
    let pieces = pieces.into_iter().flat_map(|piece| piece.chunks(AT_ONCE));
    'read: for piece in pieces {
        for event in reader.feed(piece) {
            stream.event(&event);
            if stream.reply.ended {
                break 'read;
            }
        }
    }
    let n_skipped = reader.n_skipped();
    if !stream.reply.ended
        && let Some(event) = reader.finish()
    {
        stream.event(&event);
    }
    Reply {
        n_skipped,
        ..stream.events.finish(stream.reply)
    }
}

/// Returns whether the last event of `tail` is complete and an end mark, read like [`read_sse`] does. Later bytes
/// cannot change it.
pub(crate) fn is_done<A: Accumulate>(tail: &[u8]) -> bool {
    if A::ENDS.is_empty() && !tail.trim_ascii_end().ends_with(DONE.as_bytes()) {
        return false;
    }
    let last = last_event(tail).unwrap_or_default();
    if !may_end::<A>(last) {
        return false;
    }
    let mut stream = ReplyStream::<A>::default();
    for event in SseReader::new().feed(last) {
        stream.event(&event);
    }
    stream.reply.ended
}

/// Makes a cheap check before the event is parsed: an end mark is among the first words of a line, as in
/// `event: message_stop`, `data: {"type":"message_stop"` and `data: [DONE]`.
fn may_end<A: Accumulate>(event: &[u8]) -> bool {
    let is_word = |b: &u8| !b.is_ascii_whitespace() && !b"[]{}\":,".contains(b);
    let is_mark = |word: &[u8]| word == b"DONE" || A::ENDS.iter().any(|end| end.as_bytes() == word);
    let mut lines = event.split(|b| matches!(b, b'\n' | b'\r'));
    lines.any(|line| {
        let words = line.split(|b| !is_word(b)).filter(|word| !word.is_empty());
        words.take(3).any(is_mark)
    })
}

// === impl Stream ===

impl<A: Accumulate> ReplyStream<A> {
    fn event(&mut self, event: &SseEvent) {
        if event.data.trim() == DONE {
            self.reply.ended = true;
        } else if let Some(data) = JsonFields::parse(&event.data) {
            let kind = data.text("type");
            let kind = kind.as_deref().or(event.event.as_deref());
            let kind = kind.unwrap_or_default();
            self.reply.ended |= A::ENDS.contains(&kind);
            self.events.event(kind, &data, &mut self.reply);
            // These are llama.cpp's `error:`, and vLLM's and Mistral's object.
            let is_error = event.event.as_deref() == Some("error")
                || data.text("object").as_deref() == Some("error");
            if is_error && self.reply.error.is_none() {
                self.reply.error = Some(data.to_value());
            }
        }
    }
}

pub(crate) fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

pub(crate) fn error(body: &Value) -> Option<Value> {
    body.get("error").filter(|error| !error.is_null()).cloned()
}
