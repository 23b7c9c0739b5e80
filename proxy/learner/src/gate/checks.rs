//! Checks whether an agent can use a reply: JSON alone, a tool call, a whole file.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

const CALL: (&str, &str) = ("<tool_call>", "</tool_call>");
/// The marks at the beginning of a call in text, which differ by model family.
const CALL_MARKS: [&str; 4] = [CALL.0, "[TOOL_CALLS]", "<|python_tag|>", "<function="];
const FENCE: &str = "```";

/// What a reply must be.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ProbeCheck {
    /// A JSON object with at least these keys, alone or in one code fence.
    Json { keys: BTreeMap<String, Type> },
    /// One call of this tool, with arguments that fit its parameters.
    Call { name: String },
    /// One code block that contains each of these texts.
    File {
        contains: Vec<String>,
        /// Whether the block is JSON.
        #[serde(default)]
        json: bool,
    },
}

/// The type of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Type {
    String,
    Number,
    Integer,
    Boolean,
    Object,
    Array,
    /// A list of strings that is not empty.
    Strings,
}

// === impl ProbeCheck ===

impl ProbeCheck {
    /// Returns whether a reply passes; `tools` are the tools of the request.
    pub(super) fn passes(&self, reply: &str, tools: &[Value]) -> bool {
        match self {
            Self::Json { keys } => {
                let json = serde_json::from_str::<Map<String, Value>>(unfenced(reply));
                let has = |object: &Map<String, Value>| {
                    let mut keys = keys.iter();
                    keys.all(|(key, is)| object.get(key).is_some_and(|value| is.is_of(value)))
                };
                json.is_ok_and(|object| has(&object))
            }
            Self::Call { name } => match only_call(reply) {
                Some(call) => {
                    call.name == *name
                        && parameters(tools, name).is_some_and(|it| fit(&call.arguments, it))
                }
                None => false,
            },
            Self::File { contains, json } => match only_block(reply) {
                Some(block) => {
                    let reads = || serde_json::from_str::<Value>(&block).is_ok();
                    contains.iter().all(|text| block.contains(text.as_str())) && (!json || reads())
                }
                None => false,
            },
        }
    }
}

// === impl Type ===

impl Type {
    fn is_of(self, value: &Value) -> bool {
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

/// A call in the form in which models write it.
#[derive(Debug, Deserialize)]
struct ParsedCall {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

/// Returns whether a reply contains a sign of a call.
pub(super) fn mentions_call(reply: &str) -> bool {
    CALL_MARKS.iter().any(|mark| reply.contains(mark)) || reply.contains(CALL.1)
}

/// Returns whether a reply contains a call that cannot be carried out: unclosed, not JSON, or of a tool that is not in
/// `tools`.
pub(super) fn has_broken_call(reply: &str, tools: &[Value]) -> bool {
    let mut pieces = reply.split(CALL.0);
    let before = pieces.next().unwrap_or_default();
    let is_broken = |piece: &str| {
        let Some((call, rest)) = piece.split_once(CALL.1) else {
            return true;
        };
        let call = serde_json::from_str::<ParsedCall>(call.trim());
        let fits = |call: ParsedCall| {
            parameters(tools, &call.name).is_some_and(|it| fit(&call.arguments, it))
        };
        rest.contains(CALL.1) || !call.is_ok_and(fits)
    };
    before.contains(CALL.1) || pieces.any(is_broken)
}

/// Returns the call of a reply that has exactly one.
fn only_call(reply: &str) -> Option<ParsedCall> {
    let (_, after) = reply.split_once(CALL.0)?;
    let (call, rest) = after.split_once(CALL.1)?;
    let is_alone = !rest.contains(CALL.0);
    serde_json::from_str(call.trim()).ok().filter(|_| is_alone)
}

/// Returns the parameters of the tool of this name.
fn parameters<'a>(tools: &'a [Value], name: &str) -> Option<&'a Value> {
    let mut functions = tools.iter().map(|tool| &tool["function"]);
    let found = functions.find(|function| function["name"] == name)?;
    Some(&found["parameters"])
}

/// Returns whether arguments fit: all required ones, each of its type, and no others.
fn fit(arguments: &Map<String, Value>, parameters: &Value) -> bool {
    let required = parameters["required"].as_array();
    let mut required = required.into_iter().flatten().filter_map(Value::as_str);
    let of_type = |(key, value): (&String, &Value)| {
        let schema = &parameters["properties"][key.as_str()];
        let named = Type::deserialize(&schema["type"]);
        schema.is_object() && named.is_ok_and(|named| named.is_of(value))
    };
    required.all(|key| arguments.contains_key(key)) && arguments.iter().all(of_type)
}

/// Returns a text without the spaces around it, and without one code fence around all of it.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text
        .strip_prefix(FENCE)
        .and_then(|rest| rest.strip_suffix(FENCE));
    // The first line belongs to the fence, and has the language's name.
    let inner = inner.and_then(|inner| inner.split_once('\n'));
    inner.map_or(text, |(_, inside)| inside.trim())
}

