//! A chat request as an Anthropic one: its conversation.

use serde_json::{Map, Value, json};

use super::{
    content::{block, text_block},
    error::TranslateError,
    params,
    wire::{MESSAGES, filled, given, input, invalid, list, object, string, unsayable},
};

/// System blocks, and the turns of user and assistant one after the other.
#[derive(Default)]
struct Conversation {
    system: Vec<Value>,
    turns: Vec<Turn>,
}

/// What one side says until the other does: Anthropic wants the two to alternate.
struct Turn {
    role: &'static str,
    /// Results of tools, which must stand before all else.
    results: Vec<Value>,
    blocks: Vec<Value>,
}

pub(super) fn request(body: &Value) -> Result<Value, TranslateError> {
    object("the body", body)?;
    let mut conversation = Conversation::default();
    for (n, message) in list("messages", &body["messages"])?.iter().enumerate() {
        conversation.add(&format!("messages[{n}]"), message)?;
    }
    if conversation.turns.is_empty() {
        let allowed = "at least one message of a user that says something";
        return Err(unsayable("messages", &body["messages"], MESSAGES, allowed));
    }
    let mut out = Map::new();
    params::to_messages(body, &mut out)?;
    if !conversation.system.is_empty() {
        out.insert("system".into(), conversation.system.into());
    }
    let turns: Vec<Value> = conversation.turns.into_iter().map(Value::from).collect();
    out.insert("messages".into(), turns.into());
    Ok(Value::Object(out))
}

// === impl Conversation ===

impl Conversation {
    fn add(&mut self, field: &str, message: &Value) -> Result<(), TranslateError> {
        object(field, message)?;
        let content = format!("{field}.content");
        match message["role"].as_str() {
            Some("system" | "developer") => {
                let blocks = blocks(&content, &message["content"])?;
                only_text(&content, &blocks)?;
                self.system.extend(blocks);
            }
            Some("user") => {
                let blocks = blocks(&content, &message["content"])?;
                self.say("user", blocks);
            }
            Some("assistant") => {
                let said = assistant(field, message)?;
                self.say("assistant", said);
            }
            Some("tool") => {
                let result = tool_result(field, message)?;
                self.turn("user").results.push(result);
            }
            Some(_) => {
                let allowed = "\"system\", \"developer\", \"user\", \"assistant\" and \"tool\"";
                let role = format!("{field}.role");
                return Err(unsayable(role, &message["role"], MESSAGES, allowed));
            }
            None => {
                return Err(invalid(
                    format!("{field}.role"),
                    &message["role"],
                    "a string",
                ));
            }
        }
        Ok(())
    }

    /// A message of nothing is none, and so cannot stand between two of the other side.
    fn say(&mut self, role: &'static str, blocks: Vec<Value>) {
        if !blocks.is_empty() {
            self.turn(role).blocks.extend(blocks);
        }
    }

    /// The turn under way, if it is `role`'s, else a new one.
    fn turn(&mut self, role: &'static str) -> &mut Turn {
        let at = match self.turns.last() {
            Some(last) if last.role == role => self.turns.len() - 1,
            Some(_) | None => {
                self.turns.push(Turn {
                    role,
                    results: Vec::new(),
                    blocks: Vec::new(),
                });
                self.turns.len() - 1
            }
        };
        &mut self.turns[at]
    }
}

// === impl Turn ===

impl From<Turn> for Value {
    fn from(turn: Turn) -> Self {
        let mut content = turn.results;
        content.extend(turn.blocks);
        json!({ "role": turn.role, "content": content })
    }
}

/// A string, or a list of parts, as blocks.
fn blocks(field: &str, content: &Value) -> Result<Vec<Value>, TranslateError> {
    if let Value::String(text) = content {
        return Ok(text_block(text).into_iter().collect());
    }
    let mut out = Vec::new();
    for (n, part) in list(field, content)?.iter().enumerate() {
        out.extend(block(&format!("{field}[{n}]"), part)?);
    }
    Ok(out)
}

fn only_text(field: &str, blocks: &[Value]) -> Result<(), TranslateError> {
    match blocks.iter().find(|block| block["type"] != "text") {
        Some(block) => Err(unsayable(field, &block["type"], MESSAGES, "text alone")),
        None => Ok(()),
    }
}

/// Thinking, text and calls, in the order in which Anthropic's models say them.
fn assistant(field: &str, message: &Value) -> Result<Vec<Value>, TranslateError> {
    if let Some(call) = message.get("function_call").and_then(given) {
        let allowed = "\"tool_calls\"";
        return Err(unsayable(
            format!("{field}.function_call"),
            call,
            MESSAGES,
            allowed,
        ));
    }
    let mut out = signed_thinking(message);
    let content = format!("{field}.content");
    let said = blocks(&content, &message["content"])?;
    only_text(&content, &said)?;
    out.extend(said);
    out.extend(filled(&message["refusal"]).and_then(text_block));
    let name = format!("{field}.tool_calls");
    for (n, call) in list(&name, &message["tool_calls"])?.iter().enumerate() {
        out.push(tool_use(&format!("{name}[{n}]"), call)?);
    }
    Ok(out)
}

/// The `thinking_blocks` of an earlier reply that came from Anthropic, as it signed them.
fn signed_thinking(message: &Value) -> Vec<Value> {
    let is_signed = |block: &&Value| match block["type"].as_str() {
        Some("thinking") => filled(&block["signature"]).is_some() && block["thinking"].is_string(),
        Some("redacted_thinking") => block["data"].is_string(),
        Some(_) | None => false,
    };
    let blocks = message["thinking_blocks"].as_array().into_iter().flatten();
    blocks.filter(is_signed).cloned().collect()
}

fn tool_use(field: &str, call: &Value) -> Result<Value, TranslateError> {
    let kind = &call["type"];
    if !kind.is_null() && kind != "function" {
        return Err(unsayable(
            format!("{field}.type"),
            kind,
            MESSAGES,
            "\"function\"",
        ));
    }
    let id = string(&format!("{field}.id"), &call["id"])?;
    let function = &call["function"];
    let name = string(&format!("{field}.function.name"), &function["name"])?;
    let input = match &function["arguments"] {
        Value::Null => json!({}),
        // Some clients leave out the quoting.
        Value::Object(input) => Value::Object(input.clone()),
        arguments => input(string(&format!("{field}.function.arguments"), arguments)?),
    };
    Ok(json!({ "type": "tool_use", "id": tool_id(id), "name": name, "input": input }))
}

fn tool_result(field: &str, message: &Value) -> Result<Value, TranslateError> {
    let id = string(&format!("{field}.tool_call_id"), &message["tool_call_id"])?;
    let mut out = json!({ "type": "tool_result", "tool_use_id": tool_id(id) });
    let content = blocks(&format!("{field}.content"), &message["content"])?;
    match content.as_slice() {
        [] => {}
        [one] if one["type"] == "text" && one.get("cache_control").is_none() => {
            out["content"] = one["text"].clone();
        }
        _ => out["content"] = content.into(),
    }
    Ok(out)
}

/// Anthropic's ids have only letters, digits, `_` and `-`; those of others, as `functions.exec:0`, have more.
fn tool_id(id: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    id.chars().map(|c| if fits(c) { c } else { '_' }).collect()
}
