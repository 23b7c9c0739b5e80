//! What a model answered, in one shape whatever API it answered in.

use metaclaw_chat::{Message, Usage};
use serde_json::Value;

use crate::{
    fields::Fields,
    sse::{SseEvent, SseReader},
    tail::last_event,
};

/// What a model answered, as far as the bytes go; of several choices the first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// The upstream's id of the reply, as in `chatcmpl-123`, `msg_123` or `resp_123`.
    pub id: Option<String>,
    /// The model that the upstream says has answered.
    pub model: Option<String>,
    /// The assistant's message in OpenAI's chat shape, unknown fields included; `None` where not a
    /// piece of one came. Thinking is its `reasoning_content`.
    pub message: Option<Message>,
    /// Why the model stopped, in OpenAI's words (`stop`, `length`, `tool_calls`, `content_filter`);
    /// a reason that has no such word stands as it came. Some upstreams never say.
    pub finish_reason: Option<String>,
    /// What it cost, where the upstream says so.
    pub usage: Option<Usage>,
    /// The stream's own end mark came.
    pub ended: bool,
    /// An error that the upstream sent inside a reply it had begun with status 200.
    pub error: Option<Value>,
    /// Events of the stream that were too long to read: where there are any, the message has gaps.
    pub n_skipped: u64,
}

/// Reasons to stop with which servers say that they broke off: vLLM and SGLang; OpenRouter; DeepSeek
/// (<https://api-docs.deepseek.com/api/create-chat-completion>); Z.ai.
const BREAKS: [&str; 4] = [
    "abort",
    "error",
    "insufficient_system_resource",
    "network_error",
];

/// How many bytes of a stream are read at once, so that its events are not all held beside it.
const AT_ONCE: usize = 64 << 10;

/// The end mark of chat completions, which some servers of the other APIs send as well.
const DONE: &str = "[DONE]";

/// Puts the events of one API's stream together.
pub(crate) trait Accumulate: Default {
    /// The kinds of the events that end a stream, [`DONE`] aside.
    const ENDS: &'static [&'static str];

    /// Takes one event into the `reply`: its kind, which is the data's `type` or else what its `event:` line
    /// says, and its data. What is none of the API's is left out.
    fn event(&mut self, kind: &str, data: &Fields<'_>, reply: &mut Reply);

    /// The reply, as far as it came.
    fn finish(self, reply: Reply) -> Reply;
}

/// A stream under way.
#[derive(Default)]
struct Stream<A> {
    reply: Reply,
    events: A,
}

// === impl Reply ===

impl Reply {
    /// Nothing of the model's words is missing: the stream's end mark came, or why the model stopped, and
    /// that is not that its server broke off.
    pub fn is_whole(&self) -> bool {
        match &self.finish_reason {
            Some(reason) => !breaks_off(reason),
            None => self.ended,
        }
    }

    /// Takes the id and the model that a reply names, where none was named before.
    pub(crate) fn begin(&mut self, named: &Value) {
        self.id = self.id.take().or_else(|| text(&named["id"]));
        self.model = self.model.take().or_else(|| text(&named["model"]));
    }
}

/// Reads a whole event stream, or as much of one as came, in the pieces in which it came. What stands
/// behind the end mark is no part of the reply: whoever reads as it comes stops there.
pub(crate) fn read_sse<'a, A: Accumulate>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Reply {
    let mut reader = SseReader::new();
    let mut stream = Stream::<A>::default();
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

/// Whether the last event of `tail` is whole and an end mark, read as [`read_sse`] reads it: nothing that
/// comes later can make it another event, or is read.
pub(crate) fn is_done<A: Accumulate>(tail: &[u8]) -> bool {
    if A::ENDS.is_empty() && !tail.trim_ascii_end().ends_with(DONE.as_bytes()) {
        return false;
    }
    let last = last_event(tail).unwrap_or_default();
    if !may_end::<A>(last) {
        return false;
    }
    let mut stream = Stream::<A>::default();
    for event in SseReader::new().feed(last) {
        stream.event(&event);
    }
    stream.reply.ended
}

/// A cheap look before the event is read: an end mark is among the first words of a line, as in
/// `event: message_stop`, `data: {"type":"message_stop"` and `data: [DONE]`.
fn may_end<A: Accumulate>(event: &[u8]) -> bool {
    let is_word = |b: &u8| !b.is_ascii_whitespace() && !b"[]{}\":,".contains(b);
    let is_mark = |word: &[u8]| word == b"DONE" || A::ENDS.iter().any(|it| it.as_bytes() == word);
    let mut lines = event.split(|b| matches!(b, b'\n' | b'\r'));
    lines.any(|line| {
        let words = line.split(|b| !is_word(b)).filter(|word| !word.is_empty());
        words.take(3).any(is_mark)
    })
}

// === impl Stream ===

impl<A: Accumulate> Stream<A> {
    fn event(&mut self, event: &SseEvent) {
        if event.data.trim() == DONE {
            self.reply.ended = true;
        } else if let Some(data) = Fields::parse(&event.data) {
            let kind = data.text("type");
            let kind = kind.as_deref().or(event.event.as_deref());
            let kind = kind.unwrap_or_default();
            self.reply.ended |= A::ENDS.contains(&kind);
            self.events.event(kind, &data, &mut self.reply);
            // llama.cpp's `error:`, and vLLM's and Mistral's object.
            let is_error = event.event.as_deref() == Some("error")
                || data.text("object").as_deref() == Some("error");
            if is_error && self.reply.error.is_none() {
                self.reply.error = Some(data.to_value());
            }
        }
    }
}

/// Whether a chat completion's `finish_reason` says that not the model stopped, but its server.
pub(crate) fn breaks_off(finish_reason: &str) -> bool {
    BREAKS.contains(&finish_reason)
}

/// A field's text, where it is one.
pub(crate) fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The error that a body or an event brings, where it brings one.
pub(crate) fn error(body: &Value) -> Option<Value> {
    body.get("error").filter(|error| !error.is_null()).cloned()
}
