//! Finds the positions of a chat request's parts in one pass over its JSON, without building values.
//!
//! A request is edited by its bytes, so that everything else stays as the client wrote it: key order, numbers, escapes,
//! spaces, unknown fields. Of duplicate keys the last counts, as in JSON parsers. Values are skipped without recursion,
//! so no nesting is too deep.

use serde::de::{Error as _, IgnoredAny};

use super::{
    error::RequestError,
    known::{KnownValues, ValueKind},
    spans::{ItemSpans, ValueMark},
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
    /// Set for a long value that is not the conversation.
    pub mark: Option<ValueMark>,
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
    pub(super) fn parse(api: Api, text: &str, known: &KnownValues) -> Result<Self, RequestError> {
        match kind(text.trim_start()) {
            Some("an object") | None => {}
            // serde_json's error would repeat a string of any length.
            Some(found) => return Err(RequestError::NotAnObject { found }),
        }
        let mut walk = Walk::new(text);
        let layout = Self::walk(&mut walk, text, conversation(api), known);
        match layout {
            Ok(layout) if walk.peek().is_none() => Ok(layout),
            _ => Err(RequestError::NotJson(why(text))),
        }
    }

    fn walk(
        walk: &mut Walk<'_>,
        text: &str,
        conversation: &str,
        known: &KnownValues,
    ) -> Result<Self, NotJson> {
        let mut layout = Self::default();
        let whole = walk.object(|walk, quoted| {
            let name = json::string(&text[quoted.clone()]).unwrap_or_default();
            let is_conversation = name == conversation;
            let (value, mark) = if is_conversation && walk.peek() == Some(b'[') {
                let items = layout.items.insert(Vec::new());
                items.clear();
                let value = walk.array(|walk| {
                    items.push(known.read(walk, text, ValueKind::Message, |walk| {
                        ItemSpans::walk(walk, text)
                    })?);
                    Ok(())
                })?;
                (value, None)
            } else {
                if is_conversation {
                    // An earlier one does not count any more.
                    layout.items = None;
                }
                let value = known.read(walk, text, ValueKind::Field, |walk| {
                    let whole = walk.value()?;
                    Ok(ItemSpans {
                        whole,
                        ..ItemSpans::default()
                    })
                })?;
                (value.whole, value.mark)
            };
            layout.members.push(Member {
                name: name.into_owned(),
                whole: quoted.start..value.end,
                value,
                mark,
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

/// Returns why a text is not JSON.
fn why(text: &str) -> serde_json::Error {
    match serde_json::from_str::<IgnoredAny>(text) {
        Err(error) => error,
        Ok(_) => serde_json::Error::custom("it cannot be read"),
    }
}

#[cfg(test)]
mod tests;
