//! Converts a chat reply to a response and its events, item by item.
//!
//! <https://platform.openai.com/docs/api-reference/responses-streaming>. The last event repeats the whole response, so
//! a reply is kept until its end.

use metaclaw_chat::StopReason;
use serde_json::{Map, Value, json};

use super::{
    chat_blocks::{Block, BlockWriter, Kind, ReplyEnd},
    context::ReplyContext,
    error_reply, own_reasoning,
    responses_tools::{self, GivenTool},
    usage,
    wire::{KEEP_ALIVE, put_event},
};
use crate::failure::ErrorText;

const MAX_REPLY: usize = 32 << 20;
/// Bytes of an item besides its text.
const ITEM: usize = 512;
/// The largest part of the upstream's id that the ids of items repeat.
const MAX_OF_REPLY: usize = 40;

const ID: &str = "resp_mc_";

#[derive(Debug)]
pub(super) struct ResponsesWriter {
    context: ReplyContext,
    /// Empty before the reply has begun.
    id: String,
    model: String,
    n_events: u64,
    output: Vec<Value>,
    n_bytes: usize,
    open: Option<OpenItem>,
    /// Signed thinking that no item has yet.
    signed: Vec<Value>,
}

#[derive(Debug)]
struct OpenItem {
    id: String,
    kind: ItemKind,
    text: String,
}

#[derive(Debug)]
enum ItemKind {
    Message,
    Reasoning,
    Call { call_id: String, tool: GivenTool },
}

/// Returns the upstream's id of the reply that a caller knows by this response id.
pub fn upstream_reply_id(response_id: &str) -> &str {
    response_id.strip_prefix(ID).unwrap_or(response_id)
}

/// Returns whether a response's id is one of ours.
pub fn is_translated_reply_id(response_id: &str) -> bool {
    response_id.starts_with(ID)
}

/// Returns the id for callers of a reply with this upstream id.
pub fn translated_reply_id(upstream_id: &str) -> String {
    format!("{ID}{upstream_id}")
}

// === impl ResponsesWriter ===

impl ResponsesWriter {
    pub(super) fn new(context: &ReplyContext) -> Self {
        Self {
            context: context.clone(),
            id: String::new(),
            model: String::new(),
            n_events: 0,
            output: Vec::new(),
            n_bytes: 0,
            open: None,
            signed: Vec::new(),
        }
    }

    fn put(&mut self, kind: &str, data: Value, out: &mut Vec<u8>) {
        let mut event = Map::new();
        event.insert("type".into(), format!("response.{kind}").into());
        event.insert("sequence_number".into(), self.n_events.into());
        if let Value::Object(data) = data {
            event.extend(data);
        }
        self.n_events += 1;
        put_event(out, &Value::Object(event));
    }

    fn put_of_item(&mut self, kind: &str, data: Value, out: &mut Vec<u8>) {
        let Some(item) = &self.open else {
            return;
        };
        let mut fields = json!({ "item_id": item.id, "output_index": self.output.len() });
        match item.kind {
            ItemKind::Message => fields["content_index"] = 0.into(),
            ItemKind::Reasoning => fields["summary_index"] = 0.into(),
            ItemKind::Call { .. } => {}
        }
        if let (Value::Object(fields), Value::Object(data)) = (&mut fields, data) {
            fields.extend(data);
        }
        self.put(kind, fields, out);
    }

    fn item_id(&self, kind: &str) -> String {
        let of_reply = upstream_reply_id(&self.id).chars();
        let fits = |c: &char| c.is_ascii_alphanumeric() || *c == '_' || *c == '-';
        let of_reply: String = of_reply.filter(fits).take(MAX_OF_REPLY).collect();
        format!("{kind}_mc_{of_reply}_{}", self.output.len())
    }

    fn open_item(&mut self, kind: ItemKind, out: &mut Vec<u8>) {
        let id = self.item_id(kind.id_prefix());
        let text = String::new();
        let item = OpenItem { id, kind, text };
        self.n_bytes += ITEM;
        let data =
            json!({ "output_index": self.output.len(), "item": item.value("in_progress", &[]) });
        self.put("output_item.added", data, out);
        let part = item.part();
        self.open = Some(item);
        if let Some((name, part)) = part {
            self.put_of_item(&format!("{name}.added"), json!({ "part": part }), out);
        }
    }

