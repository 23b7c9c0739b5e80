//! Converts a chat stream to blocks: text, thinking and calls that begin, grow and end one after the other.
//!
//! Chat deltas may contain anything, and pieces of several calls may be interleaved. Anthropic's messages and OpenAI's
//! Responses have blocks. Text and thinking between the pieces of a call wait until its arguments are complete. The end
//! waits for the `[DONE]`, because the usage comes after the stop reason.

use std::{fmt::Debug, mem};

use metaclaw_chat::breaks_off;
use serde_json::Value;

use super::{
    at::PathValue,
    context::ReplyContext,
    error_reply,
    messages_reply::{content_text, reasoning},
    ordered_calls::{BlockStep, Calls},
    wire::{filled, given, is_comment},
};
use crate::{
    failure::ErrorText,
    rewrite::{EventRewrite, RawEvent},
};

/// The largest amount of text and thinking that waits for the end of a call, in bytes.
const MAX_HELD: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Thinking,
    Call,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Block {
    Text,
    Thinking,
    Call { id: String, name: String },
}

#[derive(Debug)]
pub(super) struct ReplyEnd<'a> {
    pub finish_reason: &'a str,
    /// vLLM's own `stop_reason`, or the stop text that only the proxy watches for.
    pub matched: &'a Value,
    pub has_calls: bool,
    pub usage: &'a Value,
}

/// Writes the events of an API whose replies are blocks.
pub(super) trait BlockWriter: Debug + Send {
    /// The reply begins. `chunk` is the first one with content, or null, and names the reply.
    fn begin(&mut self, chunk: &Value, usage: &Value, out: &mut Vec<u8>);

    /// A block begins. The previous one has ended.
    fn start(&mut self, block: &Block, out: &mut Vec<u8>);

    fn grow(&mut self, kind: Kind, piece: &str, out: &mut Vec<u8>);

    fn stop(&mut self, out: &mut Vec<u8>);

    /// Adds signed thinking, which the client has to send back in the next request.
    fn sign(&mut self, _blocks: &[Value]) {}

    fn is_too_long(&self) -> bool {
        false
    }

    /// The reply ends, with the current block.
    fn end(&mut self, end: &ReplyEnd<'_>, out: &mut Vec<u8>);

    fn fail(&mut self, error: &ErrorText, out: &mut Vec<u8>);

    fn keep_alive(&self, out: &mut Vec<u8>);

    fn id(&self) -> &str;
}

#[derive(Debug)]
pub(super) struct ChatBlocks<W> {
    writer: W,
    context: ReplyContext,
    has_begun: bool,
    /// Whether an error or the end was written, after which nothing follows.
    is_over: bool,
    has_said: bool,
    open: Option<Kind>,
    calls: Calls,
    /// Text and thinking between the pieces of an open call.
    held: Vec<(Kind, String)>,
    /// The bytes of `held`.
    n_held: usize,
    finish_reason: Option<String>,
    matched: Value,
    usage: Value,
}

// === impl Block ===

impl Block {
    fn kind(&self) -> Kind {
        match self {
            Self::Text => Kind::Text,
            Self::Thinking => Kind::Thinking,
            Self::Call { .. } => Kind::Call,
        }
    }
}

// === impl ChatBlocks ===

impl<W: BlockWriter> ChatBlocks<W> {
    pub(super) fn new(context: &ReplyContext, writer: W) -> Self {
        Self {
            writer,
            context: context.clone(),
            has_begun: false,
            is_over: false,
            has_said: false,
            open: None,
            calls: Calls::default(),
            held: Vec::new(),
            n_held: 0,
            finish_reason: None,
            matched: Value::Null,
            usage: Value::Null,
        }
    }

    fn chunk(&mut self, chunk: &Value, out: &mut Vec<u8>) {
        self.count(&chunk["usage"]);
        let choices = chunk["choices"].as_array().into_iter().flatten();
        for choice in choices.filter(|choice| choice["index"].as_u64().unwrap_or(0) == 0) {
            // Moonshot has it here.
            self.count(&choice["usage"]);
            self.begin(chunk, out);
            // Some servers send a whole message instead of a delta.
            let delta = given(&choice["delta"]).unwrap_or_else(|| &choice["message"]);
            self.delta(delta, out);
            if let Some(reason) = filled(&choice["finish_reason"]) {
                self.finish_reason = Some(reason.to_owned());
                self.matched = choice["stop_reason"].clone();
            }
        }
    }

    /// Some upstreams send a running count in every chunk. The last one is the total.
    fn count(&mut self, usage: &Value) {
        if usage.is_object() {
            self.usage = usage.clone();
        }
    }

    fn begin(&mut self, chunk: &Value, out: &mut Vec<u8>) {
        if !self.has_begun {
            self.has_begun = true;
            self.writer.begin(chunk, &self.usage, out);
        }
    }

    fn delta(&mut self, delta: &Value, out: &mut Vec<u8>) {
        if let Some(thinking) = reasoning(delta) {
            self.say(Kind::Thinking, &thinking, out);
        }
        if let Some(signed) = delta["thinking_blocks"].as_array() {
            self.writer.sign(signed);
        }
        match content_text(&PathValue::new("delta.content", &delta["content"])) {
            Ok(text) => self.text(&text, out),
            Err(error) => return self.fail(&error_reply::unreadable(&error), out),
        }
        self.text(delta["refusal"].as_str().unwrap_or_default(), out);
        for piece in delta["tool_calls"].as_array().into_iter().flatten() {
            self.flush(out);
            if self.context.stops.met.is_some() {
                return;
            }
            self.has_said = true;
            let steps = self.calls.add(piece, self.writer.id());
            self.steps(steps, out);
            self.release(out);
        }
    }