/// Returns the code block of a reply that has exactly one, opened and closed.
fn only_block(reply: &str) -> Option<String> {
    let mut blocks = Vec::new();
    let mut open: Option<Vec<&str>> = None;
    for line in reply.lines() {
        let is_fence = line.trim_start().starts_with(FENCE);
        match (is_fence, &mut open) {
            (true, Some(lines)) => {
                blocks.push(lines.join("\n"));
                open = None;
            }
            (true, None) => open = Some(Vec::new()),
            (false, Some(lines)) => lines.push(line),
            (false, None) => {}
        }
    }
    let is_one = open.is_none() && blocks.len() == 1;
    blocks.pop().filter(|_| is_one)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(json: Value) -> ProbeCheck {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn json_alone_with_its_keys_passes() {
        let check = check(
            json!({"kind": "json", "keys": {"name": "string", "age": "integer", "likes": "strings"}}),
        );
        let good = r#"{"name": "Tom", "age": 9, "likes": ["tea"], "more": null}"#;
        for reply in [
            good.to_owned(),
            format!(" {good}\n"),
            format!("```json\n{good}\n```"),
        ] {
            assert!(check.passes(&reply, &[]), "{reply}");
        }
        for reply in [
            r#"{"name": "Tom", "age": 9}"#,
            r#"{"name": "Tom", "age": 9.5, "likes": ["tea"]}"#,
            r#"{"name": "Tom", "age": "9", "likes": ["tea"]}"#,
            r#"{"name": "Tom", "age": 9, "likes": []}"#,
            r#"{"name": "Tom", "age": 9, "likes": [1]}"#,
            r#"Here: {"name": "Tom", "age": 9, "likes": ["tea"]}"#,
            "[]",
            "Hello!",
            "",
            "```",
        ] {
            assert!(!check.passes(reply, &[]), "{reply}");
        }
    }

    #[test]
    fn one_call_that_fits_its_tool_passes() {
        let check = check(json!({"kind": "call", "name": "set_timer"}));
        let parameters = json!({"type": "object", "properties": {"minutes": {"type": "integer"}, "label": {"type": "string"}}, "required": ["minutes"]});
        let tools = [
            json!({"type": "function", "function": {"name": "set_timer", "parameters": parameters}}),
        ];
        let call = |body: &str| format!("<tool_call>{body}</tool_call>");
        let good = call(r#"{"name": "set_timer", "arguments": {"minutes": 5}}"#);
        assert!(check.passes(&good, &tools));
        assert!(check.passes(&format!("I set it.\n{good}"), &tools));
        assert!(!check.passes(&good, &[]), "a tool that is not there");
        for reply in [
            format!("{good}{good}"),
            call(r#"{"name": "other", "arguments": {"minutes": 5}}"#),
            call(r#"{"name": "set_timer", "arguments": {}}"#),
            call(r#"{"name": "set_timer", "arguments": {"minutes": "5"}}"#),
            call(r#"{"name": "set_timer", "arguments": {"minutes": 5, "x": 1}}"#),
            call("{"),
            good.replace("</tool_call>", ""),
        ] {
            assert!(!check.passes(&reply, &tools), "{reply}");
        }
    }

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
    fn one_whole_file_passes() {
        let check = check(json!({"kind": "file", "contains": ["\"a\"", "1"], "json": true}));
        assert!(check.passes("Here it is:\n```json\n{\"a\": 1}\n```\nDone.", &[]));
        for reply in [
            "{\"a\": 1}",
            "```\n{\"a\": 1}",
            "```\n{\"a\": 2}\n```",
            "```\n{\"a\": 1,}\n```",
            "```\n{\"a\": 1}\n```\n```\n{\"a\": 1}\n```",
        ] {
            assert!(!check.passes(reply, &[]), "{reply}");
        }
    }
}
