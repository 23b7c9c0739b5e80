//! Translates tool definitions and `tool_choice` in both directions.

use serde_json::{Map, Value, json};

use super::{
    at::{CHAT, MESSAGES, PathValue},
    error::TranslateError,
    names,
    wire::copy,
};

// === towards messages ===

pub(super) fn to_messages(tool: &PathValue<'_>) -> Result<Value, TranslateError> {
    let kind = tool.field("type");
    if *kind.value != "function" {
        return Err(kind.unsayable(MESSAGES, "\"function\""));
    }
    let function = tool.field("function");
    function.object()?;
    let mut out = Map::new();
    let name = function.field("name").string()?;
    out.insert("name".into(), names::tool(name).into());
    copy(&function, "description", &mut out, "description");
    let schema = input_schema(&function.field("parameters"))?;
    out.insert("input_schema".into(), schema);
    copy(&function, "strict", &mut out, "strict");
    copy(tool, "cache_control", &mut out, "cache_control");
    Ok(Value::Object(out))
}

/// Returns the schema with the type `object`, which Anthropic requires and others do not.
fn input_schema(parameters: &PathValue<'_>) -> Result<Value, TranslateError> {
    let mut schema = match parameters.value {
        Value::Null => Map::from_iter([("properties".to_owned(), json!({}))]),
        _ => parameters.object()?.clone(),
    };
    schema.entry("type").or_insert_with(|| "object".into());
    Ok(Value::Object(schema))
}

pub(super) fn choice_to_messages(body: &Value) -> Result<Option<Value>, TranslateError> {
    let choice = PathValue::top(body, "tool_choice").given();
    let mut choice = choice.map(|choice| one_choice(&choice)).transpose()?;
    let has_tools = body["tools"].as_array().is_some_and(|t| !t.is_empty());
    let one_at_a_time = body["parallel_tool_calls"].as_bool() == Some(false);
    if one_at_a_time && has_tools {
        let choice = choice.get_or_insert_with(|| json!({ "type": "auto" }));
        if choice["type"] != "none" {
            choice["disable_parallel_tool_use"] = true.into();
        }
    }
    // Without tools Anthropic refuses a choice, and these two have no effect then.
    let says_nothing = |choice: &Value| choice["type"] == "auto" || choice["type"] == "none";
    Ok(choice.filter(|choice| has_tools || !says_nothing(choice)))
}

fn one_choice(choice: &PathValue<'_>) -> Result<Value, TranslateError> {
    let kind = choice.as_str().or_else(|| choice["type"].as_str());
    match kind {
        Some("auto") => Ok(json!({ "type": "auto" })),
        Some("none") => Ok(json!({ "type": "none" })),
        Some("required") => Ok(json!({ "type": "any" })),
        Some("function") => {
            let name = choice.field("function").field("name").string()?;
            Ok(json!({ "type": "tool", "name": names::tool(name) }))
        }
        Some(_) => {
            let allowed = "\"auto\", \"none\", \"required\" and one function";
            Err(choice.unsayable(MESSAGES, allowed))
        }
        None => Err(choice.invalid("a string or an object with a type")),
    }
}

// === towards chat ===

/// Returns whether it is the search for tools that are not listed. Here all are listed.
pub(super) fn is_search(tool: &Value) -> bool {
    let kind = tool["type"].as_str().unwrap_or_default();
    kind.starts_with("tool_search_tool_")
}

pub(super) fn to_chat(tool: &PathValue<'_>) -> Result<Value, TranslateError> {
    tool.object()?;
    let kind = tool.field("type").given();
    if let Some(kind) = kind.filter(|kind| *kind.value != "custom") {
        return Err(kind.unsayable(CHAT, "\"custom\""));
    }
    let mut function = Map::new();
    let name = tool.field("name").string()?;
    function.insert("name".into(), names::tool(name).into());
    copy(tool, "description", &mut function, "description");
    if let Some(schema) = tool["input_schema"].as_object() {
        let mut schema = schema.clone();
        // OpenAI refuses an object without it.
        schema.entry("properties").or_insert_with(|| json!({}));
        function.insert("parameters".into(), schema.into());
    }
    copy(tool, "strict", &mut function, "strict");
    Ok(json!({ "type": "function", "function": function }))
}

pub(super) fn choice_to_chat(
    body: &Value,
    out: &mut Map<String, Value>,
) -> Result<(), TranslateError> {
    let Some(choice) = PathValue::top(body, "tool_choice").given() else {
        return Ok(());
    };
    choice.object()?;
    let translated = match choice["type"].as_str() {
        Some("auto") => "auto".into(),
        Some("none") => "none".into(),
        Some("any") => "required".into(),
        Some("tool") => {
            let name = choice.field("name").string()?;
            json!({ "type": "function", "function": { "name": names::tool(name) } })
        }
        Some(_) | None => {
            let allowed = "\"auto\", \"any\", \"tool\" and \"none\"";
            return Err(choice.field("type").unsayable(CHAT, allowed));
        }
    };
    out.insert("tool_choice".into(), translated);
    if choice["disable_parallel_tool_use"].as_bool() == Some(true) {
        out.insert("parallel_tool_calls".into(), false.into());
    }
    Ok(())
}
