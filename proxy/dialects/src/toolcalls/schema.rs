//! The schemas of a request's tools, as far as they distinguish text from other values, because XML has no types.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, value::RawValue};

/// The parameters of all tools, by the tool's name and theirs. `None` is a plain text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schemas(Arc<BTreeMap<String, BTreeMap<String, Option<Takes>>>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// Any text, or null.
    TextOrNull,
    /// Any JSON value.
    Json,
}

// === impl Schemas ===

impl Schemas {
    pub(super) fn from_request(request: &Value) -> Self {
        let tools = request["tools"].as_array().into_iter().flatten();
        let tools = tools.filter_map(|tool| {
            let function = &tool["function"];
            let name = function["name"].as_str()?;
            let properties = function["parameters"]["properties"].as_object()?;
            let typed = properties.iter();
            let typed = typed.map(|(key, schema)| (key.clone(), takes(schema)));
            Some((name.to_owned(), typed.collect()))
        });
        Self(Arc::new(tools.collect()))
    }

    pub(super) fn may_have(&self, tool: &str, parameter: &str) -> bool {
        let known = self.0.get(tool).filter(|known| !known.is_empty());
        known.is_none_or(|known| known.contains_key(parameter))
    }

    /// Returns a parameter's value as JSON text. A value of a wrong type stays text, and the tool reports the error.
    pub(super) fn value(&self, tool: &str, parameter: &str, written: &str) -> String {
        let takes = self
            .0
            .get(tool)
            .and_then(|tool| tool.get(parameter)?.as_ref());
        let word = written.trim();
        let json = match (takes, word) {
            (Some(_), "null" | "None") => Some("null"),
            (None | Some(Takes::TextOrNull), _) => None,
            // Templates are rendered with Python's spelling of these.
            (Some(Takes::Json), "True") => Some("true"),
            (Some(Takes::Json), "False") => Some("false"),
            (Some(Takes::Json), word) => serde_json::from_str::<&RawValue>(word)
                .ok()
                .map(RawValue::get),
        };
        json.map_or_else(|| Value::from(written).to_string(), str::to_owned)
    }
}

/// Returns the values that a schema allows. `None` means only text, which is also the default.
fn takes(schema: &Value) -> Option<Takes> {
    let choices = ["anyOf", "oneOf"].map(|key| schema[key].as_array());
    let choices = choices.into_iter().flatten().flatten();
    let schemas = std::iter::once(schema).chain(choices);
    let types = schemas.flat_map(|schema| match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        name => Vec::from_iter(name.as_str()),
    });
    let types: Vec<&str> = types.collect();
    let has = |name| types.contains(&name);
    match (has("string"), has("null")) {
        (true, true) => Some(Takes::TextOrNull),
        (true, false) => None,
        (false, _) => (!types.is_empty()).then_some(Takes::Json),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_what_its_schema_says() {
        let properties = json!({
            "text": { "type": "string" },
            "maybe": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
            "n": { "type": "integer" },
            "list": { "type": ["array", "null"] },
            "flag": { "oneOf": [{ "type": "boolean" }] },
            "any": {},
        });
        let function = json!({ "name": "f", "parameters": { "properties": properties } });
        let tools = json!({ "tools": [{ "type": "function", "function": function }, 7] });
        let schemas = Schemas::from_request(&tools);
        let cases = [
            ("text", "12", r#""12""#),
            ("text", "null", r#""null""#),
            ("maybe", "null", "null"),
            ("maybe", "true", r#""true""#),
            ("n", " 12345678901234567890123 ", "12345678901234567890123"),
            ("n", "twelve", r#""twelve""#),
            ("list", "[1, {\"a\": \"é\"}]", "[1, {\"a\": \"é\"}]"),
            ("list", "None", "null"),
            ("flag", "True", "true"),
            ("flag", "False", "false"),
            ("any", "1", r#""1""#),
            ("other", "\"a\nb", r#""\"a\nb""#),
        ];
        for (parameter, written, value) in cases {
            assert_eq!(schemas.value("f", parameter, written), value, "{parameter}");
        }
        assert_eq!(schemas.value("g", "n", "1"), r#""1""#);
    }
}