    /// Processes a piece of the reply's text, as far as it is certainly not part of a stop text that only the proxy
    /// watches for.
    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        let said = self.context.stops.feed(text);
        self.say(Kind::Text, &said, out);
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        let said = self.context.stops.flush();
        self.say(Kind::Text, &said, out);
    }

    /// Writes text or thinking at once, or when the current call is complete.
    fn say(&mut self, kind: Kind, text: &str, out: &mut Vec<u8>) {
        let is_after_stop = kind == Kind::Thinking && self.context.stops.met.is_some();
        if text.is_empty() || is_after_stop {
            return;
        }
        self.has_said = true;
        self.n_held += text.len();
        if !self.calls.is_unfinished() || self.n_held > MAX_HELD {
            self.release_all(out);
            return self.grow(kind, text, out);
        }
        match self.held.last_mut() {
            Some((last, held)) if *last == kind => held.push_str(text),
            _ => {
                self.n_held += size_of::<(Kind, String)>();
                self.held.push((kind, text.to_owned()));
            }
        }
    }

    fn release(&mut self, out: &mut Vec<u8>) {
        if !self.calls.is_unfinished() {
            self.release_all(out);
        }
    }

    /// Writes what waited. White space alone is not written, because it would make a block that Anthropic refuses.
    fn release_all(&mut self, out: &mut Vec<u8>) {
        self.n_held = 0;
        for (kind, text) in mem::take(&mut self.held) {
            if !text.trim().is_empty() {
                self.grow(kind, &text, out);
            }
        }
    }

    fn steps(&mut self, steps: Vec<BlockStep>, out: &mut Vec<u8>) {
        for step in steps {
            match step {
                BlockStep::Begin { id, name } => {
                    let id = self.context.calls.unique(id);
                    self.start(&Block::Call { id, name }, out);
                }
                BlockStep::Grow { arguments } => self.grow(Kind::Call, &arguments, out),
                BlockStep::Refuse { why } => self.fail(&error_reply::unreadable(&why), out),
            }
        }
    }

    fn grow(&mut self, kind: Kind, piece: &str, out: &mut Vec<u8>) {
        if self.is_over {
            return;
        }
        if self.open != Some(kind) {
            let block = match kind {
                Kind::Thinking => Block::Thinking,
                // A call grows only once it has begun.
                Kind::Text | Kind::Call => Block::Text,
            };
            if kind != Kind::Call {
                let waiting = self.calls.close(self.writer.id());
                self.steps(waiting, out);
            }
            self.start(&block, out);
        }
        self.writer.grow(kind, piece, out);
        if self.writer.is_too_long() {
            self.fail(&error_reply::unreadable(&"the reply is too long"), out);
        }
    }

    fn start(&mut self, block: &Block, out: &mut Vec<u8>) {
        if self.is_over {
            return;
        }
        if self.open.replace(block.kind()).is_some() {
            self.writer.stop(out);
        }
        self.writer.start(block, out);
    }

    /// Processes the upstream's end: its `[DONE]`, or the stop reason and then a proper end of the body.
    fn end(&mut self, out: &mut Vec<u8>) {
        let has_met = self.context.stops.met.is_some();
        if !self.has_said && self.finish_reason.is_none() && !has_met {
            return self.fail(&error_reply::empty(), out);
        }
        self.begin(&Value::Null, out);
        if let Some(reason) = self.finish_reason.as_deref().filter(|r| breaks_off(r)) {
            let error = error_reply::broken_off(reason);
            return self.fail(&error, out);
        }
        self.flush(out);
        let waiting = self.calls.end(self.writer.id());
        self.steps(waiting, out);
        self.release_all(out);
        if self.is_over {
            return;
        }
        self.is_over = true;
        let mut reason = self.finish_reason.as_deref().unwrap_or_default();
        if let Some(stop) = &self.context.stops.met {
            (reason, self.matched) = ("stop", stop.as_str().into());
        }
        let end = ReplyEnd {
            finish_reason: reason,
            matched: &self.matched,
            has_calls: self.calls.is_any(),
            usage: &self.usage,
        };
        self.writer.end(&end, out);
    }

    fn fail(&mut self, text: &ErrorText, out: &mut Vec<u8>) {
        if !self.is_over {
            self.is_over = true;
            self.writer.fail(text, out);
        }
    }
}

impl<W: BlockWriter> EventRewrite for ChatBlocks<W> {
    fn event(&mut self, event: RawEvent<'_>, out: &mut Vec<u8>) {
        if self.is_over {
            return;
        }
        let Some(said) = event.event else {
            if is_comment(event.raw) {
                self.writer.keep_alive(out);
            }
            return;
        };
        if said.data.trim() == "[DONE]" {
            return self.end(out);
        }
        match error_reply::data(&said, event.is_ended) {
            Some(Ok(chunk)) => self.chunk(&chunk, out),
            Some(Err(text)) => self.fail(&text, out),
            None => self.is_over = true,
        }
    }

    fn unread(&mut self, _: &[u8], out: &mut Vec<u8>) {
        self.fail(&error_reply::unreadable(&"it is too long"), out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        // Text without a stop reason means that the reply was cut.
        if !self.is_over && (self.finish_reason.is_some() || !self.has_said) {
            self.end(out);
        }
    }
}
