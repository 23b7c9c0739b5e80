//! One message of a conversation, in OpenAI's chat shape, kept as it came.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value};

/// The beginning of the message that OpenClaw appends for the model and no person wrote.
const OPENCLAW_INTERNAL: &str = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>";

/// Why a JSON value is no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not an object.
    #[error("a message must be a JSON object, this one is {found}")]
    NotAnObject {
        /// What it is instead.
        found: &'static str,
    },
    /// No `role`, or one that is no string.
    #[error("a message must have a \"role\" that is a string")]
    NoRole,
}

/// Who speaks. `developer` counts as system and `toolResult` as tool: the same trust, another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions of the application.
    System,
    /// The owner, or the application in the owner's place.
    User,
    /// The model.
    Assistant,
    /// What a tool returned.
    Tool,
    /// Any other role: passed on, never learned from.
    Other,
}

/// One message as the client or the model wrote it: a JSON object with a `role`.
///
/// All fields stay, in their order, known or not; the methods read what learning needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Message(Map<String, Value>);

/// One call that the model asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id that the tool's result refers to; clients may rewrite it.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// The arguments as the model wrote them: JSON text, if it did well; of a custom tool, free text.
    pub arguments: String,
}

/// What a reply cost, in tokens, as the upstream counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt_tokens: u64,
    /// Tokens of the reply.
    pub completion_tokens: u64,
    /// Tokens of the prompt that came from the provider's cache.
    #[serde(default)]
    pub cached_tokens: u64,
}

/// The hash of a conversation up to and including one message: who said what, in what order.
///
/// Over user and tool messages (role and normalised text); system, developer and synthetic messages
/// are left out, assistants are counted but not compared, since clients rewrite them. So a replay of
/// the same conversation has the same hash, whatever was injected or re-serialised on the way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChainHash(pub [u8; 32]);

// === impl Role ===

impl Role {
    /// The role of that name.
    pub fn named(name: &str) -> Self {
        match name {
            "system" | "developer" => Self::System,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "tool" | "toolResult" | "function" => Self::Tool,
            _ => Self::Other,
        }
    }

    /// Whether a person wrote a message of this role that says `text`: a user message that no agent
    /// framework put there for the model. Its first words tell.
    pub fn is_owners(self, text: &str) -> bool {
        self == Self::User && !text.trim_start().starts_with(OPENCLAW_INTERNAL)
    }
}

// === impl Message ===

impl Message {
    /// A message of `role` that says `text`.
    pub fn new(role: &str, text: impl Into<String>) -> Self {
        let mut map = Map::new();
        map.insert("role".into(), Value::String(role.to_owned()));
        map.insert("content".into(), Value::String(text.into()));
        Self(map)
    }

    /// A message of the owner.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new("user", text)
    }

    /// A message of the application.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new("system", text)
    }

    /// A message of the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new("assistant", text)
    }

    /// Who speaks.
    pub fn role(&self) -> Role {
        let name = self.0.get("role").and_then(Value::as_str);
        name.map_or(Role::Other, Role::named)
    }

    /// The text: the content, or the text parts of it, joined by newlines. Images and the like have none.
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

    /// The calls that an assistant's message asks for, in order.
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

    /// Whether a person wrote it: a user message that no agent framework put there for the model.
    pub fn is_owners(&self) -> bool {
        self.role().is_owners(&self.text())
    }

    /// One field as it came.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }

    /// All fields, in their order.
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }
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
                    Ok(Self(map))
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
        Value::Object(message.0)
    }
}

// === impl ChainHash ===

impl ChainHash {
    /// The hash of a conversation in which nothing was said yet, for one agent.
    pub fn start(agent: &crate::AgentId) -> Self {
        Self(*blake3::hash(agent.as_str().as_bytes()).as_bytes())
    }

