//! A chat request as an Anthropic one: its conversation.

use serde_json::{Map, Value, json};

use super::{
    at::{At, MESSAGES},
    content::{block, text_block},
    error::TranslateError,
    params,
    wire::{filled, input},
};

/// System blocks, and the turns of user and assistant one after the other.
#[derive(Default)]
struct Conversation {
    system: Vec<Value>,
    turns: Vec<Turn>,
}

/// What one side says until the other does: Anthropic wants the two to alternate.
#[derive(Default)]
struct Turn {
    role: &'static str,
    /// Results of tools, which must stand before all else.
    results: Vec<Value>,
    blocks: Vec<Value>,
}

pub(super) fn request(body: &Value) -> Result<Value, TranslateError> {
    At::new("the body", body).object()?;
    let messages = At::top(body, "messages");
    let mut conversation = Conversation::default();
    for message in messages.items()? {
        conversation.add(&message)?;
    }
    if conversation.turns.is_empty() {
        let allowed = "at least one message of a user that says something";
        return Err(messages.unsayable(MESSAGES, allowed));
    }
    let mut out = Map::new();
    params::to_messages(body, &mut out)?;
    if !conversation.system.is_empty() {
        out.insert("system".into(), conversation.system.into());
    }
    let turn = |mut turn: Turn| {
        turn.results.append(&mut turn.blocks);
        json!({ "role": turn.role, "content": turn.results })
    };
    let turns: Vec<Value> = conversation.turns.into_iter().map(turn).collect();
    out.insert("messages".into(), turns.into());
    Ok(Value::Object(out))
}

// === impl Conversation ===

impl Conversation {
    fn add(&mut self, message: &At<'_>) -> Result<(), TranslateError> {
        message.object()?;
        let content = message.field("content");
        match message["role"].as_str() {
            Some("system" | "developer") => self.system.extend(texts_alone(&content)?),
            Some("user") => self.push_blocks("user", blocks(&content)?),
            Some("assistant") => self.push_blocks("assistant", assistant(message)?),
            Some("tool") => {
                let result = tool_result(message)?;
                self.turn("user").results.push(result);
            }
            _ => {
                let allowed = "\"system\", \"developer\", \"user\", \"assistant\" and \"tool\"";
                return Err(message.field("role").unsayable_kind(MESSAGES, allowed));
            }
        }
        Ok(())
    }

    /// A message of nothing is none, and so cannot stand between two of the other side.
    fn push_blocks(&mut self, role: &'static str, blocks: Vec<Value>) {
        if !blocks.is_empty() {
            self.turn(role).blocks.extend(blocks);
        }
    }

    /// The turn under way, if it is `role`'s, else a new one.
    fn turn(&mut self, role: &'static str) -> &mut Turn {
        if self.turns.last().is_none_or(|last| last.role != role) {
            let turn = Turn {
                role,
                ..Turn::default()
            };
            self.turns.push(turn);
        }
        let last = self.turns.len() - 1;
        &mut self.turns[last]
    }
}

/// A string, or a list of parts, as blocks.
fn blocks(content: &At<'_>) -> Result<Vec<Value>, TranslateError> {
    if content.is_string() {
        return Ok(block(content)?.into_iter().collect());
    }
    let blocks = content.items()?.map(|part| block(&part));
    blocks.filter_map(Result::transpose).collect()
}

fn texts_alone(content: &At<'_>) -> Result<Vec<Value>, TranslateError> {
    let blocks = blocks(content)?;
    match blocks.iter().find(|block| block["type"] != "text") {
        Some(block) => Err(content
            .with(&block["type"])
            .unsayable(MESSAGES, "text alone")),
        None => Ok(blocks),
    }
}

/// Thinking, text and calls, in the order in which Anthropic's models say them.
fn assistant(message: &At<'_>) -> Result<Vec<Value>, TranslateError> {
    if let Some(call) = message.field("function_call").given() {
        return Err(call.unsayable(MESSAGES, "\"tool_calls\""));
    }
    let mut out = signed_thinking(message);
    out.extend(texts_alone(&message.field("content"))?);
    out.extend(filled(&message["refusal"]).and_then(text_block));
    for call in message.field("tool_calls").items()? {
        out.push(tool_use(&call)?);
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

fn tool_use(call: &At<'_>) -> Result<Value, TranslateError> {
    let kind = call.field("type").given();
    if let Some(kind) = kind.filter(|kind| *kind.value != "function") {
        return Err(kind.unsayable(MESSAGES, "\"function\""));
    }
    let id = call.field("id").string()?;
    let function = call.field("function");
    let name = function.field("name").string()?;
    let input = match &function["arguments"] {
        Value::Null => json!({}),
        // Some clients leave out the quoting.
        Value::Object(input) => Value::Object(input.clone()),
        _ => input(function.field("arguments").string()?),
    };
    Ok(json!({ "type": "tool_use", "id": tool_id(id), "name": name, "input": input }))
}

fn tool_result(message: &At<'_>) -> Result<Value, TranslateError> {
    let id = message.field("tool_call_id").string()?;
    let mut out = json!({ "type": "tool_result", "tool_use_id": tool_id(id) });
    let content = blocks(&message.field("content"))?;
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
