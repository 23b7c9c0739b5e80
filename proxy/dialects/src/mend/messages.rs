//! A history in Anthropic's messages.

use metaclaw_chat::Message;
use serde_json::Value;

use super::{
    chat::THINKING_BLOCKS,
    pair::{self, Call},
    terms::{Demands, Mended, PastReply},
};
use crate::translate::sent_id;

/// Mends a request for an upstream of Anthropic's API.
pub(super) fn mend(request: &mut Value, past: &[PastReply<'_>], demands: Demands) -> Mended {
    let mut mended = Mended::default();
    let thinks = matches!(
        request["thinking"]["type"].as_str(),
        Some("enabled" | "adaptive")
    );
    let found = paired(request, past);
    let Some(messages) = request.get_mut("messages").and_then(Value::as_array_mut) else {
        return mended;
    };
    let mut found = found.into_iter();
    for message in messages.iter_mut() {
        let Some(blocks) = message.get_mut("content").and_then(Value::as_array_mut) else {
            continue;
        };
        let reply = has_calls(blocks).then(|| found.next()).flatten().flatten();
        take_out(blocks, reply, past, demands, &mut mended);
        if thinks {
            put_back(blocks, reply, &mut mended);
        }
        for block in blocks {
            rename(block, &mut mended);
        }
    }
    messages.retain(|message| {
        message["content"]
            .as_array()
            .is_none_or(|blocks| !blocks.is_empty())
    });
    // With thinking, Anthropic asks for it before the calls of the answer under way.
    if thinks && !begins_with_thinking(messages) {
        if let Some(request) = request.as_object_mut() {
            request.shift_remove("thinking");
        }
        mended.taken_out += 1;
    }
    mended
}

fn paired<'p>(request: &Value, past: &'p [PastReply<'p>]) -> Vec<Option<&'p PastReply<'p>>> {
    let messages = request["messages"].as_array().into_iter().flatten();
    let blocks = messages.filter_map(|message| message["content"].as_array());
    let said = blocks.filter(|blocks| has_calls(blocks)).map(|blocks| {
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
        calls.map(Call::of_block).collect()
    });
    pair::pair(&said.collect::<Vec<_>>(), past)
}

fn has_calls(blocks: &[Value]) -> bool {
    blocks.iter().any(|block| block["type"] == "tool_use")
}

fn is_thinking(block: &Value) -> bool {
    matches!(
        block["type"].as_str(),
        Some("thinking" | "redacted_thinking")
    )
}

fn is_signed(block: &Value) -> bool {
    let name = if block["type"] == "thinking" {
        "signature"
    } else {
        "data"
    };
    block[name].as_str().is_some_and(|it| !it.is_empty())
}

/// Thinking that nobody signed, and what another upstream did.
fn take_out(
    blocks: &mut Vec<Value>,
    reply: Option<&PastReply<'_>>,
    past: &[PastReply<'_>],
    demands: Demands,
    mended: &mut Mended,
) {
    let is_foreign = reply.is_some_and(|it| !it.is_own);
    let is_known = |block: &Value| {
        past.iter()
            .any(|it| it.is_own && signed(it.reply).any(|own| own == block))
    };
    let n_before = blocks.len();
    blocks.retain(|block| {
        !is_thinking(block)
            || is_signed(block) && !is_foreign && (!demands.own_thinking || is_known(block))
    });
    mended.taken_out += n_before - blocks.len();
}

/// The thinking of a reply of its own that the client lost.
fn put_back(blocks: &mut Vec<Value>, reply: Option<&PastReply<'_>>, mended: &mut Mended) {
    let own = reply.filter(|it| it.is_own && !it.is_masked);
    let Some(own) = own.filter(|_| !blocks.iter().any(is_thinking)) else {
        return;
    };
    let thinking: Vec<Value> = signed(own.reply)
        .filter(|block| is_signed(block))
        .cloned()
        .collect();
    mended.put_back += thinking.len();
    blocks.splice(0..0, thinking);
}

fn signed(reply: &Message) -> impl Iterator<Item = &Value> {
    let blocks = reply.get(THINKING_BLOCKS).and_then(Value::as_array);
    blocks.into_iter().flatten()
}

/// An id of a call with characters that Anthropic refuses, in the call and in its result.
fn rename(block: &mut Value, mended: &mut Mended) {
    for (kind, field) in [("tool_use", "id"), ("tool_result", "tool_use_id")] {
        if block["type"] == kind
            && let Some(id) = block[field].as_str()
            && let sent = sent_id(id)
            && sent.len() == id.len()
            && sent != id
        {
            block[field] = sent.into();
            mended.taken_out += usize::from(kind == "tool_use");
        }
    }
}

/// Whether the answer under way, if its calls are being answered, begins with thinking.
fn begins_with_thinking(messages: &[Value]) -> bool {
    let is_owner = |message: &&Value| {
        let said = message["content"].as_array();
        message["role"] == "user"
            && said.is_none_or(|blocks| blocks.iter().all(|block| block["type"] != "tool_result"))
    };
    let under_way = messages
        .iter()
        .rev()
        .take_while(|message| !is_owner(message));
    let mut replies = under_way.filter_map(|message| {
        let blocks = message["content"]
            .as_array()
            .filter(|blocks| has_calls(blocks));
        blocks.filter(|_| message["role"] == "assistant")
    });
    replies
        .next()
        .is_none_or(|blocks| blocks.first().is_some_and(is_thinking))
}
