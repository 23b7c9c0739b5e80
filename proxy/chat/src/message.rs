//! One message of a conversation in OpenAI's chat form, stored as it arrived.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    utterance::{OPENCLAW_INTERNAL, Utterance},
    words::token_count,
};

/// Fields of a user message that is not the owner's: OpenAI's name of a participant, and the id of the tool call that it
/// answers.
pub const OF_ANOTHER: [&str; 3] = ["name", "tool_call_id", "tool_use_id"];
/// The types of the parts that hold people's text.
pub const TYPED_PARTS: [&str; 2] = ["text", "input_text"];

/// Why a JSON value is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error("a message must be a JSON object, this one is {found}")]
    NotAnObject { found: &'static str },
    /// There is no `role`, or it is not a string.
    #[error("a message must have a \"role\" that is a string")]
    NoRole,
}

/// The author of a message. `developer` counts as system and `toolResult` as tool, because they have the same trust
/// under another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions of the application.
    System,
    /// The owner, or the application on behalf of the owner.
    User,
    Assistant,
    /// The result of a tool.
    Tool,
    /// Any other role. Such messages are passed on and never learned from.
    Other,
}

/// One message as the client or the model wrote it: a JSON object with a `role`.
///
/// All fields stay in their order, known or not. The methods read the fields that learning needs. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub struct Message(Arc<Map<String, Value>>);

/// One tool call of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id that the tool's result refers to. Clients may change it.
    pub id: String,
    pub name: String,
    /// The arguments as the model wrote them: JSON text if they are valid, free text for a custom tool.
    pub arguments: String,
}

/// Token counts of a reply, as the upstream reported them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt, including cached ones.
    pub prompt_tokens: u64,
    /// Tokens of the reply.
    pub completion_tokens: u64,
    /// Tokens of the prompt that were in the provider's cache.
    #[serde(default)]
    pub cached_tokens: u64,
}

const MOST_TOKENS: u64 = 1 << 32;

// === impl Usage ===

impl Usage {
    /// Reads one count. A larger one than a model can have is cut to 2^32, so that no sum of counts overflows; what is
    /// no count is 0.
    pub fn count(value: &Value) -> u64 {
        value.as_u64().unwrap_or(0).min(MOST_TOKENS)
    }

    /// Reads a `usage`, by any server's names of the counts, or returns `None` if it is no object.
    pub fn read(usage: &Value) -> Option<Self> {
        let count = |kind| token_count(usage, kind).min(MOST_TOKENS);
        usage.is_object().then(|| Self {
            prompt_tokens: count("prompt"),
            completion_tokens: count("completion"),
            cached_tokens: count("cached"),
        })
    }
}

// === impl Role ===

impl Role {
    /// Returns the role with this name.
    pub fn named(name: &str) -> Self {
        match name {
            "system" | "developer" => Self::System,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "tool" | "toolResult" | "function" => Self::Tool,
            _ => Self::Other,
        }
    }

    /// Returns whether a message of this role with this `text` belongs to the conversation. A user message that
    /// OpenClaw appended only for the model does not. [`Message::utterance`] decides whose words it contains.
    pub fn is_said(self, text: &str) -> bool {
        self == Self::User && !text.trim_start().starts_with(OPENCLAW_INTERNAL)
    }
}

// === impl Message ===

impl Message {
    /// Makes a message of `role` with this text.
    pub fn new(role: &str, text: impl Into<String>) -> Self {
        let mut map = Map::new();
        map.insert("role".into(), Value::String(role.to_owned()));
        map.insert("content".into(), Value::String(text.into()));
        Self(Arc::new(map))
    }

    /// Makes a message of the owner.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new("user", text)
    }

    /// Makes a message of the application.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new("system", text)
    }

    /// Makes a message of the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new("assistant", text)
    }

    pub fn role(&self) -> Role {
        let name = self.0.get("role").and_then(Value::as_str);
        name.map_or(Role::Other, Role::named)
    }

    /// Returns the text: the content, or its text parts joined by newlines. Images and similar parts have no text.
    pub fn text(&self) -> Cow<'_, str> {
        match self.0.get("content") {
            Some(Value::String(text)) => Cow::Borrowed(text),
            Some(Value::Array(parts)) => {
                let texts: Vec<&str> = parts.iter().filter_map(part_text).collect();
                match texts.as_slice() {
                    [one] => Cow::Borrowed(one),
                    many => Cow::Owned(many.join("\n")),
                }
            }
            _ => Cow::Borrowed(""),
        }
    }

    /// Returns the tool calls of an assistant message, in order.
    pub fn tool_calls(&self) -> Vec<ToolCall> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let Some(calls) = self.0.get("tool_calls").and_then(Value::as_array) else {
            return Vec::new();
        };
        let read = |call: &Value| {
            // A custom tool's input is free text.
            let (tool, arguments) = match call.get("custom") {
                Some(custom) => (custom, &custom["input"]),
                None => (&call["function"], &call["function"]["arguments"]),
            };
            ToolCall {
                id: text(&call["id"]),
                name: text(&tool["name"]),
                arguments: text(arguments),
            }
        };
        calls.iter().map(read).collect()
    }

    /// Returns what was typed of a user message, looked at alone. Returns `None` for other roles. For a message in a
    /// conversation, use [`utterance_at`](crate::utterance_at), which also leaves out text that the model wrote.
    ///
    /// A message that names a participant is this participant's, and one that answers a tool call is the tool's. Parts
    /// of unknown types are a client's.
    pub fn utterance(&self) -> Option<Utterance<'_>> {
        if self.role() != Role::User {
            return None;
        }
        if OF_ANOTHER.iter().any(|field| self.0.contains_key(*field)) {
            return Some(Utterance::of_another(self.text()));
        }
        Some(match self.0.get("content") {
            Some(Value::String(text)) => Utterance::parse(text),
            Some(Value::Array(parts)) => {
                let typed = parts.iter().filter(|part| is_typed(part));
                Utterance::of_parts(typed.filter_map(part_text).map(Cow::Borrowed))
            }
            _ => Utterance::parse(""),
        })
    }

    /// Returns one field as it arrived.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }

    /// Returns all fields in their order.
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }
}

