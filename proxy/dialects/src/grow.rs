//! Objects that arrive in pieces.

use serde_json::{Map, Value};

/// Keeps the first value. Nothing, or an empty text, does not count as a value.
pub(crate) fn keep_first(map: &mut Map<String, Value>, name: String, value: Value) {
    let is_nothing = |value: &Value| value.is_null() || value.as_str() == Some("");
    if map.get(&name).is_none_or(is_nothing) {
        map.insert(name, value);
    }
}

/// Appends to texts and lists. Any other value is replaced, except by `null`.
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
