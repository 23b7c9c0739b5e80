//! Converts the parts of a content to chat form.

use serde_json::{Map, Value, json};

/// Converts a list of parts to chat content: a string for a single text, else a list. A model's text is not a user's, so
/// its part stays unchanged.
pub(super) fn content(parts: &[Value]) -> Value {
    let is_models = |item: &Value| item["type"] == "output_text";
    match parts {
        [one] if is_text(one) && !is_models(one) => one["text"].clone(),
        parts => {
            let parts = parts
                .iter()
                .map(|it| if is_models(it) { it.clone() } else { part(it) });
            parts.collect()
        }
    }
}

/// Converts a part. A part that chat completions do not have stays unchanged.
pub(super) fn part(part: &Value) -> Value {
    let said = match part["type"].as_str() {
        _ if is_text(part) => Some(json!({ "type": "text", "text": part["text"] })),
        Some("input_image" | "computer_screenshot") => image(part),
        Some("input_file") => Some(json!({
            "type": "file",
            "file": some(part, &["file_id", "filename", "file_data", "file_url"]),
        })),
        _ => None,
    };
    said.unwrap_or_else(|| part.clone())
}

fn is_text(part: &Value) -> bool {
    let kind = part["type"].as_str();
    matches!(kind, Some("input_text" | "output_text" | "text")) && part["text"].is_string()
}

fn image(part: &Value) -> Option<Value> {
    let url = part["image_url"].as_str()?;
    let mut image = Map::new();
    image.insert("url".into(), url.into());
    image.extend(some(part, &["detail"]));
    Some(json!({ "type": "image_url", "image_url": image }))
}

pub(super) fn some(object: &Value, names: &[&str]) -> Map<String, Value> {
    let field = |name: &&str| {
        let value = object.get(*name).filter(|value| !value.is_null())?;
        Some(((*name).to_owned(), value.clone()))
    };
    names.iter().filter_map(field).collect()
}
