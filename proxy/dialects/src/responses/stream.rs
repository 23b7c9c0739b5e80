//! Assembles a streamed response item by item.

use metaclaw_chat::Usage;
use serde_json::{Map, Value};

use super::{
    items,
    status::{finish_reason, is_over},
};
use crate::{
    fields::JsonFields,
    reply::{Accumulate, Reply, error, text},
};

/// The largest number of items of one reply, and of parts of one item, because a broken upstream may send any number.
const MAX_ITEMS: usize = 1_024;
const MAX_PARTS: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct ResponsesAccumulator {
    items: Vec<StreamedItem>,
    end: Option<(String, Value)>,
}

#[derive(Debug)]
struct StreamedItem {
    index: Option<u64>,
    fields: Map<String, Value>,
}

struct GrowingText {
    of: &'static str,
    part: Option<(&'static str, &'static str)>,
    field: &'static str,
}

// === impl Accumulator ===

impl Accumulate for ResponsesAccumulator {
    const ENDS: &'static [&'static str] = &[
        "response.completed",
        "response.incomplete",
        "response.failed",
    ];

    fn event(&mut self, kind: &str, data: &JsonFields<'_>, reply: &mut Reply) {
        match kind {
            "response.created" | "response.in_progress" => {
                reply.begin(&data.value("response").unwrap_or_default());
            }
            "response.output_item.added" => self.item(data, false),
            "response.output_item.done" => self.item(data, true),
            "response.completed" => self.end("completed", data, reply),
            "response.incomplete" => self.end("incomplete", data, reply),
            "response.failed" => self.end("failed", data, reply),
            "error" => reply.error = Some(data.value("error").unwrap_or_else(|| data.to_value())),
            kind => {
                if let Some((growing, is_done)) = GrowingText::of_event(kind) {
                    self.piece(&growing, data, is_done);
                }
            }
        }
    }

    fn finish(self, reply: Reply) -> Reply {
        let items = self.items.into_iter().map(|item| item.fields.into());
        let items: Vec<Value> = items.collect();
        let (status, response) = self.end.unwrap_or_default();
        let message = items::turn(&items, is_over(&status));
        Reply {
            finish_reason: finish_reason(&status, &response, message.as_ref()),
            message,
            ..reply
        }
    }
}

impl ResponsesAccumulator {
    fn item(&mut self, data: &JsonFields<'_>, is_done: bool) {
        let index = data.number("output_index");
        let Some(Value::Object(fields)) = data.value("item") else {
            return;
        };
        let id = fields.get("id").and_then(Value::as_str);
        match self.known(index, id).filter(|_| is_done) {
            Some(item) => item.complete(fields),
            None => self.push(StreamedItem { index, fields }),
        }
    }

    /// Returns the latest item with this index, or else with this id, or the last one if an event has neither.
    fn known(&mut self, index: Option<u64>, id: Option<&str>) -> Option<&mut StreamedItem> {
        let same = |item: &&mut StreamedItem| match (index, id) {
            (Some(_), _) => item.index == index,
            (None, Some(id)) => item.fields.get("id").is_some_and(|known| known == id),
            (None, None) => true,
        };
        self.items.iter_mut().rev().find(same)
    }

    fn push(&mut self, item: StreamedItem) {
        if self.items.len() < MAX_ITEMS {
            self.items.push(item);
        }
    }

    fn piece(&mut self, growing: &GrowingText, data: &JsonFields<'_>, is_done: bool) {
        let index = data.number("output_index");
        let id = data.text("item_id");
        let at = data.number(if growing.is_summary() {
            "summary_index"
        } else {
            "content_index"
        });
        let given = if is_done { growing.field } else { "delta" };
        let Some(piece) = data.text(given) else {
            return;
        };
        if let Some(item) = self.known(index, id.as_deref()) {
            item.grow(growing, at, &piece, is_done);
        } else {
            let mut item = StreamedItem::of_piece(growing, index, id.as_deref());
            item.grow(growing, at, &piece, is_done);
            self.push(item);
        }
    }