    /// The hash after one more message. Messages that do not count leave it as it is.
    #[must_use]
    pub fn then(self, message: &Message) -> Self {
        match message.role() {
            role @ (Role::User | Role::Tool) => self.then_said(role, &message.text()),
            role => self.then_said(role, ""),
        }
    }

    /// The hash after one more message, of which only the role and the text are at hand. The text of
    /// an assistant or a system message does not count.
    #[must_use]
    pub fn then_said(self, role: Role, text: &str) -> Self {
        let (tag, text): (u8, &str) = match role {
            Role::User if role.is_owners(text) => (1, text),
            Role::Tool => (2, text),
            Role::Assistant => (3, ""),
            Role::User | Role::System | Role::Other => return self,
        };
        // In one piece: the hash of many small ones takes several times as long.
        let mut said = Vec::with_capacity(self.0.len() + 2 + text.len());
        said.extend_from_slice(&self.0);
        said.push(tag);
        // Normalised: clients trim and re-wrap what they replay.
        let mut say = |word: &[u8]| {
            said.extend_from_slice(word);
            said.push(b' ');
        };
        if text.is_ascii() {
            // What is white space among the first 128 letters; twice as fast as letter by letter.
            let words = text.as_bytes().split(|b| matches!(b, 9..=13 | b' '));
            words.filter(|word| !word.is_empty()).for_each(say);
        } else {
            text.split_whitespace()
                .for_each(|word| say(word.as_bytes()));
        }
        Self(*blake3::hash(&said).as_bytes())
    }

    /// The hash after each message in turn; the last is that of the whole conversation.
    pub fn chain(agent: &crate::AgentId, messages: &[Message]) -> Vec<Self> {
        let step = |hash: &mut Self, message: &Message| {
            *hash = hash.then(message);
            Some(*hash)
        };
        messages.iter().scan(Self::start(agent), step).collect()
    }
}

/// As 64 hexadecimal digits.
impl Serialize for ChainHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl<'de> Deserialize<'de> for ChainHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = blake3::Hash::from_hex(&text).map_err(D::Error::custom)?;
        Ok(Self(*hash.as_bytes()))
    }
}

impl fmt::Debug for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self.0[..6] {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AgentId;

    fn message(json: &str) -> Message {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_message_keeps_every_field_in_its_order() {
        let json = r#"{"zeta":1,"role":"user","content":[{"type":"text","text":"a"}],"x":null}"#;
        assert_eq!(serde_json::to_string(&message(json)).unwrap(), json);
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

    #[test]
    fn the_chain_ignores_what_clients_rewrite_and_no_more() {
        let agent = AgentId::default_agent();
        let last = |messages: &[Message]| *ChainHash::chain(&agent, messages).last().unwrap();
        let said = [
            Message::system("a"),
            Message::user("hi  there"),
            Message::assistant("x"),
        ];
        let replayed = [Message::user("hi there "), Message::assistant("y")];
        assert_eq!(last(&said), last(&replayed));
        let every_blank: String = (0..128).map(char::from).collect();
        let words = every_blank
            .split_whitespace()
            .collect::<Vec<_>>()
            .join("\u{a0}");
        assert_eq!(
            last(&[Message::user(every_blank)]),
            last(&[Message::user(words)]),
            "read as ASCII and letter by letter"
        );
        let synthetic = Message::user(format!("{OPENCLAW_INTERNAL}\nfacts"));
        assert_eq!(last(&said), last(&[&replayed[..], &[synthetic]].concat()));
        assert_ne!(
            last(&said),
            last(&[Message::user("hi there!"), Message::assistant("x")])
        );
        assert_ne!(last(&said), last(&said[..2]));
        let text = serde_json::to_string(&last(&said)).unwrap();
        assert_eq!(text.len(), 66, "{text}");
        assert_eq!(
            serde_json::from_str::<ChainHash>(&text).unwrap(),
            last(&said)
        );
        assert!(serde_json::from_str::<ChainHash>("\"12\"").is_err());
    }
}
