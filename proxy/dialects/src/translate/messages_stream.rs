//! A chat stream as Anthropic events, chunk by chunk.
//!
//! Chat's deltas carry what they carry; Anthropic's belong to blocks that begin, grow and end, one
//! after the other. Text and thinking that come between the pieces of a call wait until its arguments are
//! whole. The end waits for the `[DONE]`, as the usage comes after the reason to stop.

use std::mem;

use serde_json::{Value, json};

use super::{
    at::At,
    context::ReplyContext,
    error_reply,
    messages_calls::{Calls, Step},
    messages_reply::{content_text, id, reasoning},
    usage,
    wire::{KEEP_ALIVE, filled, given, is_comment, put_event},
};
use crate::{
    failure::ErrorText,
    reply::breaks_off,
    rewrite::{EventRewrite, RawEvent},
};

/// The most text and thinking that wait for the end of a call, in bytes.
const MAX_HELD: usize = 1 << 20;

/// Writes Anthropic's events in the place of chat chunks.
#[derive(Debug)]
pub(super) struct MessagesStream {
    context: ReplyContext,
    /// The reply's id, once it has begun.
    id: String,
    has_begun: bool,
    /// An error went out, or the end: nothing follows.
    is_over: bool,
    /// Anything was said.
    has_said: bool,
    n_blocks: u64,
    open: Option<Open>,
    calls: Calls,
    /// What came between the pieces of an open call.
    held: Vec<(Open, String)>,
    /// Its room, in bytes.
    n_held: usize,
    finish_reason: Option<String>,
    /// vLLM's own `stop_reason`: the stop string that it met.
    matched: Value,
    usage: Value,
}

/// The block that has begun and not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Text,
    Thinking,
    Call,
}

// === impl MessagesStream ===

impl MessagesStream {
    pub(super) fn new(context: &ReplyContext) -> Self {
        Self {
            context: context.clone(),
            id: String::new(),
            has_begun: false,
            is_over: false,
            has_said: false,
            n_blocks: 0,
            open: None,
            calls: Calls::default(),
            held: Vec::new(),
            n_held: 0,
            finish_reason: None,
            matched: Value::Null,
            usage: Value::Null,
        }
    }

    fn translate(&mut self, chunk: &Value, out: &mut Vec<u8>) {
        self.count(&chunk["usage"]);
        let choices = chunk["choices"].as_array().into_iter().flatten();
        for choice in choices.filter(|choice| choice["index"].as_u64().unwrap_or(0) == 0) {
            // Where Moonshot has it.
            self.count(&choice["usage"]);
            self.begin(chunk, out);
            // Some servers send a whole message in the place of a delta.
            let delta = given(&choice["delta"]);
            let delta = delta.unwrap_or_else(|| &choice["message"]);
            self.delta(delta, out);
            if let Some(reason) = filled(&choice["finish_reason"]) {
                self.finish_reason = Some(reason.to_owned());
                self.matched = choice["stop_reason"].clone();
            }
        }
    }

    /// Some upstreams count along in every chunk: the last count is the whole.
    fn count(&mut self, usage: &Value) {
        if usage.is_object() {
            self.usage = usage.clone();
        }
    }

