//! An Anthropic stream as chat chunks, event by event.

use serde_json::{Map, Value, json};

use super::{
    chat_reply::{id, is_signed},
    context::ReplyContext,
    error_reply, usage,
    wire::{KEEP_ALIVE, arguments, filled, is_comment, put_data},
};
use crate::{
    json,
    rewrite::{EventRewrite, RawEvent},
};

/// The most of one block's thinking, and of its signature, that is kept to go out once more at its end, in
/// bytes. A longer block does not.
const MAX_THINKING: usize = 1 << 20;

/// Writes chat chunks in the place of Anthropic's events.
#[derive(Debug)]
pub(super) struct ChatStream {
    context: ReplyContext,
    id: String,
    model: String,
    has_begun: bool,
    /// An error went out, or the end: nothing follows.
    is_over: bool,
    n_calls: u64,
    block: Option<Block>,
    usage: Map<String, Value>,
}

/// The block under way.
#[derive(Debug)]
enum Block {
    Call {
        n: u64,
        /// Its `input` as the block's start had it: what counts, where no piece of it follows.
        input: Value,
        has_arguments: bool,
    },
    /// As it goes out once more when it is signed.
    Thinking { text: String, signature: String },
}

// === impl ChatStream ===

impl ChatStream {
    pub(super) fn new(context: &ReplyContext) -> Self {
        Self {
            context: context.clone(),
            id: id(context, &Value::Null),
            model: String::new(),
            has_begun: false,
            is_over: false,
            n_calls: 0,
            block: None,
            usage: Map::new(),
        }
    }

    fn translate(&mut self, data: &Value, out: &mut Vec<u8>) {
        match data["type"].as_str().unwrap_or_default() {
            "message_start" => {
                self.id = id(&self.context, &data["message"]);
                data["message"]["model"]
                    .as_str()
                    .unwrap_or_default()
                    .clone_into(&mut self.model);
                usage::merge(&mut self.usage, &data["message"]["usage"]);
                self.begin(out);
            }
            "content_block_start" => self.start(&data["content_block"], out),
            "content_block_delta" => self.delta(&data["delta"], out),
            "content_block_stop" => self.stop(out),
            "message_delta" => {
                usage::merge(&mut self.usage, &data["usage"]);
                self.message_delta(&data["delta"], out);
            }
            "message_stop" => self.end(out),
            "ping" => out.extend_from_slice(KEEP_ALIVE),
            "error" => self.fail(&error_reply::to_chat(data), out),
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

    fn start(&mut self, block: &Value, out: &mut Vec<u8>) {
        self.stop(out);
        self.block = match block["type"].as_str().unwrap_or_default() {
            "tool_use" => Some(self.start_call(block, out)),
            "thinking" => {
                self.put_text("reasoning_content", &block["thinking"], out);
                Some(Block::Thinking {
                    text: block["thinking"].as_str().unwrap_or_default().to_owned(),
                    signature: String::new(),
                })
            }
            "redacted_thinking" => {
                self.put_delta(&json!({ "thinking_blocks": [block] }), out);
                None
            }
            "text" => {
                self.put_text("content", &block["text"], out);
                None
            }
            _ => None,
        };
    }

    fn start_call(&mut self, block: &Value, out: &mut Vec<u8>) -> Block {
        let n = self.n_calls;
        self.n_calls += 1;
        let function = json!({ "name": block["name"], "arguments": "" });
        let id = &block["id"];
        let call = json!({ "index": n, "id": id, "type": "function", "function": function });
        self.put_delta(&json!({ "tool_calls": [call] }), out);
        Block::Call {
            n,
            input: block["input"].clone(),
            has_arguments: false,
        }
    }

    fn delta(&mut self, delta: &Value, out: &mut Vec<u8>) {
        match delta["type"].as_str().unwrap_or_default() {
            "text_delta" => self.put_text("content", &delta["text"], out),
            "thinking_delta" => {
                let piece = &delta["thinking"];
                if let Some(Block::Thinking { text, .. }) = &mut self.block {
                    push_bounded(text, piece);
                }
                self.put_text("reasoning_content", piece, out);
            }
            "signature_delta" => {
                if let Some(Block::Thinking { signature, .. }) = &mut self.block {
                    push_bounded(signature, &delta["signature"]);
                }
            }
            "input_json_delta" => {
                if let Some(piece) = filled(&delta["partial_json"]) {
                    self.arguments(piece, out);
                }
            }
            _ => {}
        }
    }

    fn arguments(&mut self, piece: &str, out: &mut Vec<u8>) {
        if let Some(Block::Call {
            n, has_arguments, ..
        }) = &mut self.block
        {
            *has_arguments = true;
            let call = json!({ "index": n, "function": { "arguments": piece } });
            self.put_delta(&json!({ "tool_calls": [call] }), out);
        }
    }

    /// The block has ended: what only its end can say.
    fn stop(&mut self, out: &mut Vec<u8>) {
        match &self.block {
            Some(Block::Call {
                input,
                has_arguments: false,
                ..
            }) => {
                let whole = arguments(input);
                self.arguments(&whole, out);
            }
            Some(Block::Thinking { text, signature }) => {
                let block = json!({ "type": "thinking", "thinking": text, "signature": signature });
                let is_whole = text.len().max(signature.len()) <= MAX_THINKING;
                if is_signed(&block) && is_whole {
                    self.put_delta(&json!({ "thinking_blocks": [block] }), out);
                }
            }
            Some(Block::Call { .. }) | None => {}
        }
        self.block = None;
    }

    fn message_delta(&mut self, delta: &Value, out: &mut Vec<u8>) {
        if delta["stop_reason"].is_string() {
            self.stop(out);
            self.begin(out);
            let reason = usage::finish_reason(&delta["stop_reason"]);
            self.put(&json!({}), &reason.into(), out);
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.is_over = true;
        if self.context.include_usage {
            let mut chunk = self.chunk(&json!([]));
            chunk["usage"] = usage::to_chat(&Value::Object(std::mem::take(&mut self.usage)));
            put_data(out, &chunk);
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn fail(&mut self, error: &Value, out: &mut Vec<u8>) {
        self.is_over = true;
        put_data(out, error);
    }

    /// A piece of text, unless it is empty.
    fn put_text(&mut self, field: &str, text: &Value, out: &mut Vec<u8>) {
        if filled(text).is_some() {
            self.put_delta(&json!({ field: text }), out);
        }
    }

    fn put_delta(&mut self, delta: &Value, out: &mut Vec<u8>) {
        self.begin(out);
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
        match json::read(&said.data) {
            Ok(data) => self.translate(&data, out),
            // A torn last event stays torn.
            Err(_) if !event.is_ended => self.is_over = true,
            Err(source) => self.fail(&error_reply::unreadable_to_chat(&source), out),
        }
    }

    fn unread(&mut self, _: &[u8], out: &mut Vec<u8>) {
        if !self.is_over {
            self.fail(&error_reply::unreadable_to_chat(&"it is too long"), out);
        }
    }

    fn finish(&mut self, _: &mut Vec<u8>) {}
}
