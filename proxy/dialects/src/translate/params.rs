//! Translates everything of a request except its conversation, in both directions.

use serde_json::{Map, Value, json};

use super::{
    at::{CHAT, MESSAGES, PathValue},
    effort::{self, DEFAULT_MAX_TOKENS},
    error::TranslateError,
    fit::version,
    stops, tools,
    wire::{copy, filled, given, reasons},
};

/// OpenAI's limit for `user`, in characters.
const MAX_USER: usize = 64;

/// Returns whether a field's value says nothing.
pub(super) type Says = fn(&Value) -> bool;

// === towards messages ===

pub(super) fn to_messages(
    body: &Value,
    out: &mut Map<String, Value>,
) -> Result<(), TranslateError> {
    refuse_unsayable(body)?;
    copy(body, "model", out, "model");
    let limits = ["max_completion_tokens", "max_tokens"];
    let limit = limits.iter().find_map(|name| given(&body[*name]));
    let has_limit = limit.is_some();
    let limit = limit.cloned().unwrap_or_else(|| DEFAULT_MAX_TOKENS.into());
    out.insert("max_tokens".into(), limit);
    if let Some(temperature) = given(&body["temperature"]) {
        let hot = temperature.as_f64().is_some_and(|t| t > 1.0);
        let clamped = if hot { json!(1.0) } else { temperature.clone() };
        out.insert("temperature".into(), clamped);
    }
    for name in ["top_p", "top_k", "stream", "thinking"] {
        copy(body, name, out, name);
    }
    stops_to_messages(&PathValue::top(body, "stop"), out)?;
    user_to_messages(body, out);
    format_to_messages(&PathValue::top(body, "response_format"), out)?;
    let version = body["model"].as_str().and_then(version);
    effort::to_messages(body, version, has_limit, out);
    let tools = PathValue::top(body, "tools");
    let tools = tools.items()?.map(|tool| tools::to_messages(&tool));
    let tools = tools.collect::<Result<Vec<_>, _>>()?;
    if !tools.is_empty() {
        out.insert("tools".into(), tools.into());
    }
    if let Some(choice) = tools::choice_to_messages(body)? {
        out.insert("tool_choice".into(), choice);
    }
    Ok(())
}

fn refuse_unsayable(body: &Value) -> Result<(), TranslateError> {
    let is_zero = |value: &Value| value.as_f64() == Some(0.0);
    let is_false = |value: &Value| value.as_bool() == Some(false);
    let is_empty = |value: &Value| {
        value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
    };
    let is_one = |value: &Value| value.as_u64() == Some(1);
    let is_text = |value: &Value| *value == json!(["text"]);
    let fields: [(&str, Says, &str); 10] = [
        ("n", is_one, "1"),
        ("frequency_penalty", is_zero, "0"),
        ("presence_penalty", is_zero, "0"),
        ("logprobs", is_false, "false"),
        ("logit_bias", is_empty, "{}"),
        ("modalities", is_text, "[\"text\"]"),
        ("audio", is_empty, "none"),
        ("functions", is_empty, "\"tools\" instead"),
        ("function_call", is_empty, "\"tool_choice\" instead"),
        ("web_search_options", Value::is_null, "none"),
    ];
    refuse(body, MESSAGES, &fields)
}

/// Refuses fields of which each says something: its name, a value that says nothing, and the words for that.
pub(super) fn refuse(
    body: &Value,
    api: &'static str,
    fields: &[(&'static str, Says, &'static str)],
) -> Result<(), TranslateError> {
    for (field, says_nothing, allowed) in fields {
        let value = PathValue::top(body, field).given();
        if let Some(value) = value.filter(|value| !says_nothing(value)) {
            return Err(value.unsayable(api, allowed));
        }
    }
    Ok(())
}

fn stops_to_messages(
    stop: &PathValue<'_>,
    out: &mut Map<String, Value>,
) -> Result<(), TranslateError> {
    let stops = match stop.value {
        one @ Value::String(_) => std::slice::from_ref(one),
        _ => stop.list()?,
    };
    for one in stops {
        stop.with(one).string()?;
    }
    // The proxy watches for the others.
    let stops = stops.iter().filter(|stop| stops::suits_messages(stop));
    let stops: Vec<Value> = stops.cloned().collect();
    if !stops.is_empty() {
        out.insert("stop_sequences".into(), stops.into());
    }
    Ok(())
}

