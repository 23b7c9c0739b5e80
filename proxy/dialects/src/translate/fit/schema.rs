//! Changes JSON schemas so that Anthropic accepts them.

use serde_json::{Map, Value};

/// Keywords that Anthropic's constrained replies do not support. It refuses a schema with one of them.
const UNKNOWN: [&str; 9] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
    "uniqueItems",
];

/// Changes a tool's schema: no alternatives at its top, because all arguments of a call are one object. The fields of
/// all alternatives stay.
pub(super) fn of_tool(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    for name in ["anyOf", "oneOf", "allOf"] {
        let Some(Value::Array(alternatives)) = schema.shift_remove(name) else {
            continue;
        };
        let known = schema
            .entry("properties")
            .or_insert_with(|| Map::new().into());
        for mut alternative in alternatives {
            let fields = alternative["properties"]
                .as_object_mut()
                .map(std::mem::take);
            for (field, value) in fields.into_iter().flatten() {
                if let Some(known) = known.as_object_mut() {
                    known.entry(field).or_insert(value);
                }
            }
        }
    }
}

/// Changes a reply's schema: objects allow no other fields, and numbers and lengths have no bounds.
pub(super) fn of_reply(schema: &mut Value) {
    match schema {
        Value::Array(list) => list.iter_mut().for_each(of_reply),
        Value::Object(fields) => {
            if fields.get("type").is_some_and(|kind| kind == "object") {
                fields.insert("additionalProperties".into(), false.into());
            }
            fields.retain(|name, value| value.is_object() || !UNKNOWN.contains(&name.as_str()));
            // Names of fields are not keywords of the schema, but their values are schemas.
            fields.values_mut().for_each(of_reply);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
