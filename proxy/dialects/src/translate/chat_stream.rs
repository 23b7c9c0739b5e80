//! Converts an Anthropic stream to chat chunks, event by event.

use metaclaw_chat::breaks_off;
use serde_json::{Map, Value, json};

use super::{
    chat_reply::is_signed,
    context::ReplyContext,
    error_reply, usage,
    wire::{KEEP_ALIVE, arguments, filled, is_comment, put_data},
};
use crate::{
    failure::ErrorText,
    rewrite::{EventRewrite, RawEvent},
};

/// The largest size of one block's thinking, and of its signature, that is repeated at its end, in bytes. A longer
/// block is not repeated.
const MAX_THINKING: usize = 1 << 20;

const MAX_BLOCKS: usize = 16;

/// Writes chat chunks instead of Anthropic's events.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each flag says whether one thing was written, independently of the others"
)]
pub(super) struct ChatStream {
    context: ReplyContext,
    id: String,
    model: String,
    has_begun: bool,
    is_over: bool,
    /// Whether any text, or a stop reason, has arrived.
    has_said: bool,
    has_reason: bool,
    n_calls: usize,
    /// The unfinished blocks, with the index by which their pieces name them. Some servers interleave them.
    blocks: Vec<(Option<u64>, BegunBlock)>,
    usage: Map<String, Value>,
}

#[derive(Debug)]
enum BegunBlock {
    Call {
        n: usize,
        /// Its `input` in the block's start, which counts if no piece of it follows.
        input: Value,
        has_arguments: bool,
    },
    /// Thinking that is repeated when it is signed.
    Thinking { text: String, signature: String },
}

// === impl ChatStream ===

impl ChatStream {
    pub(super) fn new(context: &ReplyContext) -> Self {
        Self {
            context: context.clone(),
            id: context.reply_id("chatcmpl-", &Value::Null),
            model: String::new(),
            has_begun: false,
            is_over: false,
            has_said: false,
            has_reason: false,
            n_calls: 0,
            blocks: Vec::new(),
            usage: Map::new(),
        }
    }

    fn translate(&mut self, data: &Value, out: &mut Vec<u8>) {
        let index = data["index"].as_u64();
        match data["type"].as_str().unwrap_or_default() {
            "message_start" => {
                self.id = self.context.reply_id("chatcmpl-", &data["message"]);
                data["message"]["model"]
                    .as_str()
                    .unwrap_or_default()
                    .clone_into(&mut self.model);
                usage::merge(&mut self.usage, &data["message"]["usage"]);
                self.begin(out);
            }
            "content_block_start" => self.start(index, &data["content_block"], out),
            "content_block_delta" => self.delta(index, &data["delta"], out),
            "content_block_stop" => self.stop(index, out),
            "message_delta" => {
                usage::merge(&mut self.usage, &data["usage"]);
                self.message_delta(&data["delta"], out);
            }
            "message_stop" => self.end(out),
            "ping" => out.extend_from_slice(KEEP_ALIVE),
            // "New event types may be added": <https://docs.claude.com/en/api/versioning>.
            _ => {}
        }
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.has_begun {
            self.has_begun = true;
            let delta = json!({ "role": "assistant", "content": "" });
            self.put(&delta, &Value::Null, out);
        }
    }

    fn start(&mut self, index: Option<u64>, block: &Value, out: &mut Vec<u8>) {
        if index.is_none() || self.blocks.len() >= MAX_BLOCKS {
            // Servers that name no block have one at a time.
            self.stop_all(out);
        }
        self.stop_whole_calls(out);
        let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
        let begun = match block["type"].as_str().unwrap_or_default() {
            "tool_use" => Some(self.start_call(block, out)),
            "thinking" => {
                self.put_text("reasoning_content", &block["thinking"], out);
                Some(BegunBlock::Thinking {
                    text: text("thinking"),
                    signature: text("signature"),
                })
            }
            "redacted_thinking" => {
                self.put_delta(&json!({ "thinking_blocks": [block] }), out);
                None
            }
            "text" => {
                self.put_content(&block["text"], out);
                None
            }
            _ => None,
        };
        self.blocks.extend(begun.map(|block| (index, block)));
    }

    fn start_call(&mut self, block: &Value, out: &mut Vec<u8>) -> BegunBlock {
        self.flush(out);
        let n = self.n_calls;
        self.n_calls += 1;
        let name = block["name"].as_str().unwrap_or_default();
        let function = json!({ "name": self.context.tools.given(name), "arguments": "" });
        let id = self.context.calls.id(&block["id"], &self.id, n);
        let call = json!({ "index": n, "id": id, "type": "function", "function": function });
        self.put_delta(&json!({ "tool_calls": [call] }), out);
        BegunBlock::Call {
            n,
            input: block["input"].clone(),
            has_arguments: false,
        }
    }

    fn delta(&mut self, index: Option<u64>, delta: &Value, out: &mut Vec<u8>) {
        match delta["type"].as_str().unwrap_or_default() {
            "text_delta" => self.put_content(&delta["text"], out),
            "thinking_delta" => {
                let piece = &delta["thinking"];
                if let Some(BegunBlock::Thinking { text, .. }) = self.block(index) {
                    push_bounded(text, piece);
                }
                self.put_text("reasoning_content", piece, out);
            }
            "signature_delta" => {
                if let Some(BegunBlock::Thinking { signature, .. }) = self.block(index) {
                    push_bounded(signature, &delta["signature"]);
                }
            }
            "input_json_delta" => {
                if let (
                    Some(piece),
                    Some(BegunBlock::Call {
                        n, has_arguments, ..
                    }),
                ) = (filled(&delta["partial_json"]), self.block(index))
                {
                    *has_arguments = true;
                    let n = *n;
                    self.arguments(n, piece, out);
                }
            }
            _ => {}
        }
    }

