//! Finds names of things in a request body that are stored in the account at the provider: files, conversations, vector
//! stores, containers, prompts and others. The upstream gets the owner's key with the request, so it would use them.

use std::{collections::HashMap, sync::LazyLock};

use metaclaw_chat::words;
use serde_json::Value;

/// The known fields, by their names as [`plain`] writes them, with what the table says of each.
static FIELDS: LazyLock<HashMap<String, &str>> = LazyLock::new(|| {
    let kinds = ["unresolved", "stored", "stored_by_text", "stored_by_id"];
    let names = kinds.map(|kind| words(kind).iter().map(move |name| (plain(name), kind)));
    names.into_iter().flatten().collect()
});

/// The beginnings of texts that name a file, for Alibaba's qwen-long and Moonshot's videos.
const SCHEMES: [&str; 2] = ["fileid://", "ms://"];

/// Returns the path of the first field that names something stored. The top-level field `except` is not checked.
pub(crate) fn named_in(body: &Value, except: &str) -> Option<String> {
    let fields = body.as_object()?.iter();
    let mut read = fields.filter(|(name, _)| *name != except);
    let items = body["input"].as_array().into_iter().flatten();
    // An item of Responses without type and role is a reference, whatever other fields it has.
    let untyped = |item: &Value| item["type"].is_null() && item["role"].is_null() && has_id(item);
    let bare = items.enumerate().find(|(_, item)| untyped(item));
    bare.map(|(index, _)| format!("input[{index}].id"))
        .or_else(|| read.find_map(|(name, value)| named_by(name, value)))
}

/// Returns the path at or below a field. Some fields are skipped, because no provider looks up names there: schemas,
/// and what a reply quoted.
fn named_by(name: &str, value: &Value) -> Option<String> {
    let is_one = is_some(value) && !value.is_object();
    let is_named = match FIELDS.get(&plain(name)).copied() {
        Some("unresolved") => return None,
        Some("stored") => is_one,
        Some("stored_by_text") => is_one && value.is_string() || has_id(value),
        Some(_) => has_id(value),
        None => false,
    };
    if is_named {
        return Some(name.to_owned());
    }
    Some(format!("{name}{}", below(value)?))
}

