//! Checks whether an agent can use a reply: JSON alone, a tool call, a whole file.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::calls::{Type, fit, only_call, parameters};

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
