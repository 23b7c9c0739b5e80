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
    const BODIES: &str = include_str!("stored/cases.txt");

    #[test]
    fn what_names_something_stored_is_found_and_nothing_else() {
        for line in BODIES.lines() {
            let (body, expected) = line.split_once("=>").unwrap();
            let body: Value = serde_json::from_str(body).unwrap();
            let found = named_in(&body, "previous_response_id");
            assert_eq!(found.unwrap_or_default(), expected.trim(), "{body}");
        }
        let chat = serde_json::json!({"previous_response_id": "r"});
        assert_eq!(named_in(&chat, "").unwrap(), "previous_response_id");
    }
}
