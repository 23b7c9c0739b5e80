//! Tool calls in the text that a model writes.

use metaclaw_chat::Message;
use serde::Deserialize;
use serde_json::{Map, Value, json};

const CALL: (&str, &str) = ("<tool_call>", "</tool_call>");
/// The marks at the beginning of a call in text, which differ by model family.
const CALL_MARKS: [&str; 4] = [CALL.0, "[TOOL_CALLS]", "<|python_tag|>", "<function="];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Type {
    String,
    Number,
    Integer,
    Boolean,
    Object,
    Array,
    /// A list of strings that is not empty.
    Strings,
}

// === impl Type ===

impl Type {
    pub(crate) fn is_of(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Number => value.is_number(),
            Self::Integer => value.is_i64() || value.is_u64(),
            Self::Boolean => value.is_boolean(),
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::Strings => {
                let list = value.as_array();
                list.is_some_and(|list| !list.is_empty() && list.iter().all(Value::is_string))
            }
        }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct ParsedCall {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) arguments: Map<String, Value>,
}

pub(crate) fn mentions_call(reply: &str) -> bool {
    CALL_MARKS.iter().any(|mark| reply.contains(mark)) || reply.contains(CALL.1)
}

/// Returns whether a reply contains a call that cannot be carried out: unclosed, not JSON, or of a tool that is not in
/// `tools`.
pub(crate) fn has_broken_call(reply: &str, tools: &[Value]) -> bool {
    let mut pieces = reply.split(CALL.0);
    let before = pieces.next().unwrap_or_default();
    let is_broken = |piece: &str| {
        let Some((call, rest)) = piece.split_once(CALL.1) else {
            return true;
        };
        let call = serde_json::from_str::<ParsedCall>(call.trim());
        let fits = |call: ParsedCall| {
            parameters(tools, &call.name).is_some_and(|schema| fit(&call.arguments, schema))
        };
        rest.contains(CALL.1) || !call.is_ok_and(fits)
    };
    before.contains(CALL.1) || pieces.any(is_broken)
}

pub(crate) fn only_call(reply: &str) -> Option<ParsedCall> {
    let (_, after) = reply.split_once(CALL.0)?;
    let (call, rest) = after.split_once(CALL.1)?;
    let is_alone = !rest.contains(CALL.0);
    serde_json::from_str(call.trim()).ok().filter(|_| is_alone)
}

pub(crate) fn parameters<'a>(tools: &'a [Value], name: &str) -> Option<&'a Value> {
    let mut functions = tools.iter().map(|tool| &tool["function"]);
    let found = functions.find(|function| function["name"] == name)?;
    Some(&found["parameters"])
}

/// Returns whether arguments fit: all required ones, each of its type if the schema names one, and no others if the schema
/// names any.
pub(crate) fn fit(arguments: &Map<String, Value>, parameters: &Value) -> bool {
    let required = parameters["required"].as_array();
    let mut required = required.into_iter().flatten().filter_map(Value::as_str);
    let properties = parameters["properties"].as_object();
    let of_type = |(key, value): (&String, &Value)| {
        let Some(properties) = properties else {
            return true;
        };
        // Other forms of a type, as a list of types, are not checked.
        let named = |schema: &Value| Type::deserialize(&schema["type"]).ok();
        let schema = properties.get(key);
        schema.is_some_and(|schema| named(schema).is_none_or(|named| named.is_of(value)))
    };
    required.all(|key| arguments.contains_key(key)) && arguments.iter().all(of_type)
}

pub(crate) fn reply_message(reply: &str) -> Message {
    let mut pieces = reply.split(CALL.0);
    let text = pieces.next().unwrap_or_default().trim_end();
    let read = |piece: &str| {
        let (call, _) = piece.split_once(CALL.1)?;
        serde_json::from_str::<ParsedCall>(call.trim()).ok()
    };
    let calls = pieces.filter_map(read).enumerate().map(|(at, call)| {
        let arguments = Value::Object(call.arguments).to_string();
        let function = json!({"name": call.name, "arguments": arguments});
        json!({"id": format!("call_{at}"), "type": "function", "function": function})
    });
    let calls: Vec<Value> = calls.collect();
    let message = json!({"role": "assistant", "content": text, "tool_calls": calls});
    let message = (!calls.is_empty()).then(|| serde_json::from_value(message).ok());
    message
        .flatten()
        .unwrap_or_else(|| Message::assistant(reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_nobody_can_carry_out_is_broken() {
        let parameters = json!({"type": "object", "properties": {"minutes": {"type": "integer"}}, "required": ["minutes"]});
        let tools = [
            json!({"type": "function", "function": {"name": "set_timer", "parameters": parameters}}),
        ];
        let good = r#"<tool_call>{"name": "set_timer", "arguments": {"minutes": 5}}</tool_call>"#;
        for whole in ["", "I set it.", good, &format!("{good}\n{good}")] {
            assert!(!has_broken_call(whole, &tools), "{whole}");
        }
        for broken in [
            good.replace("</tool_call>", ""),
            good.replace("<tool_call>", ""),
            good.replace('5', "\"5\""),
            good.replace("set_timer", "other"),
            format!("{good}<tool_call>"),
            format!("{good}</tool_call>"),
        ] {
            assert!(has_broken_call(&broken, &tools), "{broken}");
        }
        assert!(has_broken_call(good, &[]), "no tool was offered");
    }

    #[test]
    fn what_no_schema_forbids_is_allowed() {
        let parameters = json!({"type": "object", "properties": {"unit": {"enum": ["C", "F"]}, "at": {"type": ["string", "null"]}}});
        let fits = |arguments: Value| fit(arguments.as_object().unwrap(), &parameters);
        assert!(fits(json!({"unit": "C", "at": null})) && fits(json!({})));
        assert!(!fits(json!({"other": 1})));
        assert!(fit(
            json!({"any": 1}).as_object().unwrap(),
            &json!({"type": "object"})
        ));
    }

    #[test]
    fn calls_are_apart_from_the_text() {
        let reply =
            "I look.\n<tool_call>{\"name\": \"ls\", \"arguments\": {\"path\": \"/\"}}</tool_call>";
        let message = reply_message(reply);
        assert_eq!(message.text(), "I look.");
        let call = &message.tool_calls()[0];
        assert_eq!(
            (call.name.as_str(), call.arguments.as_str()),
            ("ls", "{\"path\":\"/\"}")
        );
        let plain = reply_message("It is Paris.");
        assert!(plain.tool_calls().is_empty() && plain.text() == "It is Paris.");
    }
}
