//! Translates the content of a message in both directions.
//!
//! Content that the other API cannot express is refused if it is new, and becomes text if it is history, because the
//! caller repeats its history in each request, and one refusal would end the session for good.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::{
    at::{CHAT, MESSAGES, PathValue},
    chat_messages::text_part,
    error::TranslateError,
    wire::given,
};

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

const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
const PDF: &str = "application/pdf";

const FIRST_BYTES: [(&str, &str); 5] = [
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("JVBERi0", PDF),
];

/// Returns the text that replaces a value that cannot be expressed: its JSON without parts that only the provider that
/// made it can use.
pub(super) fn as_text(value: &Value) -> String {
    readable(value).to_string()
}

fn readable(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields: Map<_, _> = fields
                .filter(|(name, _)| !OPAQUE.contains(&name.as_str()))
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
            let image = json!({ "type": "image_url", "image_url": { "url": url } });
            Ok(vec![image])
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

fn image_block(image: &PathValue<'_>) -> Result<Value, TranslateError> {
    let mut url = image.field("url");
    if image.is_string() {
        // Some clients write the address itself instead of the object.
        url = url.with(image.value);
    }
    let text = url.string()?;
    let is_web = text.starts_with("https://") || text.starts_with("http://");
    if is_web {
        return Ok(json!({ "type": "image", "source": { "type": "url", "url": text } }));
    }
    let allowed = "an http(s) address or \"data:image/..;base64,..\" of a JPEG, PNG, GIF or WebP";
    data_block(text).ok_or_else(|| url.invalid(allowed))
}

fn data_block(url: &str) -> Option<Value> {
    let (media_type, data) = data_url(url)?;
    let kind = match &*media_type {
        PDF => "document",
        it if IMAGES.contains(&it) => "image",
        _ => return None,
    };
    let source = json!({ "type": "base64", "media_type": media_type, "data": data });
    Some(json!({ "type": kind, "source": source }))
}

fn document_block(file: &PathValue<'_>) -> Result<Value, TranslateError> {
    if let Some(id) = file.field("file_id").given() {
        return Err(id.unsayable(MESSAGES, "the file itself as \"file_data\""));
    }
    let data = file.field("file_data");
    let Some(mut block) = data_block(data.string()?) else {
        return Err(data.unsayable(MESSAGES, "\"data:application/pdf;base64,..\""));
    };
    if let Some(name) = given(&file["filename"]).filter(|_| block["type"] == "document") {
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

fn source_url(source: &PathValue<'_>) -> Result<String, TranslateError> {
    match source["type"].as_str() {
        Some("url") => source.field("url").string().map(str::to_owned),
        Some("base64") => {
            let data = source.field("data").string()?;
            let given = source["media_type"].as_str().unwrap_or_default();
            match media_type(given, data) {
                kind if kind.is_empty() => Err(source.field("media_type").invalid("a media type")),
                kind => Ok(format!("data:{kind};base64,{data}")),
            }
        }
        _ => {
            let kind = source.field("type");
            Err(kind.unsayable(CHAT, "\"base64\" and \"url\""))
        }
    }
}

/// Returns media type and base64 text of a `data:` address, or of base64 alone whose first bytes are known.
fn data_url(url: &str) -> Option<(Cow<'_, str>, &str)> {
    let (given, data) = match url.get(..5).filter(|it| it.eq_ignore_ascii_case("data:")) {
        Some(_) => url[5..].split_once(',')?,
        None => (";base64", url),
    };
    let mut params = given.split(';');
    let given = params.next().unwrap_or_default();
    // Other parameters, as in `image/png;charset=utf-8`, do not affect the bytes.
    let is_base64 = params.any(|param| param.trim().eq_ignore_ascii_case("base64"));
    let kind = media_type(given, data);
    (is_base64 && !kind.is_empty()).then_some((kind, data))
}

/// Returns the media type of base64 data. Its first bytes decide, because clients confuse the types, and providers
/// compare both. Otherwise it is the `given` one, in its usual spelling.
fn media_type<'a>(given: &'a str, data: &str) -> Cow<'a, str> {
    let begins = |(first, kind): &&(&str, &str)| {
        // A RIFF file may also be a sound.
        data.starts_with(first) && (*kind != "image/webp" || data.get(12..16) == Some("RUJQ"))
    };
    if let Some((_, kind)) = FIRST_BYTES.iter().find(begins) {
        return Cow::Borrowed(kind);
    }
    match given.trim().to_ascii_lowercase().as_str() {
        "image/jpg" | "image/pjpeg" => Cow::Borrowed("image/jpeg"),
        "image/x-png" => Cow::Borrowed("image/png"),
        "application/x-pdf" => Cow::Borrowed(PDF),
        kind if kind == given => Cow::Borrowed(given),
        kind => Cow::Owned(kind.to_owned()),
    }
}

pub(super) fn typed_url(url: &str) -> String {
    match data_url(url) {
        Some((kind, data)) => format!("data:{kind};base64,{data}"),
        None => url.to_owned(),
    }
}