fn user_to_messages(body: &Value, out: &mut Map<String, Value>) {
    let user = filled(&body["user"]).or_else(|| filled(&body["safety_identifier"]));
    // Anthropic refuses a request whose user is an e-mail address.
    if let Some(user) = user.filter(|user| !user.contains('@')) {
        out.insert("metadata".into(), json!({ "user_id": user }));
    }
}

fn format_to_messages(
    format: &PathValue<'_>,
    out: &mut Map<String, Value>,
) -> Result<(), TranslateError> {
    match format["type"].as_str() {
        None if format.is_null() => {}
        Some("text") => {}
        Some("json_schema") => {
            let schema = format.field("json_schema").field("schema").object()?;
            let format = json!({ "type": "json_schema", "schema": schema });
            out.insert("output_config".into(), json!({ "format": format }));
        }
        Some(_) | None => {
            let kind = format.field("type");
            return Err(kind.unsayable(MESSAGES, "\"text\" and \"json_schema\""));
        }
    }
    Ok(())
}

// === towards chat ===

pub(super) fn to_chat(body: &Value, out: &mut Map<String, Value>) -> Result<(), TranslateError> {
    let servers = PathValue::top(body, "mcp_servers").given();
    if let Some(servers) = servers.filter(|servers| *servers.value != json!([])) {
        return Err(servers.unsayable(CHAT, "none"));
    }
    let user = filled(&body["metadata"]["user_id"]);
    shared_to_chat(
        body,
        "max_tokens",
        &["temperature", "top_p", "top_k"],
        user,
        out,
    );
    // The proxy watches for the others.
    let stops = PathValue::top(body, "stop_sequences").list()?;
    let (stops, _) = stops::for_chat(&body["model"], stops);
    if !stops.is_empty() {
        out.insert("stop".into(), stops.into());
    }
    format_to_chat(&PathValue::top(body, "output_config").field("format"), out)?;
    let tools = PathValue::top(body, "tools");
    let tools = tools.items()?.filter(|tool| !tools::is_search(tool));
    let tools = tools.map(|tool| tools::to_chat(&tool));
    let tools = tools.collect::<Result<Vec<_>, _>>()?;
    if !tools.is_empty() {
        out.insert("tools".into(), tools.into());
        tools::choice_to_chat(body, out)?;
    }
    effort::to_chat(body, out);
    Ok(())
}

pub(super) fn shared_to_chat(
    body: &Value,
    limit: &str,
    samplers: &[&str],
    user: Option<&str>,
    out: &mut Map<String, Value>,
) {
    // OpenAI's reasoning models refuse sampling parameters and `max_tokens`. Most other servers know no other name.
    if reasons(&body["model"]) {
        copy(body, limit, out, "max_completion_tokens");
    } else {
        copy(body, limit, out, "max_tokens");
        for name in samplers {
            copy(body, name, out, name);
        }
    }
    copy(body, "stream", out, "stream");
    if body["stream"].as_bool() == Some(true) {
        // Without it no usage is sent, and both other APIs' streams always have it.
        out.insert("stream_options".into(), json!({ "include_usage": true }));
    }
    if let Some(user) = user.filter(|user| user.chars().count() <= MAX_USER) {
        out.insert("user".into(), user.into());
    }
}

fn format_to_chat(
    format: &PathValue<'_>,
    out: &mut Map<String, Value>,
) -> Result<(), TranslateError> {
    match format["type"].as_str() {
        None if format.is_null() => {}
        Some("json_schema") => {
            let schema = json!({ "name": "reply", "strict": true, "schema": format["schema"] });
            let format = json!({ "type": "json_schema", "json_schema": schema });
            out.insert("response_format".into(), format);
        }
        Some(_) | None => {
            return Err(format.field("type").unsayable(CHAT, "\"json_schema\""));
        }
    }
    Ok(())
}