    fn begin(&mut self, chunk: &Value, out: &mut Vec<u8>) {
        if self.has_begun {
            return;
        }
        self.has_begun = true;
        self.id = id(&self.context, chunk);
        let message = json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": chunk["model"].as_str().unwrap_or_default(),
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage::to_messages(&self.usage),
        });
        put_event(out, &json!({ "type": "message_start", "message": message }));
        put_event(out, &json!({ "type": "ping" }));
    }

    fn delta(&mut self, delta: &Value, out: &mut Vec<u8>) {
        if let Some(thinking) = reasoning(delta) {
            self.say(Open::Thinking, &thinking, out);
        }
        match content_text(&At::new("delta.content", &delta["content"])) {
            Ok(text) => self.text(&text, out),
            Err(error) => return self.fail(&error_reply::unreadable(&error), out),
        }
        self.text(delta["refusal"].as_str().unwrap_or_default(), out);
        for piece in delta["tool_calls"].as_array().into_iter().flatten() {
            self.flush(out);
            if self.context.stops.met().is_some() {
                return;
            }
            self.has_said = true;
            let steps = self.calls.add(piece, &self.id);
            self.steps(steps, out);
            self.release(out);
        }
    }

    /// A piece of the reply's text, as far as it is known to be none of a stop text that only we watch for.
    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        let said = self.context.stops.feed(text);
        self.say(Open::Text, &said, out);
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        let said = self.context.stops.flush();
        self.say(Open::Text, &said, out);
    }

    /// Text or thinking: at once, or when the call under way is whole.
    fn say(&mut self, kind: Open, text: &str, out: &mut Vec<u8>) {
        let is_after_stop = kind == Open::Thinking && self.context.stops.met().is_some();
        if text.is_empty() || is_after_stop {
            return;
        }
        self.has_said = true;
        self.n_held += text.len();
        if !self.calls.is_unfinished() || self.n_held > MAX_HELD {
            self.release_all(out);
            return self.write(kind, text, out);
        }
        match self.held.last_mut() {
            Some((last, held)) if *last == kind => held.push_str(text),
            _ => {
                self.n_held += size_of::<(Open, String)>();
                self.held.push((kind, text.to_owned()));
            }
        }
    }

    fn release(&mut self, out: &mut Vec<u8>) {
        if !self.calls.is_unfinished() {
            self.release_all(out);
        }
    }

    /// What waited is said. Blanks alone are not: they would make a block that Anthropic takes from nobody.
    fn release_all(&mut self, out: &mut Vec<u8>) {
        self.n_held = 0;
        for (kind, text) in mem::take(&mut self.held) {
            if !text.trim().is_empty() {
                self.write(kind, &text, out);
            }
        }
    }

    fn write(&mut self, kind: Open, text: &str, out: &mut Vec<u8>) {
        let piece = match kind {
            Open::Thinking => json!({ "type": "thinking_delta", "thinking": text }),
            Open::Text | Open::Call => json!({ "type": "text_delta", "text": text }),
        };
        self.grow(kind, &piece, out);
    }

    fn steps(&mut self, steps: Vec<Step>, out: &mut Vec<u8>) {
        for step in steps {
            match step {
                Step::Begin { id, name } => {
                    let name = self.context.tools.given(&name);
                    let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                    self.start(Open::Call, &block, out);
                }
                Step::Grow { arguments } => {
                    let piece = json!({ "type": "input_json_delta", "partial_json": arguments });
                    self.grow(Open::Call, &piece, out);
                }
                Step::Refuse { why } => {
                    self.fail(&error_reply::unreadable(&why), out);
                }
            }
        }
    }

    /// Appends to the block under way, or to a new one if that is of another kind.
    fn grow(&mut self, kind: Open, piece: &Value, out: &mut Vec<u8>) {
        if self.is_over {
            return;
        }
        if self.open != Some(kind) {
            if kind != Open::Call {
                let waiting = self.calls.close(&self.id);
                self.steps(waiting, out);
            }
            let block = match kind {
                Open::Thinking => json!({ "type": "thinking", "thinking": "", "signature": "" }),
                Open::Text | Open::Call => json!({ "type": "text", "text": "" }),
            };
            self.start(kind, &block, out);
        }
        let index = self.n_blocks - 1;
        put_event(
            out,
            &json!({ "type": "content_block_delta", "index": index, "delta": piece }),
        );
    }

    fn start(&mut self, kind: Open, block: &Value, out: &mut Vec<u8>) {
        if self.is_over {
            return;
        }
        self.stop(out);
        let index = self.n_blocks;
        self.n_blocks += 1;
        self.open = Some(kind);
        put_event(
            out,
            &json!({ "type": "content_block_start", "index": index, "content_block": block }),
        );
    }

    fn stop(&mut self, out: &mut Vec<u8>) {
        if self.open.take().is_some() {
            let index = self.n_blocks - 1;
            put_event(
                out,
                &json!({ "type": "content_block_stop", "index": index }),
            );
        }
    }

    /// The end that upstream gave: its `[DONE]`, or the reason to stop and then a proper end of the body.
    fn end(&mut self, out: &mut Vec<u8>) {
        let has_met = self.context.stops.met().is_some();
        if !self.has_said && self.finish_reason.is_none() && !has_met {
            return self.fail(&error_reply::empty(), out);
        }
        self.begin(&Value::Null, out);
        if let Some(reason) = self.finish_reason.as_deref().filter(|r| breaks_off(r)) {
            let error = error_reply::broken_off(reason);
            return self.fail(&error, out);
        }
        self.flush(out);
        let waiting = self.calls.end(&self.id);
        self.steps(waiting, out);
        self.release_all(out);
        self.stop(out);
        if self.is_over {
            return;
        }
        self.is_over = true;
        let mut reason = self.finish_reason.as_deref().unwrap_or_default();
        if let Some(stop) = self.context.stops.met() {
            (reason, self.matched) = ("stop", stop.into());
        }
        let (reason, sequence) =
            usage::stop_reason(&self.context, reason, &self.matched, self.calls.is_any());
        let delta = json!({ "stop_reason": reason, "stop_sequence": sequence });
        let usage = usage::to_messages(&self.usage);
        put_event(
            out,
            &json!({ "type": "message_delta", "delta": delta, "usage": usage }),
        );
        put_event(out, &json!({ "type": "message_stop" }));
    }

    /// Clients know no event before `message_start`, but any may be a comment; and it is before their first
    /// chunk that servers are silent longest.
    fn keep_alive(&self, out: &mut Vec<u8>) {
        if self.has_begun {
            put_event(out, &json!({ "type": "ping" }));
        } else {
            out.extend_from_slice(KEEP_ALIVE);
        }
    }

    fn fail(&mut self, text: &ErrorText, out: &mut Vec<u8>) {
        if !self.is_over {
            self.is_over = true;
            put_event(out, &error_reply::to_messages(text, None));
        }
    }
}

impl EventRewrite for MessagesStream {
    fn event(&mut self, event: RawEvent<'_>, out: &mut Vec<u8>) {
        if self.is_over {
            return;
        }
        let Some(said) = event.event else {
            if is_comment(event.raw) {
                self.keep_alive(out);
            }
            return;
        };
        if said.data.trim() == "[DONE]" {
            return self.end(out);
        }
        match error_reply::data(&said, event.is_ended) {
            Some(Ok(chunk)) => self.translate(&chunk, out),
            Some(Err(text)) => self.fail(&text, out),
            None => self.is_over = true,
        }
    }

    fn unread(&mut self, _: &[u8], out: &mut Vec<u8>) {
        self.fail(&error_reply::unreadable(&"it is too long"), out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        // With something said and no reason to stop, it is a cut.
        if !self.is_over && (self.finish_reason.is_some() || !self.has_said) {
            self.end(out);
        }
    }
}
