//! Tool definitions and the choice among them, both ways.

use serde_json::{Map, Value, json};

use super::{
    error::TranslateError,
    wire::{CHAT, MESSAGES, copy, invalid, list, object, string, unsayable},
};

// === towards messages ===

pub(super) fn to_messages(tools: &Value) -> Result<Vec<Value>, TranslateError> {
    let tool = |(n, tool)| to_messages_one(&format!("tools[{n}]"), tool);
    list("tools", tools)?.iter().enumerate().map(tool).collect()
}

fn to_messages_one(field: &str, tool: &Value) -> Result<Value, TranslateError> {
    let kind = &tool["type"];
    if kind != "function" {
        return Err(unsayable(
            format!("{field}.type"),
            kind,
            MESSAGES,
            "\"function\"",
        ));
    }
    let name = format!("{field}.function");
    let function = &tool["function"];
    object(&name, function)?;
    let mut out = Map::new();
    let called = string(&format!("{name}.name"), &function["name"])?;
    out.insert("name".into(), called.into());
    copy(function, "description", &mut out, "description");
    let schema = input_schema(&format!("{name}.parameters"), &function["parameters"])?;
    out.insert("input_schema".into(), schema);
    copy(function, "strict", &mut out, "strict");
    copy(tool, "cache_control", &mut out, "cache_control");
    Ok(Value::Object(out))
}

/// Arguments are an object, and Anthropic wants that said; others take a schema that does not.
fn input_schema(field: &str, parameters: &Value) -> Result<Value, TranslateError> {
    let mut schema = match parameters {
        Value::Null => Map::from_iter([("properties".to_owned(), json!({}))]),
        parameters => object(field, parameters)?.clone(),
    };
    schema.entry("type").or_insert_with(|| "object".into());
    Ok(Value::Object(schema))
}

/// `tool_choice` and `parallel_tool_calls` as Anthropic's `tool_choice`.
pub(super) fn choice_to_messages(body: &Value) -> Result<Option<Value>, TranslateError> {
    let mut choice = match &body["tool_choice"] {
        Value::Null => None,
        choice => Some(choice_to_messages_one(choice)?),
    };
    let has_tools = body["tools"].as_array().is_some_and(|t| !t.is_empty());
    let one_at_a_time = body["parallel_tool_calls"].as_bool() == Some(false);
    if one_at_a_time && has_tools {
        let choice = choice.get_or_insert_with(|| json!({ "type": "auto" }));
        if choice["type"] != "none" {
            choice["disable_parallel_tool_use"] = true.into();
        }
    }
    // Without tools Anthropic refuses a choice, and these two then say nothing.
    let says_nothing = |choice: &Value| choice["type"] == "auto" || choice["type"] == "none";
    Ok(choice.filter(|choice| has_tools || !says_nothing(choice)))
}

fn choice_to_messages_one(choice: &Value) -> Result<Value, TranslateError> {
    let kind = choice.as_str().or_else(|| choice["type"].as_str());
    match kind {
        Some("auto") => Ok(json!({ "type": "auto" })),
        Some("none") => Ok(json!({ "type": "none" })),
        Some("required") => Ok(json!({ "type": "any" })),
        Some("function") => {
            let name = string("tool_choice.function.name", &choice["function"]["name"])?;
            Ok(json!({ "type": "tool", "name": name }))
        }
        Some(_) => {
            let allowed = "\"auto\", \"none\", \"required\" and one function";
            Err(unsayable("tool_choice", choice, MESSAGES, allowed))
        }
        None => Err(invalid(
            "tool_choice",
            choice,
            "a string or an object with a type",
        )),
    }
}

// === towards chat ===

pub(super) fn to_chat(tools: &Value) -> Result<Vec<Value>, TranslateError> {
    let tool = |(n, tool)| to_chat_one(&format!("tools[{n}]"), tool);
    list("tools", tools)?.iter().enumerate().map(tool).collect()
}

fn to_chat_one(field: &str, tool: &Value) -> Result<Value, TranslateError> {
    object(field, tool)?;
    let kind = &tool["type"];
    if !kind.is_null() && kind != "custom" {
        return Err(unsayable(format!("{field}.type"), kind, CHAT, "\"custom\""));
    }
    let mut function = Map::new();
    let called = string(&format!("{field}.name"), &tool["name"])?;
    function.insert("name".into(), called.into());
    copy(tool, "description", &mut function, "description");
    copy(tool, "input_schema", &mut function, "parameters");
    copy(tool, "strict", &mut function, "strict");
    Ok(json!({ "type": "function", "function": function }))
}

/// Anthropic's `tool_choice` as chat's, and `parallel_tool_calls: false` where it asks for that.
pub(super) fn choice_to_chat(
    choice: &Value,
    out: &mut Map<String, Value>,
) -> Result<(), TranslateError> {
    if choice.is_null() {
        return Ok(());
    }
    object("tool_choice", choice)?;
    let translated = match choice["type"].as_str() {
        Some("auto") => "auto".into(),
        Some("none") => "none".into(),
        Some("any") => "required".into(),
        Some("tool") => {
            let name = string("tool_choice.name", &choice["name"])?;
            json!({ "type": "function", "function": { "name": name } })
        }
        Some(_) | None => {
            let allowed = "\"auto\", \"any\", \"tool\" and \"none\"";
            return Err(unsayable(
                "tool_choice.type",
                &choice["type"],
                CHAT,
                allowed,
            ));
        }
    };
    out.insert("tool_choice".into(), translated);
    if choice["disable_parallel_tool_use"].as_bool() == Some(true) {
        out.insert("parallel_tool_calls".into(), false.into());
    }
    Ok(())
}
