//! What models and agents write in ways that few understand, put as chat completions put it.
//!
//! Models of the Qwen and Kimi families write their tool calls and their thinking as text. A server that
//! knows the model takes them out; behind one that does not, an agent would see markup and no call. Here
//! they become `tool_calls` and `reasoning_content`, for whole replies ([`reply`]) and for streams, piece
//! by piece ([`stream`]): text goes on at once unless it may be the beginning of a marker. What looks
//! like a call and is none (bad JSON, no name) stays text. In the other direction [`request`] turns the
//! message shapes of agents into those that chat templates know.
//!
//! For the policy model; for other upstreams only if configured, as a provider's own words are not ours
//! to change. The shapes are those of the original MetaClaw, less its mistakes: a `<think>` in the midst
//! of a text is text that somebody talks about, a closing marker inside a JSON string closes nothing, a
//! tool that the request names keeps its name whatever its digits.

mod call;
mod held;
mod names;
mod requests;
mod schema;
mod split;
mod streams;
mod xml;

use serde_json::Value;

pub use self::requests::{bootstrap, normalise, request};
pub use self::schema::Schemas;
use self::split::{Piece, Splitter};
use crate::{
    json,
    rewrite::{Events, Rewrite},
};

/// What a reply is read by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The chat template has opened the `<think>` already, so that replies begin inside of it (as those of
    /// Qwen3-Thinking and DeepSeek-R1 do).
    pub think_is_open: bool,
    /// The names of the request's tools; one of them is never taken for another's misspelling.
    pub tools: Vec<String>,
    /// What they take.
    pub schemas: Schemas,
}

/// A call that was found in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

// === impl Options ===

impl Options {
    /// The options for the reply to a chat request, whose tools it names.
    pub fn of(request: &Value, think_is_open: bool) -> Self {
        let tools = request["tools"].as_array().into_iter().flatten();
        let names = tools.filter_map(|tool| tool["function"]["name"].as_str());
        Self {
            think_is_open,
            tools: names.map(str::to_owned).collect(),
            schemas: Schemas::of(request),
        }
    }
}

/// Takes calls and thinking out of the text of a streamed chat reply. Events without either pass as they are.
pub fn stream(options: Options) -> Box<dyn Rewrite> {
    Box::new(Events::new(streams::Stream::new(options)))
}

/// Takes calls and thinking out of the text of a whole chat reply; `None` where there is nothing to take.
///
/// Here, where the end is known, text before a lone `</think>` that has a line of its own is thinking
/// even if nobody said that the template opens it.
pub fn reply(options: &Options, body: &[u8]) -> Option<Vec<u8>> {
    let mut body = json::read_bytes(body).ok()?;
    let reply_id = body["id"].as_str().unwrap_or_default().to_owned();
    let choices = body.get_mut("choices")?.as_array_mut()?;
    let mut has_changed = false;
    for choice in choices {
        has_changed |= recover(options, &reply_id, choice).is_some();
    }
    has_changed.then(|| body.to_string().into_bytes())
}

fn recover(options: &Options, reply_id: &str, choice: &mut Value) -> Option<()> {
    let message = choice.get_mut("message")?;
    let text = message["content"].as_str()?.to_owned();
    let think_is_open = options.think_is_open || ends_open_thinking(&text);
    let options = Options {
        think_is_open,
        ..options.clone()
    };
    let mut splitter = Splitter::new(options, reply_id);
    if says_something(&message["reasoning_content"]) || says_something(&message["reasoning"]) {
        splitter.leave_thinking();
    }
    let has_calls = message["tool_calls"]
        .as_array()
        .is_some_and(|c| !c.is_empty());
    let mut pieces = Vec::new();
    if has_calls {
        splitter.leave_calls(&mut pieces);
    }
    splitter.push(&text, &mut pieces);
    splitter.finish(true, &mut pieces);
    let (mut content, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
    for piece in pieces {
        match piece {
            Piece::Text(text) => content.push_str(&text),
            Piece::Thinking(text) => thinking.push_str(&text),
            Piece::Call(call) => calls.push(Value::from(call)),
        }
    }
    if content == text {
        return None;
    }
    let message = message.as_object_mut()?;
    let has_found = !calls.is_empty();
    let content = if content.is_empty() && has_found {
        Value::Null
    } else {
        content.into()
    };
    message.insert("content".into(), content);
    if !thinking.is_empty() {
        message.insert("reasoning_content".into(), thinking.into());
    }
    if has_found {
        message.insert("tool_calls".into(), calls.into());
        finish_with_calls(choice);
    }
    Some(())
}

/// A model that calls has stopped for its tools; one that was cut short was cut short.
fn finish_with_calls(choice: &mut Value) {
    if choice["finish_reason"] == "stop" {
        choice["finish_reason"] = "tool_calls".into();
    }
}

fn says_something(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

/// A `</think>` on a line of its own, and no `<think>` before it.
fn ends_open_thinking(text: &str) -> bool {
    let Some((before, after)) = text.split_once(split::THINK_END) else {
        return false;
    };
    let before = before.trim_end_matches([' ', '\t']);
    let is_line = (before.is_empty() || before.ends_with('\n'))
        && (after.is_empty() || after.starts_with(['\n', '\r']));
    is_line && !before.contains(split::THINK)
}

impl From<Call> for Value {
    fn from(call: Call) -> Self {
        serde_json::json!({
            "id": call.id,
            "type": "function",
            "function": { "name": call.name, "arguments": call.arguments },
        })
    }
}

#[cfg(test)]
mod tests;
