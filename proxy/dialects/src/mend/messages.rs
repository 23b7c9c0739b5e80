//! Mends a history in Anthropic's messages.

use metaclaw_chat::Message;
use serde_json::{Value, json};

use super::{
    chat::THINKING_BLOCKS,
    pair::{self, HistoryCall},
    terms::{Demands, Mended, PastReply},
};
use crate::translate::{first_reply_under_way, pair_results, sent_id};

pub(super) fn mend(request: &mut Value, past: &[PastReply<'_>], demands: Demands) -> Mended {
    let mut mended = Mended::default();
    let kind = request["thinking"]["type"].as_str();
    let thinks = matches!(kind, Some("enabled" | "adaptive"));
    // Adaptive thinking may begin without a thinking block.
    let begins_with_thinking = kind == Some("enabled");
    let found = paired(request, past);
    let Some(messages) = request.get_mut("messages").and_then(Value::as_array_mut) else {
        return mended;
    };
    let mut found = found.into_iter();
    // Marks the messages whose thinking is missing.
    let mut lacks = vec![demands.own_thinking; messages.len()];
    for (message, lacks) in messages.iter_mut().zip(&mut lacks) {
        let is_reply = message["role"] == "assistant";
        if is_reply && demands.thinking || demands.paired_calls {
            as_blocks(message);
        }
        let Some(blocks) = message.get_mut("content").and_then(Value::as_array_mut) else {
            continue;
        };
        let reply = has_calls(blocks).then(|| found.next()).flatten().flatten();
        let n_taken = take_out(blocks, reply, past, demands);
        mended.taken_out += n_taken;
        *lacks |= n_taken > 0 || reply.is_some_and(|reply| !reply.is_own || reply.is_masked);
        if thinks || demands.thinking {
            put_back(blocks, reply, &mut mended);
        }
        if is_reply && demands.thinking && !blocks.iter().any(is_thinking) {
            let known = reply.and_then(|reply| reply.reply.get("reasoning_content")?.as_str());
            let thinking = known.filter(|text| !text.is_empty()).unwrap_or(" ");
            let block = json!({ "type": "thinking", "thinking": thinking, "signature": "" });
            blocks.insert(0, block);
            mended.put_back += 1;
        }
        for block in blocks {
            rename(block, &mut mended);
        }
    }
    let began = first_reply_under_way(messages);
    let began_without = began.is_some_and(|at| {
        let first = &messages[at]["content"][0];
        lacks[at] && !is_thinking(first)
    });
    if demands.paired_calls {
        let before = messages.clone();
        pair_results(messages);
        mended.taken_out += usize::from(*messages != before);
    }
    messages.retain(|message| {
        message["content"]
            .as_array()
            .is_none_or(|blocks| !blocks.is_empty())
    });
    // With thinking enabled, Anthropic requires it before the calls of the current reply.
    if begins_with_thinking && began_without {
        if let Some(request) = request.as_object_mut() {
            request.shift_remove("thinking");
        }
        mended.taken_out += 1;
    }
    mended
}

fn as_blocks(message: &mut Value) {
    if let Some(text) = message["content"].as_str() {
        message["content"] = json!([{ "type": "text", "text": text }]);
    }
}

fn paired<'p>(request: &Value, past: &'p [PastReply<'p>]) -> Vec<Option<&'p PastReply<'p>>> {
    let messages = request["messages"].as_array().into_iter().flatten();
    let blocks = messages.filter_map(|message| message["content"].as_array());
    let said = blocks.filter(|blocks| has_calls(blocks)).map(|blocks| {
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
        calls.map(HistoryCall::of_block).collect()
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
    block[name].as_str().is_some_and(|text| !text.is_empty())
}

/// Removes another upstream's thinking, and unsigned thinking if this upstream signs its own. Returns the number of
/// removed blocks.
fn take_out(
    blocks: &mut Vec<Value>,
    reply: Option<&PastReply<'_>>,
    past: &[PastReply<'_>],
    demands: Demands,
) -> usize {
    let is_foreign = reply.is_some_and(|reply| !reply.is_own);
    let own = past.iter().filter(|reply| reply.is_own);
    let known: Vec<&Value> = own.flat_map(|reply| thinking(reply.reply)).collect();
    let signs = known.iter().any(|block| is_signed(block));
    let n_before = blocks.len();
    blocks.retain(|block| {
        !is_thinking(block)
            || !is_foreign
                && if demands.own_thinking {
                    is_signed(block) && known.contains(&block)
                } else {
                    is_signed(block) || !signs
                }
    });
    n_before - blocks.len()
}

fn put_back(blocks: &mut Vec<Value>, reply: Option<&PastReply<'_>>, mended: &mut Mended) {
    let own = reply.filter(|reply| reply.is_own && !reply.is_masked);
    let Some(own) = own.filter(|_| !blocks.iter().any(is_thinking)) else {
        return;
    };
    let lost: Vec<Value> = thinking(own.reply).cloned().collect();
    mended.put_back += lost.len();
    blocks.splice(0..0, lost);
}

fn thinking(reply: &Message) -> impl Iterator<Item = &Value> {
    let blocks = reply.get(THINKING_BLOCKS).and_then(Value::as_array);
    blocks.into_iter().flatten()
}

/// Replaces characters that Anthropic refuses in an id, equally in the call and in its result.
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
