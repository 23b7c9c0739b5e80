//! Translates a chat request to an Anthropic request: its conversation.

use std::mem;

use serde_json::{Map, Value, json};

use super::{
    at::{MESSAGES, PathValue},
    content::{Place, as_text, block, text_block},
    error::TranslateError,
    fit::fit,
    names, params,
    wire::{filled, input},
};

#[derive(Default)]
struct Conversation {
    system: Vec<Value>,
    turns: Vec<SideTurn>,
}

/// Consecutive messages of one side, because Anthropic requires alternating roles.
#[derive(Default)]
struct SideTurn {
    role: &'static str,
    /// Results of tools, which must come first.
    results: Vec<Value>,
    blocks: Vec<Value>,
}

pub(super) fn request(body: &Value) -> Result<Value, TranslateError> {
    PathValue::new("the body", body).object()?;
    let messages = PathValue::top(body, "messages");
    let given: Vec<PathValue<'_>> = messages.items()?.collect();
    let last_reply = given.iter().rposition(|it| it["role"] == "assistant");
    let mut conversation = Conversation::default();
    for (n, message) in given.iter().enumerate() {
        let place = match last_reply {
            Some(last) if n <= last => Place::History,
            Some(_) | None => Place::New,
        };
        conversation.add(message, place)?;
    }
    if conversation.turns.is_empty() {
        // Some requests have only a system message.
        let system = mem::take(&mut conversation.system);
        conversation.push_blocks("user", system);
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
    let turn = |mut turn: SideTurn| {
        turn.results.append(&mut turn.blocks);
        json!({ "role": turn.role, "content": turn.results })
    };
    let turns: Vec<Value> = conversation.turns.into_iter().map(turn).collect();
    out.insert("messages".into(), turns.into());
    fit(&mut out);
    Ok(Value::Object(out))
}

// === impl Conversation ===

impl Conversation {
    fn add(&mut self, message: &PathValue<'_>, place: Place) -> Result<(), TranslateError> {
        message.object()?;
        let content = message.field("content");
        match message["role"].as_str() {
            Some("system" | "developer") => self.system.extend(texts_alone(&content)?),
            Some("user") => self.push_blocks("user", blocks(&content, place)?),
            Some("assistant") => self.push_blocks("assistant", assistant(message)?),
            Some("tool") => match message["tool_call_id"].as_str() {
                Some(id) => {
                    let result = tool_result(id, &content)?;
                    self.turn("user").results.push(result);
                }
                None => self.push_blocks("user", said(message)),
            },
            // This is a result from before there were `tool_calls`.
            Some("function") => self.push_blocks("user", said(message)),
            _ => {
                let allowed = "\"system\", \"developer\", \"user\", \"assistant\" and \"tool\"";
                return Err(message.field("role").unsayable_kind(MESSAGES, allowed));
            }
        }
        Ok(())
    }

    /// An empty message is left out, so it cannot come between two messages of the other side.
    fn push_blocks(&mut self, role: &'static str, blocks: Vec<Value>) {
        if !blocks.is_empty() {
            self.turn(role).blocks.extend(blocks);
        }
    }

    fn turn(&mut self, role: &'static str) -> &mut SideTurn {
        if self.turns.last().is_none_or(|last| last.role != role) {
            let turn = SideTurn {
                role,
                ..SideTurn::default()
            };
            self.turns.push(turn);
        }
        let last = self.turns.len() - 1;
        &mut self.turns[last]
    }
}

fn blocks(content: &PathValue<'_>, place: Place) -> Result<Vec<Value>, TranslateError> {
    if content.is_string() {
        return Ok(block(content, place)?.into_iter().collect());
    }
    let blocks = content.items()?.map(|part| block(&part, place));
    blocks.filter_map(Result::transpose).collect()
}

fn texts_alone(content: &PathValue<'_>) -> Result<Vec<Value>, TranslateError> {
    let blocks = blocks(content, Place::New)?;
    match blocks.iter().find(|block| block["type"] != "text") {
        Some(block) => Err(content
            .with(&block["type"])
            .unsayable(MESSAGES, "text alone")),
        None => Ok(blocks),
    }
}

fn said(value: &Value) -> Vec<Value> {
    text_block(&as_text(value)).into_iter().collect()
}

fn assistant(message: &PathValue<'_>) -> Result<Vec<Value>, TranslateError> {
    let mut out = signed_thinking(message);
    for block in blocks(&message.field("content"), Place::History)? {
        match block["type"].as_str() {
            Some("text") => out.push(block),
            Some(_) | None => out.extend(said(&block)),
        }
    }
    out.extend(filled(&message["refusal"]).and_then(text_block));
    if let Some(call) = message.field("function_call").given() {
        out.extend(said(&json!({ "function_call": call.value })));
    }
    for call in message.field("tool_calls").items()? {
        match tool_use(&call) {
            Ok(call) => out.push(call),
            Err(_) => out.extend(said(&call)),
        }
    }
    Ok(out)
}

fn signed_thinking(message: &Value) -> Vec<Value> {
    let is_signed = |block: &&Value| match block["type"].as_str() {
        Some("thinking") => filled(&block["signature"]).is_some() && block["thinking"].is_string(),
        Some("redacted_thinking") => block["data"].is_string(),
        Some(_) | None => false,
    };
    let blocks = message["thinking_blocks"].as_array().into_iter().flatten();
    blocks.filter(is_signed).cloned().collect()
}

fn tool_use(call: &PathValue<'_>) -> Result<Value, TranslateError> {
    let id = call.field("id").string()?;
    if call["type"] == "custom" {
        let name = call.field("custom").field("name").string()?;
        let input = json!({ "input": call["custom"]["input"] });
        return Ok(call_block(id, name, &input));
    }
    let function = call.field("function");
    let name = function.field("name").string()?;
    let input = match &function["arguments"] {
        Value::Null => json!({}),
        // Some clients leave out the quoting.
        Value::Object(input) => Value::Object(input.clone()),
        _ => input(function.field("arguments").string()?),
    };
    Ok(call_block(id, name, &input))
}

fn call_block(id: &str, name: &str, input: &Value) -> Value {
    json!({ "type": "tool_use", "id": names::messages_id(id), "name": names::tool(name), "input": input })
}

fn tool_result(id: &str, content: &PathValue<'_>) -> Result<Value, TranslateError> {
    let mut out = json!({ "type": "tool_result", "tool_use_id": names::messages_id(id) });
    let content = blocks(content, Place::History)?;
    match content.as_slice() {
        [] => {}
        [one] if one["type"] == "text" && one.get("cache_control").is_none() => {
            out["content"] = one["text"].clone();
        }
        _ => out["content"] = content.into(),
    }
    Ok(out)
}
