//! Translates the content of a message in both directions.
//!
//! Content that the other API cannot express is refused if it is new, and becomes text if it is history, because the
//! caller repeats its history in each request, and one refusal would end the session for good.

use serde_json::{Map, Value, json};

use super::{
    at::{CHAT, MESSAGES, PathValue},
    error::TranslateError,
    wire::given,
};

/// The place of a part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// After the model's last message. A reply without this part would differ.
    New,
    /// Before it. The model has answered it already, or a tool returned it.
    History,
}

/// Fields of the provider's own tools that only the provider can read, or that a model cannot use.
const OPAQUE: [&str; 6] = [
    "cache_control",
    "data",
    "encrypted_content",
    "encrypted_index",
    "encrypted_stdout",
    "signature",
];

/// The image types that Anthropic accepts.
const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Returns the text that replaces a value that cannot be expressed: its JSON without parts that only the provider that
/// made it can use.
pub(super) fn as_text(value: &Value) -> String {
    readable(value).to_string()
}

fn readable(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.filter(|(name, _)| !OPAQUE.contains(&name.as_str()));
            let fields: Map<_, _> = fields
                .map(|(name, value)| (name.clone(), readable(value)))
                .collect();
            fields.into()
        }
        Value::Array(list) => list.iter().map(readable).collect(),
        // An image or a file in base64 is not text.
        Value::String(text) if text.starts_with("data:") => {
            let (head, _) = text.split_once(',').unwrap_or((text, ""));
            head.into()
        }
        other => other.clone(),
    }
}

/// Converts a chat content part to an Anthropic block, or returns `None` for white space alone.
pub(super) fn block(part: &PathValue<'_>, place: Place) -> Result<Option<Value>, TranslateError> {
    match new_block(part) {
        Err(_) if place == Place::History => Ok(text_block(&as_text(part))),
        block => block,
    }
}

fn new_block(part: &PathValue<'_>) -> Result<Option<Value>, TranslateError> {
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

/// Makes a text block, or returns `None` for white space alone, which Anthropic refuses.
pub(super) fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

/// Converts an Anthropic block to chat content parts.
pub(super) fn parts(block: &PathValue<'_>, place: Place) -> Result<Vec<Value>, TranslateError> {
    match new_parts(block) {
        Err(_) if place == Place::History => Ok(vec![text_part(&as_text(block))]),
        parts => parts,
    }
}

fn new_parts(block: &PathValue<'_>) -> Result<Vec<Value>, TranslateError> {
    match block["type"].as_str() {
        Some("text") => Ok(vec![text_part(block.field("text").string()?)]),
        Some("image") => {
            let url = source_url(&block.field("source"))?;
            Ok(vec![
                json!({ "type": "image_url", "image_url": { "url": url } }),
            ])
        }
        Some("document") => document_parts(block),
        Some("search_result") => {
            let head = ["title", "source"].map(|name| block[name].as_str().unwrap_or_default());
            let texts = block.field("content").texts()?;
            let lines = head
                .into_iter()
                .chain(texts)
                .filter(|line| !line.is_empty());
            Ok(vec![text_part(&lines.collect::<Vec<_>>().join("\n"))])
        }
        // This is a result of Claude Code's tool search.
        Some("tool_reference") => Ok(vec![text_part(&as_text(block))]),
        _ => {
            let allowed = "\"text\", \"image\", \"document\", \"search_result\", \"tool_use\", \"tool_result\" and \"thinking\", each in its place";
            Err(block.field("type").unsayable_kind(CHAT, allowed))
        }
    }
}

fn text_part(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn image_block(image: &PathValue<'_>) -> Result<Value, TranslateError> {
    let mut url = image.field("url");
    if image.is_string() {
        // Some clients write the address itself instead of the object.
        url = url.with(image.value);
    }
    let text = url.string()?;
    let is_web = text.starts_with("https://") || text.starts_with("http://");
    let source = match data_url(text) {
        Some((media_type, data)) if IMAGES.contains(&media_type) => {
            json!({ "type": "base64", "media_type": media_type, "data": data })
        }
        None if is_web => json!({ "type": "url", "url": text }),
        _ => {
            let allowed =
                "an http(s) address or \"data:image/..;base64,..\" of a JPEG, PNG, GIF or WebP";
            return Err(url.invalid(allowed));
        }
    };
    Ok(json!({ "type": "image", "source": source }))
}

fn document_block(file: &PathValue<'_>) -> Result<Value, TranslateError> {
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

fn document_parts(block: &PathValue<'_>) -> Result<Vec<Value>, TranslateError> {
    let source = block.field("source");
    match source["type"].as_str() {
        Some("text") => Ok(vec![text_part(source.field("data").string()?)]),
        Some("content") if source["content"].is_string() => {
            Ok(vec![text_part(source.field("content").string()?)])
        }
        Some("content") => {
            let content = source.field("content");
            let parts = content.items()?.map(|part| new_parts(&part));
            Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
        }
        Some("base64") => {
            let name = block["title"].as_str().unwrap_or("document.pdf");
            let file = json!({ "filename": name, "file_data": source_url(&source)? });
            Ok(vec![json!({ "type": "file", "file": file })])
        }
        _ => {
            let kind = source.field("type");
            Err(kind.unsayable(CHAT, "\"text\", \"content\" and \"base64\""))
        }
    }
}

/// Returns the address of a `source`: its own, or its bytes as a `data:` address.
fn source_url(source: &PathValue<'_>) -> Result<String, TranslateError> {
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

/// Returns media type and base64 text of a `data:` address.
fn data_url(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?;
    // Parameters, as in `image/png;charset=utf-8`, do not affect the bytes.
    Some((media_type.split(';').next().unwrap_or(media_type), data))
}