/// Returns the path below a value, without the value's own name.
fn below(value: &Value) -> Option<String> {
    let kind = plain(value["type"].as_str().unwrap_or_default());
    match value {
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| Some(format!("[{index}]{}", below(item)?)))
        }
        Value::Object(_) if kind == "itemreference" => Some(".id".to_owned()),
        // The provider takes an image without data from its store.
        Value::Object(_) if kind == "imagegenerationcall" && !is_some(&value["result"]) => {
            Some(".id".to_owned())
        }
        // The arguments of a tool call are for the tool, not for the provider.
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| *name != "input" || !kind.ends_with("tooluse"))
            .find_map(|(name, value)| Some(format!(".{}", named_by(name, value)?))),
        Value::String(text) if SCHEMES.iter().any(|scheme| text.starts_with(scheme)) => {
            Some(String::new())
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn has_id(value: &Value) -> bool {
    is_some(&value["id"])
}

fn is_some(value: &Value) -> bool {
    !value.is_null() && *value != "" && value.as_array().is_none_or(|items| !items.is_empty())
}

fn plain(name: &str) -> String {
    name.replace('_', "").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Request bodies, each with the path of what it names, or without one.
    const BODIES: &str = r#"
    {"conversation": "conv_1"} => conversation
    {"conversation": {"id": "conv_1"}} => conversation
    {"prompt": {"id": "pmpt_1", "variables": {}}} => prompt
    {"container": "container_1"} => container
    {"container": {"id": "c", "skills": []}} => container
    {"container": {"skills": [{"type": "custom", "skill_id": "s"}]}} => container.skills[0].skill_id
    {"previousResponseId": "r"} => previousResponseId
    {"extra_body": {"google": {"cached_content": "c"}}} => extra_body.google.cached_content
    {"data_sources": [{"type": "azure_search"}]} => data_sources
    {"input": [{"type": "item_reference", "id": "msg_1"}]} => input[0].id
    {"input": [{"role": "user", "content": "x"}, {"id": "msg_1"}]} => input[1].id
    {"input": [{"id": "msg_1", "type": null, "x": 1}]} => input[0].id
    {"input": [{"type": "image_generation_call", "id": "ig_1", "result": null}]} => input[0].id
    {"input": [{"type": "code_interpreter_call", "id": "c", "container_id": "cntr_1"}]} => input[0].container_id
    {"input": [{"type": "function_call_output", "output": [{"type": "input_file", "file_id": "f"}]}]} => input[0].output[0].file_id
    {"input": [{"role": "user", "content": [{"type": "input_image", "File_ID": "f"}]}]} => input[0].content[0].File_ID
    {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]} => tools[0].vector_store_ids
    {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]} => tools[0].container
    {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["f"]}}]} => tools[0].container.file_ids
    {"tools": [{"type": "mcp", "connector_id": "connector_gmail"}]} => tools[0].connector_id
    {"tools": [{"type": "image_generation", "input_image_mask": {"file_id": "f"}}]} => tools[0].input_image_mask.file_id
    {"messages": [{"content": [{"type": "file", "file": {"file_id": "f"}}]}]} => messages[0].content[0].file.file_id
    {"messages": [{"content": [{"type": "document", "source": {"type": "file", "file_id": "f"}}]}]} => messages[0].content[0].source.file_id
    {"messages": [{"content": [{"type": "container_upload", "file_id": "f"}]}]} => messages[0].content[0].file_id
    {"messages": [{"role": "system", "content": "fileid://file-fe-1"}]} => messages[0].content
    {"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]} => messages[0].audio
    {"type": "tool_use", "input": {"file_id": "f"}} => input.file_id
    {"previous_response_id": "resp_1", "conversation": null, "input": "x"} =>
    {"messages": [{"role": "user", "content": "file_id, see fileid://"}], "container": null} =>
    {"messages": [{"content": [{"type": "file", "file": {"file_data": "data:,x", "filename": "f", "file_id": null}}]}]} =>
    {"messages": [{"content": [{"type": "document", "source": {"type": "base64", "data": "x"}}]}]} =>
    {"messages": [{"content": [{"type": "tool_use", "id": "t", "name": "read", "input": {"file_id": "f"}}]}]} =>
    {"messages": [{"content": [{"type": "text", "text": "x", "citations": [{"file_id": "f"}]}]}]} =>
    {"messages": [{"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{\"file_id\":\"f\"}"}}]}]} =>
    {"audio": {"voice": "alloy", "format": "wav"}, "metadata": {"conversation_id": "c"}} =>
    {"mcp_servers": [{"type": "url", "url": "https://x.example", "authorization_token": "own"}]} =>
    {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": []}}]} =>
    {"tools": [{"name": "f", "input_schema": {"properties": {"file_id": {"default": "f"}}, "required": ["file_id"]}}]} =>
    {"tools": [{"type": "function", "function": {"parameters": {"file_id": "f"}}}]} =>
    {"input": [{"type": "reasoning", "id": "rs_1", "encrypted_content": "x", "summary": []}]} =>
    {"input": [{"type": "message", "id": "m", "role": "assistant", "content": [{"text": "x", "annotations": [{"file_id": "f"}]}]}]} =>
    {"input": [{"type": "image_generation_call", "id": "ig_1", "result": "aGk="}]} =>
    "#;

    #[test]
    fn what_names_something_stored_is_found_and_nothing_else() {
        let lines = BODIES
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty());
        for line in lines {
            let (body, expected) = line.split_once("=>").unwrap();
            let body: Value = serde_json::from_str(body).unwrap();
            let found = named_in(&body, "previous_response_id");
            assert_eq!(found.unwrap_or_default(), expected.trim(), "{body}");
        }
        let chat = serde_json::json!({"previous_response_id": "r"});
        assert_eq!(named_in(&chat, "").unwrap(), "previous_response_id");
    }
}
