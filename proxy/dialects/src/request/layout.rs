//! Finds the positions of a chat request's parts in one pass over its JSON, without building values.
//!
//! A request is edited by its bytes, so that everything else stays as the client wrote it: key order, numbers, escapes,
//! spaces, unknown fields. Of duplicate keys the last counts, as in JSON parsers. Values are skipped without recursion,
//! so no nesting is too deep.

use std::{fmt, ops::Range};

use serde::{
    Deserializer,
    de::{DeserializeSeed, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::error::RequestError;
use crate::{api::Api, json};

pub(super) type ByteSpan = Range<usize>;

#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    /// The position after the opening brace.
    pub open: usize,
    /// The members in order, including duplicates.
    pub members: Vec<Member>,
    /// The elements of the conversation, or `None` if it is not an array.
    pub items: Option<Vec<ByteSpan>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub name: String,
    /// From the name's opening quote to the value's end.
    pub whole: ByteSpan,
    pub value: ByteSpan,
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
        let json = text.trim_start();
        match kind(json) {
            Some("an object") | None => {}
            // serde_json's error would repeat a string of any length.
            Some(found) => return Err(RequestError::NotAnObject { found }),
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let seed = Members {
            text,
            conversation: conversation(api),
        };
        let layout = seed.deserialize(&mut deserializer);
        let layout = layout.and_then(|layout| deserializer.end().map(|()| layout));
        layout.map_err(RequestError::NotJson)
    }

    /// Returns the member with this name that counts.
    pub(super) fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().rev().find(|member| member.name == name)
    }
}

struct Members<'a> {
    text: &'a str,
    conversation: &'static str,
}

// === impl Members ===

impl<'de> DeserializeSeed<'de> for Members<'de> {
    type Value = Layout;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Layout, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'de> {
    type Value = Layout;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Layout, A::Error> {
        let mut layout = Layout {
            open: self.text.find('{').map_or(0, |at| at + 1),
            ..Layout::default()
        };
        while let Some(key) = map.next_key::<&RawValue>()? {
            let name = json::string(key.get()).unwrap_or_default().into_owned();
            let key = json::span(self.text, key.get());
            let value = if name == self.conversation && self.is_array_after(key.end) {
                let each: Vec<&RawValue> = map.next_value()?;
                let each = each
                    .into_iter()
                    .map(|item| json::span(self.text, item.get()));
                self.array(key.end, layout.items.insert(each.collect()))
            } else {
                if name == self.conversation {
                    // An earlier one does not count any more.
                    layout.items = None;
                }
                json::span(self.text, map.next_value::<&RawValue>()?.get())
            };
            layout.members.push(Member {
                name,
                whole: key.start..value.end,
                value,
            });
        }
        Ok(layout)
    }
}

impl Members<'_> {
    fn is_array_after(&self, at: usize) -> bool {
        let value = self.text[at..].trim_start().strip_prefix(':');
        value.is_some_and(|value| value.trim_start().starts_with('['))
    }

    /// Returns the position of the array with these elements, which comes after the key that ends at `at`. Between them
    /// are only a colon, brackets and white space.
    fn array(&self, at: usize, items: &[ByteSpan]) -> ByteSpan {
        let find = |at: usize, bracket| self.text[at..].find(bracket).map_or(at, |n| at + n);
        let start = find(at, '[');
        let last = items.last().map_or(start, |last| last.end);
        start..self.text.len().min(find(last, ']') + 1)
    }
}

#[cfg(test)]
mod tests;