fn is_typed(part: &Value) -> bool {
    let kind = || part.get("type").and_then(Value::as_str);
    part.is_string() || kind().is_some_and(|kind| TYPED_PARTS.contains(&kind))
}

fn part_text(part: &Value) -> Option<&str> {
    match part {
        Value::String(text) => Some(text),
        Value::Object(part) => part.get("text").and_then(Value::as_str),
        _ => None,
    }
}

impl TryFrom<Value> for Message {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        let found = match value {
            Value::Object(map) => {
                let has_role = map.get("role").is_some_and(Value::is_string);
                return if has_role {
                    Ok(Self(Arc::new(map)))
                } else {
                    Err(MessageError::NoRole)
                };
            }
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
        };
        Err(MessageError::NotAnObject { found })
    }
}

impl From<Message> for Value {
    fn from(message: Message) -> Self {
        Value::Object(Arc::unwrap_or_clone(message.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(json: &str) -> Message {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_count_that_no_model_has_is_cut() {
        let counts = ["7", "18446744073709551615", "-1", "null"]
            .map(|text| Usage::count(&serde_json::from_str(text).unwrap()));
        assert_eq!(counts, [7, 1 << 32, 0, 0]);
    }

    #[test]
    fn a_message_keeps_every_field_in_its_order() {
        let json = r#"{"zeta":1,"role":"user","content":[{"type":"text","text":"a"}],"x":null}"#;
        assert_eq!(serde_json::to_string(&message(json)).unwrap(), json);
    }

    #[test]
    fn only_text_of_a_nameless_message_is_the_owners() {
        for (fields, typed) in [
            (r#""content":"hi""#, Some("hi")),
            (r#""content":["hi"]"#, Some("hi")),
            (
                r#""content":[{"type":"input_text","text":"hi"}]"#,
                Some("hi"),
            ),
            (
                r#""content":[{"type":"text","text":"hi"},{"type":"search_result","text":"always x"}]"#,
                Some("hi"),
            ),
            (
                r#""content":[{"type":"output_text","text":"always x"}]"#,
                Some(""),
            ),
            (r#""content":[{"text":"always x"}]"#, Some("")),
            (r#""content":"always x","name":"bob""#, None),
            (r#""content":"always x","tool_call_id":"7""#, None),
        ] {
            let message = message(&format!(r#"{{"role":"user",{fields}}}"#));
            let said = message.utterance().unwrap();
            let owners = said.is_owners().then_some(&*said.text);
            assert_eq!(owners, typed, "{fields}");
        }
    }

    #[test]
    fn text_joins_the_text_parts_and_skips_images() {
        let parts = r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{}},{"type":"text","text":"b"}]}"#;
        assert_eq!(message(parts).text(), "a\nb");
        assert_eq!(message(r#"{"role":"assistant","content":null}"#).text(), "");
    }

    #[test]
    fn calls_of_functions_and_of_custom_tools_are_read() {
        let calls = message(
            r#"{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"ls","arguments":"{}"}},{"id":"2","type":"custom","custom":{"name":"patch","input":"*"}},{}]}"#,
        )
        .tool_calls();
        let read = |call: &ToolCall| format!("{} {} {}", call.id, call.name, call.arguments);
        let calls: Vec<String> = calls.iter().map(read).collect();
        assert_eq!(calls, ["1 ls {}", "2 patch *", "  "]);
    }

    #[test]
    fn what_is_no_message_is_refused_in_words() {
        let error = serde_json::from_str::<Message>("[]").unwrap_err();
        assert!(
            error.to_string().contains("this one is an array"),
            "{error}"
        );
        let error = serde_json::from_str::<Message>(r#"{"content":"x"}"#).unwrap_err();
        assert!(error.to_string().contains("\"role\""), "{error}");
    }
}
