//! Mends a history in Responses: its reasoning items, which only their provider can read.

use metaclaw_chat::Message;
use serde_json::Value;

use super::{
    chat::rename_ids,
    terms::{CallIds, Demands, Mended, PastReply},
};

pub(super) const ITEMS: &str = "reasoning_items";

pub(super) fn mend(request: &mut Value, past: &[PastReply<'_>], demands: Demands) -> Mended {
    let mut mended = Mended::default();
    if demands.ids != CallIds::Any {
        rename_ids(request, demands.ids, &mut mended);
    }
    let Some(input) = request.get_mut("input").and_then(Value::as_array_mut) else {
        return mended;
    };
    let is_of = |item: &Value, is_own: bool| {
        let mut replies = past.iter().filter(|reply| reply.is_own == is_own);
        replies.any(|reply| sealed(reply.reply).any(|text| *text == item["encrypted_content"]))
    };
    let n_before = input.len();
    input.retain(|item| {
        item["type"] != "reasoning"
            || is_of(item, true)
            || !demands.own_thinking && !is_of(item, false)
    });
    mended.taken_out += n_before - input.len();
    if demands.own_thinking {
        for item in input.iter_mut() {
            unname(item, &mut mended);
        }
    }
    mended
}

fn sealed(reply: &Message) -> impl Iterator<Item = &Value> {
    let items = reply.get(ITEMS).and_then(Value::as_array);
    let sealed = items
        .into_iter()
        .flatten()
        .map(|item| &item["encrypted_content"]);
    sealed.filter(|seal| seal.is_string())
}

/// Removes an item's id, because OpenAI looks up an item with an id, and requires the reasoning that belongs to it.
fn unname(item: &mut Value, mended: &mut Mended) {
    let is_named = matches!(
        item["type"].as_str(),
        None | Some("message" | "function_call" | "custom_tool_call")
    );
    if let Some(item) = item.as_object_mut().filter(|_| is_named) {
        mended.taken_out += usize::from(item.shift_remove("id").is_some());
    }
}
