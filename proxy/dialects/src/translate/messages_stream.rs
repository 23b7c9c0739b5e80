//! Converts a chat stream to Anthropic events, block by block.

use serde_json::{Value, json};

use super::{
    chat_blocks::{Block, BlockWriter, Kind, ReplyEnd},
    context::ReplyContext,
    error_reply, usage,
    wire::{KEEP_ALIVE, put_event},
};
use crate::failure::ErrorText;

#[derive(Debug)]
pub(super) struct MessagesWriter {
    context: ReplyContext,
    /// Empty before the reply has begun.
    id: String,
    n_blocks: u64,
    is_open: bool,
}

// === impl MessagesWriter ===

impl MessagesWriter {
    pub(super) fn new(context: &ReplyContext) -> Self {
        Self {
            context: context.clone(),
            id: String::new(),
            n_blocks: 0,
            is_open: false,
        }
    }
}

impl BlockWriter for MessagesWriter {
    fn begin(&mut self, chunk: &Value, usage: &Value, out: &mut Vec<u8>) {
        self.id = self.context.reply_id("msg_", chunk);
        let message = json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": chunk["model"].as_str().unwrap_or_default(),
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage::to_messages(usage),
        });
        put_event(out, &json!({ "type": "message_start", "message": message }));
        put_event(out, &json!({ "type": "ping" }));
    }

    fn start(&mut self, block: &Block, out: &mut Vec<u8>) {
        let block = match block {
            Block::Text => json!({ "type": "text", "text": "" }),
            Block::Thinking => json!({ "type": "thinking", "thinking": "", "signature": "" }),
            Block::Call { id, name } => {
                let name = self.context.tools.given(name);
                json!({ "type": "tool_use", "id": id, "name": name, "input": {} })
            }
        };
        let index = self.n_blocks;
        self.n_blocks += 1;
        self.is_open = true;
        put_event(
            out,
            &json!({ "type": "content_block_start", "index": index, "content_block": block }),
        );
    }

    fn grow(&mut self, kind: Kind, piece: &str, out: &mut Vec<u8>) {
        let piece = match kind {
            Kind::Text => json!({ "type": "text_delta", "text": piece }),
            Kind::Thinking => json!({ "type": "thinking_delta", "thinking": piece }),
            Kind::Call => json!({ "type": "input_json_delta", "partial_json": piece }),
        };
        let index = self.n_blocks.saturating_sub(1);
        put_event(
            out,
            &json!({ "type": "content_block_delta", "index": index, "delta": piece }),
        );
    }

    fn stop(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_open) {
            let index = self.n_blocks.saturating_sub(1);
            put_event(
                out,
                &json!({ "type": "content_block_stop", "index": index }),
            );
        }
    }

    fn end(&mut self, end: &ReplyEnd<'_>, out: &mut Vec<u8>) {
        self.stop(out);
        let (reason, sequence) =
            usage::stop_reason(&self.context, end.finish_reason, end.matched, end.has_calls);
        let delta = json!({ "stop_reason": reason, "stop_sequence": sequence });
        let usage = usage::to_messages(end.usage);
        put_event(
            out,
            &json!({ "type": "message_delta", "delta": delta, "usage": usage }),
        );
        put_event(out, &json!({ "type": "message_stop" }));
    }

    fn fail(&mut self, error: &ErrorText, out: &mut Vec<u8>) {
        put_event(out, &error_reply::to_messages(error, None));
    }

    /// Clients accept no event before `message_start`, but always accept a comment. Servers are silent longest before
    /// their first chunk.
    fn keep_alive(&self, out: &mut Vec<u8>) {
        if self.id.is_empty() {
            out.extend_from_slice(KEEP_ALIVE);
        } else {
            put_event(out, &json!({ "type": "ping" }));
        }
    }

    fn id(&self) -> &str {
        &self.id
    }
}
