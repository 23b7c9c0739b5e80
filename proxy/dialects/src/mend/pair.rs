//! Finds the reply in the log for each message of a history.

use serde_json::{Map, Value};

use super::terms::PastReply;
use crate::translate::{sent_id, sent_name, upstream_call_id};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct HistoryCall {
    id: String,
    name: String,
    input: Value,
}

pub(super) fn calls(tool_calls: Option<&Value>) -> impl Iterator<Item = &Value> {
    let calls = tool_calls.and_then(Value::as_array).into_iter().flatten();
    calls.filter(|call| call.is_object())
}

/// Returns the logged reply for each message with calls in a history. The search goes backwards, because the beginning
/// of a history may have been summarised. If an id was given more than once, the arguments decide, then the place.
pub(super) fn pair<'p>(
    said: &[Vec<HistoryCall>],
    past: &'p [PastReply<'p>],
) -> Vec<Option<&'p PastReply<'p>>> {
    let replies: Vec<Vec<HistoryCall>> = past.iter().map(of_reply).collect();
    let mut found = vec![None; said.len()];
    let mut end = past.len();
    for (at, calls) in said.iter().enumerate().rev() {
        let before = |is: fn(&HistoryCall, &HistoryCall) -> bool| {
            let shares = |reply: &Vec<HistoryCall>| {
                reply.iter().any(|one| calls.iter().any(|it| is(one, it)))
            };
            replies[..end].iter().rposition(shares)
        };
        if let Some(place) = before(HistoryCall::is).or_else(|| before(HistoryCall::has_id_of)) {
            found[at] = Some(&past[place]);
            end = place;
        }
    }
    found
}

fn of_reply(past: &PastReply<'_>) -> Vec<HistoryCall> {
    calls(past.reply.get("tool_calls"))
        .map(HistoryCall::of_chat)
        .collect()
}

/// Parses arguments, which chat completions have as a quoted text.
fn parsed(input: &Value) -> Value {
    let quoted = input.as_str().map(str::trim);
    match quoted {
        Some("") => Value::Object(Map::new()),
        Some(text) => serde_json::from_str(text).unwrap_or_else(|_| input.clone()),
        None => input.clone(),
    }
}

// === impl Call ===

impl HistoryCall {
    pub(super) fn of_chat(call: &Value) -> Self {
        let function = &call["function"];
        Self::new(&call["id"], &function["name"], &function["arguments"])
    }

    pub(super) fn of_block(block: &Value) -> Self {
        Self::new(&block["id"], &block["name"], &block["input"])
    }

    fn new(id: &Value, name: &Value, input: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            // Each translation changes an id or a name in the same way every time.
            id: sent_id(upstream_call_id(&text(id))),
            name: sent_name(&text(name)),
            input: parsed(input),
        }
    }

    fn is(one: &Self, other: &Self) -> bool {
        one == other
    }

    fn has_id_of(one: &Self, other: &Self) -> bool {
        one.id == other.id && one.name == other.name
    }
}
