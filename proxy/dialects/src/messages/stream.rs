//! Assembles a streamed message block by block.

use metaclaw_chat::{Message, finish_reason};
use serde_json::{Map, Value, json};

use super::{blocks, usage::Tokens};
use crate::{
    fields::{JsonFields, append_raw, value},
    grow::append,
    reply::{Accumulate, Reply},
};

/// The largest number of blocks of one message that are kept, because a broken upstream may send any number.
const MAX_BLOCKS: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct MessagesAccumulator {
    tokens: Tokens,
    began: bool,
    blocks: Vec<StreamedBlock>,
}

#[derive(Debug)]
struct StreamedBlock {
    index: Option<u64>,
    fields: Map<String, Value>,
}

// === impl Accumulator ===

impl Accumulate for MessagesAccumulator {
    const ENDS: &'static [&'static str] = &["message_stop"];

    fn event(&mut self, kind: &str, data: &JsonFields<'_>, reply: &mut Reply) {
        match kind {
            "content_block_delta" => self.piece(data),
            "content_block_start" => self.block(data),
            "message_start" => {
                let message = data.value("message").unwrap_or_default();
                self.began = true;
                reply.begin(&message);
                self.tokens.count(&message["usage"]);
            }
            "message_delta" => {
                self.tokens.count(&data.value("usage").unwrap_or_default());
                let delta = data.object("delta").unwrap_or_default();
                if let Some(reason) = delta.text("stop_reason") {
                    reply.finish_reason = Some(finish_reason(&reason));
                }
            }
            "error" => reply.error = Some(data.value("error").unwrap_or_else(|| data.to_value())),
            // `content_block_stop` and `ping` add nothing. Unknown events are ignored.
            _ => {}
        }
    }

    fn finish(self, reply: Reply) -> Reply {
        let has_some = self.began || !self.blocks.is_empty();
        let blocks = self.blocks.into_iter().map(StreamedBlock::whole).collect();
        let message = has_some.then(|| Message::try_from(blocks::assistant(blocks)).ok());
        Reply {
            message: message.flatten(),
            usage: self.tokens.usage(),
            ..reply
        }
    }
}

impl MessagesAccumulator {
    fn block(&mut self, data: &JsonFields<'_>) {
        let index = data.number("index");
        if let Some(Value::Object(fields)) = data.value("content_block") {
            self.push(StreamedBlock { index, fields });
        }
    }

    fn push(&mut self, block: StreamedBlock) {
        if self.blocks.len() < MAX_BLOCKS {
            self.blocks.push(block);
        }
    }

    fn piece(&mut self, data: &JsonFields<'_>) {
        let index = data.number("index");
        let Some(delta) = data.object("delta") else {
            return;
        };
        let same = |block: &&mut StreamedBlock| index.is_none() || block.index == index;
        if let Some(block) = self.blocks.iter_mut().rev().find(same) {
            block.grow(delta);
        } else {
            let mut block = StreamedBlock::of_piece(index, &delta);
            block.grow(delta);
            self.push(block);
        }
    }
}

// === impl Block ===

impl StreamedBlock {
    /// Makes a block that some servers begin without an event.
    fn of_piece(index: Option<u64>, delta: &JsonFields<'_>) -> Self {
        let kind = match delta.text("type").as_deref() {
            Some("thinking_delta" | "signature_delta") => "thinking",
            Some("input_json_delta") => "tool_use",
            _ => "text",
        };
        let mut fields = Map::new();
        fields.insert("type".into(), kind.into());
        Self { index, fields }
    }

    /// Returns the block as an unstreamed reply has it, except that a call keeps its input as the original text.
    fn whole(mut self) -> Value {
        let kind = self.fields.get("type").and_then(Value::as_str);
        if kind != Some("tool_use")
            && let Some(input) = self.fields.get_mut("input")
            && let Some(read) = input.as_str().and_then(|it| serde_json::from_str(it).ok())
        {
            *input = read;
        }
        self.fields.into()
    }

    fn grow(&mut self, delta: JsonFields<'_>) {
        for (name, raw) in delta {
            match name.as_ref() {
                "type" => {}
                "partial_json" => {
                    // A call begins with `{}`, which only says that its input follows.
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