    fn close_item(&mut self, status: &str, out: &mut Vec<u8>) {
        if let Some(ItemKind::Call { tool, .. }) = self.open.as_ref().map(|item| &item.kind) {
            let is_custom = tool.is_custom;
            self.close_call(is_custom, out);
        } else if let Some(item) = &self.open {
            let (kind, text) = (item.text_kind(), item.text.clone());
            let mut data = json!({ "text": text });
            if matches!(item.kind, ItemKind::Message) {
                data["logprobs"] = json!([]);
            }
            self.put_of_item(&format!("{kind}.done"), data, out);
        }
        if let Some((name, part)) = self.open.as_ref().and_then(OpenItem::part) {
            self.put_of_item(&format!("{name}.done"), json!({ "part": part }), out);
        }
        let Some(item) = self.open.take() else {
            return;
        };
        let signed = match item.kind {
            ItemKind::Reasoning => std::mem::take(&mut self.signed),
            ItemKind::Message | ItemKind::Call { .. } => Vec::new(),
        };
        let item = item.value(status, &signed);
        let data = json!({ "output_index": self.output.len(), "item": item });
        self.put("output_item.done", data, out);
        self.output.push(item);
    }

    /// The input of a custom tool is inside the arguments, so it is sent when they are complete.
    fn close_call(&mut self, is_custom: bool, out: &mut Vec<u8>) {
        let Some(item) = &mut self.open else {
            return;
        };
        let is_blank = item.text.trim().is_empty();
        if is_custom {
            item.text = responses_tools::input(&item.text);
            let input = item.text.clone();
            self.put_of_item(
                "custom_tool_call_input.delta",
                json!({ "delta": input }),
                out,
            );
            self.put_of_item(
                "custom_tool_call_input.done",
                json!({ "input": input }),
                out,
            );
            return;
        }
        if is_blank {
            "{}".clone_into(&mut item.text);
            let data = json!({ "delta": "{}" });
            self.put_of_item("function_call_arguments.delta", data, out);
        }
        let Some(OpenItem {
            text,
            kind: ItemKind::Call { tool, .. },
            ..
        }) = &self.open
        else {
            return;
        };
        let data = json!({ "name": tool.name, "arguments": text });
        self.put_of_item("function_call_arguments.done", data, out);
    }

    /// Signed thinking without text is a separate item.
    fn put_signed(&mut self, out: &mut Vec<u8>) {
        if self.open.is_none() && !self.signed.is_empty() {
            self.open_item(ItemKind::Reasoning, out);
            self.close_item("completed", out);
        }
    }

    fn response(&self, status: &str) -> Value {
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.context.created,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": null,
            "model": self.model,
            "output": self.output,
            "usage": null,
        });
        if let Value::Object(response) = &mut response {
            response.extend(self.context.echo.clone());
        }
        response
    }

    pub(super) fn finish(&mut self, end: &ReplyEnd<'_>, out: &mut Vec<u8>) -> Value {
        let (status, reason) = match StopReason::of(end.finish_reason) {
            Some(StopReason::Length | StopReason::Window) => {
                ("incomplete", Some("max_output_tokens"))
            }
            Some(StopReason::Filtered) => ("incomplete", Some("content_filter")),
            _ => ("completed", None),
        };
        self.close_item(status, out);
        self.put_signed(out);
        let mut response = self.response(status);
        if let Some(reason) = reason {
            response["incomplete_details"] = json!({ "reason": reason });
        }
        response["usage"] = usage::to_responses(end.usage);
        response
    }
}

impl BlockWriter for ResponsesWriter {
    fn begin(&mut self, chunk: &Value, _: &Value, out: &mut Vec<u8>) {
        self.id = translated_reply_id(&self.context.reply_id("", chunk));
        let model = chunk["model"].as_str().unwrap_or_default();
        model.clone_into(&mut self.model);
        let response = self.response("in_progress");
        self.put("created", json!({ "response": response }), out);
        self.put("in_progress", json!({ "response": response }), out);
    }

    fn start(&mut self, block: &Block, out: &mut Vec<u8>) {
        let kind = match block {
            Block::Text => ItemKind::Message,
            Block::Thinking => ItemKind::Reasoning,
            Block::Call { id, name } => ItemKind::Call {
                call_id: id.clone(),
                tool: self.context.response_tools.given(name),
            },
        };
        if !matches!(kind, ItemKind::Reasoning) {
            self.put_signed(out);
        }
        self.open_item(kind, out);
    }