    fn end(&mut self, status: &str, data: &JsonFields<'_>, reply: &mut Reply) {
        let mut response = data.value("response").unwrap_or_default();
        reply.begin(&response);
        reply.usage = Usage::read(&response["usage"]).or(reply.usage);
        reply.error = error(&response).or_else(|| reply.error.take());
        if let Some(Value::Array(output)) = response.get_mut("output").map(Value::take) {
            self.replace_items(output);
        }
        let status = text(&response["status"]).unwrap_or_else(|| status.to_owned());
        self.end = Some((status, response));
    }

    /// Replaces the items with those of the last event, which some servers leave out.
    fn replace_items(&mut self, output: Vec<Value>) {
        if output.is_empty() {
            return;
        }
        let index = None;
        let objects = output.into_iter().filter_map(|item| match item {
            Value::Object(fields) => Some(StreamedItem { index, fields }),
            _ => None,
        });
        self.items = objects.take(MAX_ITEMS).collect();
    }
}

// === impl Item ===

impl StreamedItem {
    /// Makes an item that some servers begin without an event.
    fn of_piece(growing: &GrowingText, index: Option<u64>, id: Option<&str>) -> Self {
        let mut fields = Map::new();
        fields.insert("type".into(), growing.of.into());
        if let Some(id) = id {
            fields.insert("id".into(), id.into());
        }
        if growing.of == "message" {
            fields.insert("role".into(), "assistant".into());
        }
        Self { index, fields }
    }

    /// Takes the item from its last event. Values that arrived in pieces stay if this event leaves them out.
    fn complete(&mut self, fields: Map<String, Value>) {
        for (name, value) in fields {
            let says_nothing = match &value {
                Value::Null => true,
                Value::String(text) => text.is_empty(),
                Value::Array(list) => list.is_empty(),
                _ => false,
            };
            if !says_nothing || !self.fields.contains_key(&name) {
                self.fields.insert(name, value);
            }
        }
    }

    fn grow(&mut self, growing: &GrowingText, at: Option<u64>, piece: &str, is_whole: bool) {
        let Some(fields) = self.place(growing, at) else {
            return;
        };
        match fields.get_mut(growing.field) {
            Some(Value::String(known)) if !is_whole => known.push_str(piece),
            _ => drop(fields.insert(growing.field.to_owned(), piece.into())),
        }
    }

    fn place(&mut self, growing: &GrowingText, at: Option<u64>) -> Option<&mut Map<String, Value>> {
        let Some((list, kind)) = growing.part else {
            return Some(&mut self.fields);
        };
        let list = self.fields.entry(list).or_insert(Value::Null);
        if !list.is_array() {
            *list = Value::Array(Vec::new());
        }
        let list = list.as_array_mut()?;
        let last = list.len().saturating_sub(1);
        let at = at.map_or(last, |at| usize::try_from(at).unwrap_or(usize::MAX));
        if at >= list.len() && list.len() < MAX_PARTS {
            let mut part = Map::new();
            part.insert("type".into(), kind.into());
            list.push(part.into());
        }
        let at = at.min(list.len().saturating_sub(1));
        list.get_mut(at)?.as_object_mut()
    }
}

// === impl Growing ===

impl GrowingText {
    /// Returns the text to which an event adds a piece, or the whole.
    fn of_event(kind: &str) -> Option<(Self, bool)> {
        let kind = kind.strip_prefix("response.")?;
        let (name, is_done) = match kind.strip_suffix(".done") {
            Some(name) => (name, true),
            None => (kind.strip_suffix(".delta")?, false),
        };
        let (of, part, field) = match name {
            "output_text" => ("message", Some(("content", "output_text")), "text"),
            "refusal" => ("message", Some(("content", "refusal")), "refusal"),
            "reasoning_text" => ("reasoning", Some(("content", "reasoning_text")), "text"),
            "reasoning_summary_text" => ("reasoning", Some(("summary", "summary_text")), "text"),
            "function_call_arguments" => ("function_call", None, "arguments"),
            "mcp_call_arguments" => ("mcp_call", None, "arguments"),
            "custom_tool_call_input" => ("custom_tool_call", None, "input"),
            _ => return None,
        };
        Some((Self { of, part, field }, is_done))
    }

    fn is_summary(&self) -> bool {
        matches!(self.part, Some(("summary", _)))
    }
}
