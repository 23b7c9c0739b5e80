//! A streamed message, put together block by block.

use metaclaw_chat::Message;
use serde_json::{Map, Value, json};

use super::{
    blocks,
    usage::{Tokens, finish_reason},
};
use crate::{
    fields::{Fields, append_raw, value},
    grow::append,
    json::read,
    reply::{Accumulate, Reply, text},
    sse::SseEvent,
};

/// The most blocks of one message that are kept; a broken upstream may send any number.
const MAX_BLOCKS: usize = 1_024;

/// Puts the events of a stream together.
#[derive(Debug, Default)]
pub(crate) struct Accumulator {
    reply: Reply,
    tokens: Tokens,
    began: bool,
    blocks: Vec<Block>,
}

/// A block under way, and the index by which its pieces name it.
#[derive(Debug)]
struct Block {
    index: Option<u64>,
    fields: Map<String, Value>,
}

// === impl Accumulator ===

impl Accumulate for Accumulator {
    fn event(&mut self, event: &SseEvent) {
        if event.data.trim() == "[DONE]" {
            self.reply.ended = true;
            return;
        }
        let Some(fields) = Fields::parse(&event.data) else {
            return;
        };
        let kind = fields.text("type");
        match kind.as_deref().or(event.event.as_deref()) {
            Some("content_block_delta") => self.piece(&fields),
            Some("content_block_start") => self.block(&fields),
            Some("message_start") => {
                self.start(&fields.value("message").unwrap_or_default());
            }
            Some("message_delta") => self.change(&fields),
            Some("message_stop") => self.reply.ended = true,
            Some("error") => {
                let whole = || read(&event.data).ok();
                self.reply.error = fields.value("error").or_else(whole);
            }
            // `content_block_stop` and `ping` add nothing; what is new is to be passed over.
            _ => {}
        }
    }

    fn has_ended(&self) -> bool {
        self.reply.ended
    }

    fn finish(self) -> Reply {
        let blocks = self.blocks.into_iter().map(Block::whole);
        let blocks: Vec<Value> = blocks.collect();
        let message = if self.began || !blocks.is_empty() {
            Message::try_from(blocks::assistant(blocks)).ok()
        } else {
            None
        };
        Reply {
            message,
            usage: self.tokens.usage(),
            ..self.reply
        }
    }
}

impl Accumulator {
    fn start(&mut self, message: &Value) {
        self.began = true;
        self.reply.id = self.reply.id.take().or_else(|| text(&message["id"]));
        self.reply.model = self.reply.model.take().or_else(|| text(&message["model"]));
        self.tokens.count(&message["usage"]);
    }

    fn change(&mut self, fields: &Fields<'_>) {
        if let Some(usage) = fields.value("usage") {
            self.tokens.count(&usage);
        }
        let delta = fields.object("delta").unwrap_or_default();
        if let Some(reason) = delta.text("stop_reason") {
            self.reply.finish_reason = Some(finish_reason(&reason));
        }
    }

    fn block(&mut self, data: &Fields<'_>) {
        let index = data.number("index");
        if let Some(Value::Object(fields)) = data.value("content_block") {
            self.push(Block { index, fields });
        }
    }

    fn push(&mut self, block: Block) {
        if self.blocks.len() < MAX_BLOCKS {
            self.blocks.push(block);
        }
    }

    fn piece(&mut self, data: &Fields<'_>) {
        let index = data.number("index");
        let Some(delta) = data.object("delta") else {
            return;
        };
        let same = |block: &&mut Block| index.is_none() || block.index == index;
        if let Some(block) = self.blocks.iter_mut().rev().find(same) {
            block.grow(delta);
        } else {
            let mut block = Block::of_piece(index, &delta);
            block.grow(delta);
            self.push(block);
        }
    }
}

// === impl Block ===

impl Block {
    /// A block that some servers begin without saying so.
    fn of_piece(index: Option<u64>, delta: &Fields<'_>) -> Self {
        let kind = match delta.text("type").as_deref() {
            Some("thinking_delta" | "signature_delta") => "thinking",
            Some("input_json_delta") => "tool_use",
            _ => "text",
        };
        let mut fields = Map::new();
        fields.insert("type".into(), kind.into());
        Self { index, fields }
    }

    /// The block as an unstreamed reply has it; but a call keeps its input as the text that it was.
    fn whole(mut self) -> Value {
        let is_call = self
            .fields
            .get("type")
            .is_some_and(|kind| kind == "tool_use");
        if let Some(input) = self.fields.get_mut("input").filter(|_| !is_call) {
            let read = input
                .as_str()
                .and_then(|text| serde_json::from_str(text).ok());
            if let Some(read) = read {
                *input = read;
            }
        }
        self.fields.into()
    }

    fn grow(&mut self, delta: Fields<'_>) {
        for (name, raw) in delta {
            match name.as_ref() {
                "type" => {}
                "partial_json" => {
                    // The `{}` that a call begins with only says that its input follows.
                    let input = self.fields.entry("input").or_insert(Value::Null);
                    if !input.is_string() {
                        *input = json!("");
                    }
                    append_raw(&mut self.fields, "input", raw);
                }
                "citation" => {
                    let citation = Value::Array(vec![value(raw)]);
                    append(&mut self.fields, "citations".to_owned(), citation);
                }
                name => append_raw(&mut self.fields, name, raw),
            }
        }
    }
}
