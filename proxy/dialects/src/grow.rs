//! Objects that come piece by piece.

use serde_json::{Map, Value};

/// What was said first stands; nothing, or an empty text, was not said.
pub(crate) fn keep_first(map: &mut Map<String, Value>, name: String, value: Value) {
    let is_nothing = |value: &Value| value.is_null() || value.as_str() == Some("");
    if map.get(&name).is_none_or(is_nothing) {
        map.insert(name, value);
    }
}

/// Texts and lists grow; of anything else the latest counts, but `null` never undoes what was said.
pub(crate) fn append(map: &mut Map<String, Value>, name: String, value: Value) {
    match (map.get_mut(&name), value) {
        (Some(Value::String(known)), Value::String(more)) => known.push_str(&more),
        (Some(Value::Array(known)), Value::Array(more)) => known.extend(more),
        (Some(_), Value::Null) => {}
        (_, value) => {
            map.insert(name, value);
        }
    }
}
