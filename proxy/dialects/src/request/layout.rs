//! Finds the positions of a chat request's parts in one pass over its JSON, without building values.
//!
//! A request is edited by its bytes, so that everything else stays as the client wrote it: key order, numbers, escapes,
//! spaces, unknown fields. Of duplicate keys the last counts, as in JSON parsers. Values are skipped without recursion,
//! so no nesting is too deep.

use metaclaw_chat::{OF_ANOTHER, work::looks_at};
use serde::de::{Error as _, IgnoredAny};

use super::{
    error::RequestError,
    walk::{ByteSpan, NotJson, Walk},
};
use crate::{api::Api, json};

#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    /// The position after the opening brace.
    pub open: usize,
    /// The members in order, including duplicates.
    pub members: Vec<Member>,
    /// The elements of the conversation, or `None` if it is not an array.
    pub items: Option<Vec<ItemSpans>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub name: String,
    /// From the name's opening quote to the value's end.
    pub whole: ByteSpan,
    pub value: ByteSpan,
}

/// The positions of an element of the conversation, and of those of its fields by which it is read. An element that is
/// not an object has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ItemSpans {
    pub whole: ByteSpan,
    pub role: Option<ByteSpan>,
    pub content: Option<ByteSpan>,
    /// Its `type`.
    pub kind: Option<ByteSpan>,
    pub output: Option<ByteSpan>,
    /// Whether it has one of [`OF_ANOTHER`].
    pub is_of_another: bool,
}

pub(super) const fn conversation(api: Api) -> &'static str {
    match api {
        Api::Chat | Api::Messages => "messages",
        Api::Responses => "input",
    }
}

pub(super) fn kind(json: &str) -> Option<&'static str> {
    Some(match json.bytes().next()? {
        b'{' => "an object",
        b'"' => "a string",
        b'[' => "an array",
        b't' | b'f' => "a boolean",
        b'n' => "null",
        b'-' | b'0'..=b'9' => "a number",
        _ => return None,
    })
}

// === impl Layout ===

impl Layout {
    /// # Errors
    /// Fails if `text` is not exactly one JSON object.
    pub(super) fn parse(api: Api, text: &str) -> Result<Self, RequestError> {
        match kind(text.trim_start()) {
            Some("an object") | None => {}
            // serde_json's error would repeat a string of any length.
            Some(found) => return Err(RequestError::NotAnObject { found }),
        }
        looks_at(text.len());
        let mut walk = Walk::new(text);
        let layout = Self::walk(&mut walk, text, conversation(api));
        match layout {
            Ok(layout) if walk.peek().is_none() => Ok(layout),
            _ => Err(RequestError::NotJson(why(text))),
        }
    }

    fn walk(walk: &mut Walk<'_>, text: &str, conversation: &str) -> Result<Self, NotJson> {
        let mut layout = Self::default();
        let whole = walk.object(|walk, quoted| {
            let name = json::string(&text[quoted.clone()]).unwrap_or_default();
            let is_conversation = name == conversation;
            let value = if is_conversation && walk.peek() == Some(b'[') {
                let items = layout.items.insert(Vec::new());
                items.clear();
                walk.array(|walk| {
                    items.push(ItemSpans::walk(walk, text)?);
                    Ok(())
                })?
            } else {
                if is_conversation {
                    // An earlier one does not count any more.
                    layout.items = None;
                }
                walk.value()?
            };
            layout.members.push(Member {
                name: name.into_owned(),
                whole: quoted.start..value.end,
                value,
            });
            Ok(())
        })?;
        layout.open = whole.start + 1;
        Ok(layout)
    }

    /// Returns the member with this name that counts.
    pub(super) fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().rev().find(|member| member.name == name)
    }
}

// === impl ItemSpans ===

impl ItemSpans {
    fn walk(walk: &mut Walk<'_>, text: &str) -> Result<Self, NotJson> {
        let mut item = Self::default();
        if walk.peek() != Some(b'{') {
            item.whole = walk.value()?;
            return Ok(item);
        }
        item.whole = walk.object(|walk, quoted| {
            let value = walk.value()?;
            match json::string(&text[quoted]).as_deref() {
                Some("role") => item.role = Some(value),
                Some("content") => item.content = Some(value),
                Some("type") => item.kind = Some(value),
                Some("output") => item.output = Some(value),
                Some(name) => item.is_of_another |= OF_ANOTHER.contains(&name),
                None => {}
            }
            Ok(())
        })?;
        Ok(item)
    }
}

/// Returns why a text is not JSON.
fn why(text: &str) -> serde_json::Error {
    match serde_json::from_str::<IgnoredAny>(text) {
        Err(error) => error,
        Ok(_) => serde_json::Error::custom("it cannot be read"),
    }
}

#[cfg(test)]
mod tests;
