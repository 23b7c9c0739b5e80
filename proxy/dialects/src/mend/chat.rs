//! Mends a history in chat completions.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    pair::{self, HistoryCall},
    terms::{CallIds, Demands, Mended, PastReply},
};
use crate::translate::bounded_id;

/// The fields for a reply's thinking that DeepSeek, Moonshot and others require, and OpenRouter.
pub(super) const REASONING: [&str; 2] = ["reasoning_content", "reasoning_details"];
pub(super) const THINKING_BLOCKS: &str = "thinking_blocks";

const OF_EVERY_MESSAGE: [&str; 5] = ["role", "content", "name", "tool_calls", "function_call"];
const OF_OPENAI: [&str; 2] = ["refusal", "audio"];
const OF_EVERY_CALL: [&str; 5] = ["id", "type", "index", "function", "custom"];
/// Google accepts this instead of a signature for a call of another model
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// The fields of a call that only the upstream that made it reads.
pub(super) fn extra(call: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let fields = call.as_object().into_iter().flatten();
    fields.filter(|(name, value)| !OF_EVERY_CALL.contains(&name.as_str()) && !value.is_null())
}

pub(super) fn mend(request: &mut Value, past: &[PastReply<'_>], demands: Demands) -> Mended {
    let mut mended = Mended::default();
    let found = paired(request, past);
    let Some(messages) = request.get_mut("messages").and_then(Value::as_array_mut) else {
        return mended;
    };
    let mut found = found.into_iter();
    for message in messages {
        let reply = has_calls(message).then(|| found.next()).flatten().flatten();
        let Some(message) = message.as_object_mut() else {
            continue;
        };
        if message.get("role").is_none_or(|role| role != "assistant") {
            continue;
        }
        match reply {
            Some(reply) if reply.is_own => put_back(message, reply, demands, &mut mended),
            Some(reply) => take_out(message, reply, demands, &mut mended),
            None => {}
        }
        if demands.standard_fields {
            standardise(message, &mut mended);
        }
        if demands.reasoning && !is_said(message.get("reasoning_content")) {
            // If no thinking is known, a blank is sent, because Moonshot treats an empty text as none.
            let known = reply.and_then(|reply| reply.reply.get("reasoning_content"));
            let thinking = known.filter(|thinking| is_said(Some(thinking))).cloned();
            message.insert(
                "reasoning_content".to_owned(),
                thinking.unwrap_or_else(|| " ".into()),
            );
            mended.put_back += 1;
        }
        if demands.signed_calls {
            sign(message, &mut mended);
        }
    }
    if demands.ids != CallIds::Any {
        rename_ids(request, demands.ids, &mut mended);
    }
    mended
}

/// Mends a chat request that will be translated for Anthropic: signed thinking is added as `thinking_blocks`. The
/// translation does the rest.
pub(super) fn mend_thinking(
    request: &mut Value,
    past: &[PastReply<'_>],
    demands: Demands,
) -> Mended {
    let mut mended = Mended::default();
    let found = paired(request, past);
    let messages = request
        .get_mut("messages")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten();
    for (message, reply) in messages.filter(|message| has_calls(message)).zip(found) {
        let Some(message) = message.as_object_mut() else {
            continue;
        };
        let own = reply.filter(|reply| reply.is_own && !reply.is_masked);
        let signed = own.and_then(|reply| reply.reply.get(THINKING_BLOCKS));
        let is_foreign =
            reply.is_some_and(|reply| !reply.is_own) || own.is_none() && demands.own_thinking;
        if is_foreign {
            mended.taken_out += usize::from(message.shift_remove(THINKING_BLOCKS).is_some());
        } else if let (Some(signed), false) = (signed, message.contains_key(THINKING_BLOCKS)) {
            message.insert(THINKING_BLOCKS.to_owned(), signed.clone());
            mended.put_back += 1;
        }
    }
    mended
}

fn paired<'p>(request: &Value, past: &'p [PastReply<'p>]) -> Vec<Option<&'p PastReply<'p>>> {
    let messages = request["messages"].as_array().into_iter().flatten();
    let said = messages.filter(|message| has_calls(message));
    let said = said.map(|message| {
        pair::calls(message.get("tool_calls"))
            .map(HistoryCall::of_chat)
            .collect()
    });
    pair::pair(&said.collect::<Vec<_>>(), past)
}

fn has_calls(message: &Value) -> bool {
    message["role"] == "assistant" && pair::calls(message.get("tool_calls")).next().is_some()
}

fn is_said(text: Option<&Value>) -> bool {
    text.is_some_and(|text| !text.is_null() && text != "")
}

fn logged<'r>(reply: &'r PastReply<'_>, at: usize) -> Option<&'r Value> {
    pair::calls(reply.reply.get("tool_calls")).nth(at)
}

fn calls_mut(message: &mut Map<String, Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    calls.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn put_back(
    message: &mut Map<String, Value>,
    reply: &PastReply<'_>,
    demands: Demands,
    mended: &mut Mended,
) {
    let wanted = |name: &&str| *name != "reasoning_content" || demands.reasoning;
    for name in REASONING.into_iter().filter(wanted) {
        let kept = reply.reply.get(name).filter(|value| is_said(Some(value)));
        if let (Some(kept), false) = (kept, is_said(message.get(name))) {
            message.insert(name.to_owned(), kept.clone());
            mended.put_back += 1;
        }
    }
    for (at, call) in calls_mut(message).enumerate() {
        for (name, value) in logged(reply, at).into_iter().flat_map(extra) {
            if !call.contains_key(name) {
                call.insert(name.clone(), value.clone());
                mended.put_back += 1;
            }
        }
    }
}

fn take_out(
    message: &mut Map<String, Value>,
    reply: &PastReply<'_>,
    demands: Demands,
    mended: &mut Mended,
) {
    let wanted = |name: &&str| *name != "reasoning_content" || !demands.reasoning;
    for name in REASONING
        .into_iter()
        .chain([THINKING_BLOCKS])
        .filter(wanted)
    {
        let is_its = reply.reply.get(name) == message.get(name);
        if is_its && message.shift_remove(name).is_some() {
            mended.taken_out += 1;
        }
    }
    for (at, call) in calls_mut(message).enumerate() {
        for (name, value) in logged(reply, at).into_iter().flat_map(extra) {
            if call.get(name) == Some(value) {
                call.shift_remove(name);
                mended.taken_out += 1;
            }
        }
    }
}

fn standardise(message: &mut Map<String, Value>, mended: &mut Mended) {
    let n_before = message.len();
    message.retain(|name, value| {
        OF_EVERY_MESSAGE.contains(&name.as_str())
            || OF_OPENAI.contains(&name.as_str()) && !value.is_null()
    });
    mended.taken_out += n_before - message.len();
    if let Some(parts) = message.get_mut("content").and_then(Value::as_array_mut) {
        let n_before = parts.len();
        parts.retain(|part| part["type"] != "thinking" && part["type"] != "reasoning");
        mended.taken_out += n_before - parts.len();
    }
    for call in calls_mut(message) {
        let n_before = call.len();
        call.retain(|name, _| OF_EVERY_CALL.contains(&name.as_str()));
        mended.taken_out += n_before - call.len();
    }
}

/// The first call of each message needs a signature, as Google requires.
fn sign(message: &mut Map<String, Value>, mended: &mut Mended) {
    let Some(call) = calls_mut(message).next() else {
        return;
    };
    let signature = call
        .get("extra_content")
        .map(|extra| &extra["google"]["thought_signature"]);
    if !is_said(signature) {
        let google = json!({ "google": { "thought_signature": NO_SIGNATURE } });
        call.insert("extra_content".to_owned(), google);
        mended.put_back += 1;
    }
}

/// Replaces ids that an upstream refuses, equally in a call and its result.
pub(super) fn rename_ids(request: &mut Value, ids: CallIds, mended: &mut Mended) {
    let mut changed = BTreeSet::new();
    let mut rename = |id: &mut Value| {
        let Some(given) = id.as_str() else {
            return;
        };
        let sent = match ids {
            CallIds::Any => return,
            CallIds::Bounded => bounded_id(given).into_owned(),
            CallIds::Nine => nine(given),
        };
        if sent != given {
            changed.insert(given.to_owned());
            *id = sent.into();
        }
    };
    // These are the messages, and the items of Responses.
    for list in ["messages", "input"] {
        let said = request.get_mut(list).and_then(Value::as_array_mut);
        for said in said.into_iter().flatten() {
            let calls = said.get_mut("tool_calls").and_then(Value::as_array_mut);
            let ids = calls.into_iter().flatten();
            ids.filter_map(|call| call.get_mut("id"))
                .for_each(&mut rename);
            for name in ["tool_call_id", "call_id"] {
                said.get_mut(name).into_iter().for_each(&mut rename);
            }
        }
    }
    mended.taken_out += changed.len();
}

/// Returns an id of nine letters and digits derived from `id`, or `id` itself if it has that form.
fn nine(id: &str) -> String {
    const LENGTH: u32 = 9;
    if id.len() == LENGTH as usize && id.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    // The hash is FNV-1a with 64 bits, of which 46 are written in base 36.
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let digits = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let digit = |place: u32| {
        let at = usize::try_from(hash / 36_u64.pow(place) % 36).unwrap_or_default();
        char::from(digits[at])
    };
    (0..LENGTH).map(digit).collect()
}