    fn grow(&mut self, _: Kind, piece: &str, out: &mut Vec<u8>) {
        let Some(item) = &mut self.open else {
            return;
        };
        self.n_bytes += piece.len();
        item.text.push_str(piece);
        if matches!(&item.kind, ItemKind::Call { tool, .. } if tool.is_custom) {
            return;
        }
        let kind = item.text_kind();
        let mut data = json!({ "delta": piece });
        if matches!(item.kind, ItemKind::Message) {
            data["logprobs"] = json!([]);
        }
        self.put_of_item(&format!("{kind}.delta"), data, out);
    }

    fn stop(&mut self, out: &mut Vec<u8>) {
        self.close_item("completed", out);
    }

    fn sign(&mut self, blocks: &[Value]) {
        self.n_bytes += blocks.iter().map(|it| it.to_string().len()).sum::<usize>();
        self.signed.extend_from_slice(blocks);
    }

    fn is_too_long(&self) -> bool {
        self.n_bytes > MAX_REPLY
    }

    fn end(&mut self, end: &ReplyEnd<'_>, out: &mut Vec<u8>) {
        let response = self.finish(end, out);
        let kind = match response["status"].as_str() {
            Some("incomplete") => "incomplete",
            Some(_) | None => "completed",
        };
        self.put(kind, json!({ "response": response }), out);
    }

    fn fail(&mut self, error: &ErrorText, out: &mut Vec<u8>) {
        if self.id.is_empty() {
            // Clients accept no event before the first.
            self.begin(&Value::Null, &Value::Null, out);
        }
        self.open = None;
        let mut response = self.response("failed");
        response["error"] = error_reply::to_response(error);
        self.put("failed", json!({ "response": response }), out);
    }

    fn keep_alive(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(KEEP_ALIVE);
    }

    fn id(&self) -> &str {
        upstream_reply_id(&self.id)
    }
}

// === impl Item ===

impl OpenItem {
    fn value(&self, status: &str, signed: &[Value]) -> Value {
        match &self.kind {
            ItemKind::Message => {
                let has_text = status != "in_progress";
                let content: Vec<Value> = has_text
                    .then(|| text_part(&self.text))
                    .into_iter()
                    .collect();
                json!({ "id": self.id, "type": "message", "status": status, "role": "assistant", "content": content })
            }
            ItemKind::Reasoning => {
                let text = Some(&self.text).filter(|text| !text.is_empty());
                let summary: Vec<Value> = text.map(|text| summary_part(text)).into_iter().collect();
                json!({ "id": self.id, "type": "reasoning", "summary": summary, "encrypted_content": own_reasoning::sealed(signed) })
            }
            ItemKind::Call { call_id, tool } => {
                let (kind, field) = if tool.is_custom {
                    ("custom_tool_call", "input")
                } else {
                    ("function_call", "arguments")
                };
                let mut item = json!({ "id": self.id, "type": kind, "status": status, "call_id": call_id, "name": tool.name, field: self.text });
                if let Some(namespace) = &tool.namespace {
                    item["namespace"] = namespace.as_str().into();
                }
                item
            }
        }
    }

    fn part(&self) -> Option<(&'static str, Value)> {
        match self.kind {
            ItemKind::Message => Some(("content_part", text_part(&self.text))),
            ItemKind::Reasoning => Some(("reasoning_summary_part", summary_part(&self.text))),
            ItemKind::Call { .. } => None,
        }
    }

    fn text_kind(&self) -> &'static str {
        match self.kind {
            ItemKind::Message => "output_text",
            ItemKind::Reasoning => "reasoning_summary_text",
            ItemKind::Call { .. } => "function_call_arguments",
        }
    }
}

// === impl ItemKind ===

impl ItemKind {
    /// Returns the prefix of the ids of such items, which OpenAI requires.
    fn id_prefix(&self) -> &'static str {
        match self {
            Self::Message => "msg",
            Self::Reasoning => "rs",
            Self::Call { tool, .. } if tool.is_custom => "ctc",
            Self::Call { .. } => "fc",
        }
    }
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn summary_part(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}
