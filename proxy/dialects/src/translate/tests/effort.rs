//! Tests that the effort that a caller asks for in one API becomes the right effort in the server's API.

use serde_json::{Map, Value, json};

use super::*;
use crate::testing;

/// Returns what a translated request says about the effort and the room for it.
fn sent(path: &[Direction], model: &str, more: &Map<String, Value>) -> Map<String, Value> {
    let mut body = match path.first() {
        Some(ResponsesToChat) => json!({ "input": "hi" }),
        _ => json!({ "messages": [{ "role": "user", "content": "hi" }] }),
    };
    body["model"] = model.into();
    body.as_object_mut().unwrap().extend(more.clone());
    let (sent, _) = request_along(path, &body, 1).unwrap();
    let fields: &[&str] = match path.last() {
        Some(ChatToMessages) => &["thinking", "output_config", "max_tokens"],
        _ => &["reasoning_effort"],
    };
    let given = fields
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), sent.get(*name)?.clone())));
    given.collect()
}

/// A row has the caller's API and the upstream's, the model, what the caller asks for, and what the upstream gets. A
/// server without such a setting would refuse it, and decides itself where nothing was asked, or where the word is
/// nobody's.
#[test]
fn a_model_gets_the_nearest_word_or_budget_that_it_has_and_that_leaves_room() {
    type Row = (Api, Api, String, Map<String, Value>, Map<String, Value>);
    for (caller, upstream, model, more, expected) in testing::rows::<Row>("efforts") {
        let path = Direction::path(caller, upstream);
        assert_eq!(sent(path, &model, &more), expected, "{model} {more:?}");
    }
    let forced = json!({ "reasoning_effort": "high", "tool_choice": "required", "tools": [{ "type": "function", "function": { "name": "f" } }] });
    let forced = forced.as_object().unwrap();
    let sent = sent(&[ChatToMessages], "claude-sonnet-4-5", forced);
    assert_eq!(sent.get("thinking"), None, "a tool must be called");
}
