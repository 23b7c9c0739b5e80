//! Parts of the replies and requests of all APIs.

use serde_json::Value;

/// Returns whether a value is a list with a matching element.
pub(super) fn any(list: &Value, is_so: impl Fn(&Value) -> bool) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(is_so))
}

/// Returns one server-sent event with a name.
pub(super) fn named_event(data: &Value) -> String {
    let name = data["type"].as_str().expect("events have a type");
    format!("event: {name}\ndata: {data}\n\n")
}
