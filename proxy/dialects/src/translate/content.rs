//! Images and files of a user's message, both ways.

use serde_json::{Value, json};

use super::{
    at::{At, CHAT, MESSAGES},
    error::TranslateError,
    wire::given,
};

/// A chat content part as an Anthropic block; `None` for a text of blanks alone.
pub(super) fn block(part: &At<'_>) -> Result<Option<Value>, TranslateError> {
    let mut block = match part["type"].as_str() {
        _ if part.is_string() => return Ok(text_block(part.string()?)),
        Some(kind @ ("text" | "refusal")) => text_block(part.field(kind).string()?),
        Some("image_url") => Some(image_block(&part.field("image_url"))?),
        Some("file") => Some(document_block(&part.field("file"))?),
        _ => {
            let allowed = "\"text\", \"image_url\" and \"file\"";
            return Err(part.field("type").unsayable_kind(MESSAGES, allowed));
        }
    };
    if let (Some(block), Some(cache)) = (&mut block, given(&part["cache_control"])) {
        block["cache_control"] = cache.clone();
    }
    Ok(block)
}

/// A text block, but for a text of blanks alone: Anthropic refuses those.
pub(super) fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

/// An Anthropic text, image or document block as a chat content part.
pub(super) fn part(block: &At<'_>) -> Result<Value, TranslateError> {
    match block["type"].as_str() {
        Some("text") => {
            let text = block.field("text").string()?;
            Ok(json!({ "type": "text", "text": text }))
        }
        Some("image") => {
            let url = source_url(&block.field("source"))?;
            Ok(json!({ "type": "image_url", "image_url": { "url": url } }))
        }
        Some("document") => document_part(block),
        _ => {
            let allowed = "\"text\", \"image\", \"document\", \"tool_use\", \"tool_result\" and \"thinking\", each in its place";
            Err(block.field("type").unsayable_kind(CHAT, allowed))
        }
    }
}

fn image_block(image: &At<'_>) -> Result<Value, TranslateError> {
    let mut url = image.field("url");
    if image.is_string() {
        // Some clients write the address itself in the place of the object.
        url = url.with(image.value);
    }
    let text = url.string()?;
    let is_web = text.starts_with("https://") || text.starts_with("http://");
    let source = match data_url(text) {
        Some((media_type, data)) if media_type.starts_with("image/") => {
            json!({ "type": "base64", "media_type": media_type, "data": data })
        }
        None if is_web => json!({ "type": "url", "url": text }),
        _ => return Err(url.invalid("an http(s) address or \"data:image/..;base64,..\"")),
    };
    Ok(json!({ "type": "image", "source": source }))
}

fn document_block(file: &At<'_>) -> Result<Value, TranslateError> {
    if let Some(id) = file.field("file_id").given() {
        return Err(id.unsayable(MESSAGES, "the file itself as \"file_data\""));
    }
    let data = file.field("file_data");
    let Some((media_type @ "application/pdf", pdf)) = data_url(data.string()?) else {
        return Err(data.unsayable(MESSAGES, "\"data:application/pdf;base64,..\""));
    };
    let source = json!({ "type": "base64", "media_type": media_type, "data": pdf });
    let mut block = json!({ "type": "document", "source": source });
    if let Some(name) = given(&file["filename"]) {
        block["title"] = name.clone();
    }
    Ok(block)
}

fn document_part(block: &At<'_>) -> Result<Value, TranslateError> {
    let source = block.field("source");
    match source["type"].as_str() {
        Some("text") => {
            let text = source.field("data").string()?;
            Ok(json!({ "type": "text", "text": text }))
        }
        Some("base64") => {
            let name = block["title"].as_str().unwrap_or("document.pdf");
            let file = json!({ "filename": name, "file_data": source_url(&source)? });
            Ok(json!({ "type": "file", "file": file }))
        }
        _ => {
            let kind = source.field("type");
            Err(kind.unsayable(CHAT, "\"text\" and \"base64\""))
        }
    }
}

/// The address of a `source`: its own, or its bytes as a `data:` address.
fn source_url(source: &At<'_>) -> Result<String, TranslateError> {
    match source["type"].as_str() {
        Some("url") => source.field("url").string().map(str::to_owned),
        Some("base64") => {
            let media_type = source.field("media_type").string()?;
            let data = source.field("data").string()?;
            Ok(format!("data:{media_type};base64,{data}"))
        }
        _ => {
            let kind = source.field("type");
            Err(kind.unsayable(CHAT, "\"base64\" and \"url\""))
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
