//! Images and files of a user's message, both ways.

use serde_json::{Value, json};

use super::{
    error::TranslateError,
    wire::{CHAT, MESSAGES, given, invalid, string, unsayable},
};

/// A chat content part as an Anthropic block; `None` for a text of blanks alone.
pub(super) fn block(field: &str, part: &Value) -> Result<Option<Value>, TranslateError> {
    if let Value::String(text) = part {
        return Ok(text_block(text));
    }
    let mut block = match part["type"].as_str() {
        Some("text") => match text_block(string(&format!("{field}.text"), &part["text"])?) {
            Some(block) => block,
            None => return Ok(None),
        },
        Some("refusal") => {
            match text_block(string(&format!("{field}.refusal"), &part["refusal"])?) {
                Some(block) => block,
                None => return Ok(None),
            }
        }
        Some("image_url") => image_block(field, &part["image_url"])?,
        Some("file") => document_block(field, &part["file"])?,
        Some(_) => {
            let kind = format!("{field}.type");
            let allowed = "\"text\", \"image_url\" and \"file\"";
            return Err(unsayable(kind, &part["type"], MESSAGES, allowed));
        }
        None => return Err(invalid(format!("{field}.type"), &part["type"], "a string")),
    };
    if let Some(cache) = part.get("cache_control").and_then(given) {
        block["cache_control"] = cache.clone();
    }
    Ok(Some(block))
}

/// A text block, but for a text of blanks alone: Anthropic refuses those.
pub(super) fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

/// An Anthropic text, image or document block as a chat content part.
pub(super) fn part(field: &str, block: &Value) -> Result<Value, TranslateError> {
    match block["type"].as_str() {
        Some("text") => {
            let text = string(&format!("{field}.text"), &block["text"])?;
            Ok(json!({ "type": "text", "text": text }))
        }
        Some("image") => {
            let url = source_url(&format!("{field}.source"), &block["source"])?;
            Ok(json!({ "type": "image_url", "image_url": { "url": url } }))
        }
        Some("document") => document_part(field, block),
        Some(_) => {
            let kind = format!("{field}.type");
            let allowed = "\"text\", \"image\", \"document\", \"tool_use\", \"tool_result\" and \"thinking\", each in its place";
            Err(unsayable(kind, &block["type"], CHAT, allowed))
        }
        None => Err(invalid(format!("{field}.type"), &block["type"], "a string")),
    }
}

fn image_block(field: &str, image: &Value) -> Result<Value, TranslateError> {
    let field = format!("{field}.image_url.url");
    // Some clients write the address itself in the place of the object.
    let url = if image.is_string() {
        image
    } else {
        &image["url"]
    };
    let text = string(&field, url)?;
    let is_web = |url: &str| url.starts_with("https://") || url.starts_with("http://");
    match data_url(text) {
        Some((media_type, data)) if media_type.starts_with("image/") => Ok(json!({
            "type": "image",
            "source": { "type": "base64", "media_type": media_type, "data": data },
        })),
        None if is_web(text) => Ok(json!({
            "type": "image",
            "source": { "type": "url", "url": text },
        })),
        Some(_) | None => {
            let must = "an http(s) address or \"data:image/..;base64,..\"";
            Err(invalid(field, url, must))
        }
    }
}

fn document_block(field: &str, file: &Value) -> Result<Value, TranslateError> {
    if let Some(id) = file.get("file_id").and_then(given) {
        let allowed = "the file itself as \"file_data\"";
        return Err(unsayable(
            format!("{field}.file.file_id"),
            id,
            MESSAGES,
            allowed,
        ));
    }
    let field = format!("{field}.file.file_data");
    let data = &file["file_data"];
    let Some(("application/pdf", pdf)) = data_url(string(&field, data)?) else {
        let allowed = "\"data:application/pdf;base64,..\"";
        return Err(unsayable(field, data, MESSAGES, allowed));
    };
    let mut block = json!({
        "type": "document",
        "source": { "type": "base64", "media_type": "application/pdf", "data": pdf },
    });
    if let Some(name) = file.get("filename").and_then(given) {
        block["title"] = name.clone();
    }
    Ok(block)
}

fn document_part(field: &str, block: &Value) -> Result<Value, TranslateError> {
    let source = &block["source"];
    let field = format!("{field}.source");
    match source["type"].as_str() {
        Some("text") => {
            let text = string(&format!("{field}.data"), &source["data"])?;
            Ok(json!({ "type": "text", "text": text }))
        }
        Some("base64") => {
            let name = block["title"].as_str().unwrap_or("document.pdf");
            let data = source_url(&field, source)?;
            let file = json!({ "filename": name, "file_data": data });
            Ok(json!({ "type": "file", "file": file }))
        }
        Some(_) | None => {
            let allowed = "\"text\" and \"base64\"";
            let kind = format!("{field}.type");
            Err(unsayable(kind, &source["type"], CHAT, allowed))
        }
    }
}

/// The address of a `source`: its own, or its bytes as a `data:` address.
fn source_url(field: &str, source: &Value) -> Result<String, TranslateError> {
    match source["type"].as_str() {
        Some("url") => string(&format!("{field}.url"), &source["url"]).map(str::to_owned),
        Some("base64") => {
            let media_type = string(&format!("{field}.media_type"), &source["media_type"])?;
            let data = string(&format!("{field}.data"), &source["data"])?;
            Ok(format!("data:{media_type};base64,{data}"))
        }
        Some(_) | None => {
            let allowed = "\"base64\" and \"url\"";
            let kind = format!("{field}.type");
            Err(unsayable(kind, &source["type"], CHAT, allowed))
        }
    }
}

/// Media type and base64 text of a `data:` address.
fn data_url(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?;
    // Parameters, as in `image/png;charset=utf-8`, say nothing about bytes.
    Some((media_type.split(';').next().unwrap_or(media_type), data))
}