    fn block(&mut self, index: Option<u64>) -> Option<&mut BegunBlock> {
        let mut blocks = self.blocks.iter_mut().rev();
        let block = blocks.find(|(at, _)| index.is_none() || *at == index);
        block.map(|(_, block)| block)
    }

    fn arguments(&mut self, n: usize, piece: &str, out: &mut Vec<u8>) {
        let call = json!({ "index": n, "function": { "arguments": piece } });
        self.put_delta(&json!({ "tool_calls": [call] }), out);
    }

    fn stop(&mut self, index: Option<u64>, out: &mut Vec<u8>) {
        let at = self
            .blocks
            .iter()
            .rposition(|(at, _)| index.is_none() || *at == index);
        let Some((_, block)) = at.map(|at| self.blocks.remove(at)) else {
            return;
        };
        match block {
            BegunBlock::Call {
                n,
                input,
                has_arguments: false,
            } => self.arguments(n, &arguments(&input), out),
            BegunBlock::Thinking { text, signature } => {
                let block = json!({ "type": "thinking", "thinking": text, "signature": signature });
                let is_whole = text.len().max(signature.len()) <= MAX_THINKING;
                if is_signed(&block) && is_whole {
                    self.put_delta(&json!({ "thinking_blocks": [block] }), out);
                }
            }
            BegunBlock::Call { .. } => {}
        }
    }

    /// Writes calls whose input was in their start, and of which no piece followed.
    fn stop_whole_calls(&mut self, out: &mut Vec<u8>) {
        let is_whole = |block: &BegunBlock| match block {
            BegunBlock::Call {
                input,
                has_arguments,
                ..
            } => !has_arguments && input.as_object().is_some_and(|input| !input.is_empty()),
            BegunBlock::Thinking { .. } => false,
        };
        while let Some(at) = self.blocks.iter().position(|(_, block)| is_whole(block)) {
            let index = self.blocks[at].0;
            self.stop(index, out);
        }
    }

    fn stop_all(&mut self, out: &mut Vec<u8>) {
        while let Some(index) = self.blocks.first().map(|(index, _)| *index) {
            self.stop(index, out);
        }
    }

    fn message_delta(&mut self, delta: &Value, out: &mut Vec<u8>) {
        if let Some(reason) = delta["stop_reason"].as_str() {
            if breaks_off(reason) {
                return self.fail(&error_reply::broken_off(reason), out);
            }
            self.finish_choice(reason, out);
        }
    }

    fn finish_choice(&mut self, reason: &str, out: &mut Vec<u8>) {
        self.stop_all(out);
        self.flush(out);
        self.begin(out);
        let reason = match &self.context.stops.met {
            Some(_) => "stop",
            None => usage::finish_reason(reason, self.n_calls > 0),
        };
        self.has_said = true;
        self.has_reason = true;
        self.put(&json!({}), &reason.into(), out);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        if !self.has_said {
            return self.fail(&error_reply::empty(), out);
        }
        if !self.has_reason {
            // Some servers leave the stop reason null.
            self.finish_choice("", out);
        }
        self.is_over = true;
        if self.context.include_usage {
            let mut chunk = self.chunk(&json!([]));
            chunk["usage"] = usage::to_chat(&Value::Object(std::mem::take(&mut self.usage)));
            put_data(out, &chunk);
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn fail(&mut self, text: &ErrorText, out: &mut Vec<u8>) {
        if !self.is_over {
            self.is_over = true;
            put_data(out, &error_reply::to_chat(text, None));
        }
    }

    fn put_content(&mut self, text: &Value, out: &mut Vec<u8>) {
        let said = self.context.stops.feed(text.as_str().unwrap_or_default());
        self.put_text("content", &said.into(), out);
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        let said = self.context.stops.flush();
        self.put_text("content", &said.into(), out);
    }

    fn put_text(&mut self, field: &str, text: &Value, out: &mut Vec<u8>) {
        if filled(text).is_some() {
            self.put_delta(&json!({ field: text }), out);
        }
    }

    fn put_delta(&mut self, delta: &Value, out: &mut Vec<u8>) {
        self.begin(out);
        self.has_said = true;
        if self.context.stops.met.is_some() && delta.get("content").is_none() {
            // The block has ended before.
            return;
        }
        self.put(delta, &Value::Null, out);
    }

    fn put(&self, delta: &Value, finish_reason: &Value, out: &mut Vec<u8>) {
        let choice =
            json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
        put_data(out, &self.chunk(&json!([choice])));
    }

    fn chunk(&self, choices: &Value) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.context.created,
            "model": self.model,
            "choices": choices,
        })
    }
}

fn push_bounded(text: &mut String, more: &Value) {
    if text.len() <= MAX_THINKING {
        text.push_str(more.as_str().unwrap_or_default());
    }
}

impl EventRewrite for ChatStream {
    fn event(&mut self, event: RawEvent<'_>, out: &mut Vec<u8>) {
        if self.is_over {
            return;
        }
        let Some(said) = event.event else {
            if is_comment(event.raw) {
                out.extend_from_slice(KEEP_ALIVE);
            }
            return;
        };
        match error_reply::data(&said, event.is_ended) {
            Some(Ok(data)) => self.translate(&data, out),
            Some(Err(text)) => self.fail(&text, out),
            None => self.is_over = true,
        }
    }

    fn unread(&mut self, _: &[u8], out: &mut Vec<u8>) {
        self.fail(&error_reply::unreadable(&"it is too long"), out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.has_said {
            self.fail(&error_reply::empty(), out);
        }
    }
}
