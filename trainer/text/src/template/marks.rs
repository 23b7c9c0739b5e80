//! Marks in a template's input. See [`crate::content`].

use serde_json::{Map, Value};

use super::error::RenderError;
use crate::content::{ControlTokens, Kind, free_mark, may_be_mark};

pub(super) struct TemplateInput {
    pub(super) messages: Vec<Value>,
    pub(super) tools: Option<Value>,
    pub(super) extra: Map<String, Value>,
}

/// How templates use the keys of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyAccess {
    /// They look them up by name.
    Fields,
    /// They write them: parameters of a tool, arguments of a call.
    Names,
}

impl TemplateInput {
    /// Breaks every control token in the input. Returns the mark, or `None` if there is none.
    ///
    /// # Errors
    /// Returns [`RenderError::NoMark`] if the request itself contains every possible mark.
    pub(super) fn mark(
        &mut self,
        controls: &ControlTokens,
        source: &str,
    ) -> Result<Option<char>, RenderError> {
        let mut spelled = false;
        self.visit(&mut |text, kind| spelled |= !controls.breaks(text, kind).is_empty());
        if !spelled {
            return Ok(None);
        }
        let mut taken: Vec<char> = source.chars().filter(|&c| may_be_mark(c)).collect();
        self.visit(&mut |text, _| taken.extend(text.chars().filter(|&c| may_be_mark(c))));
        taken.sort_unstable();
        let mark = free_mark(|c| taken.binary_search(&c).is_ok()).ok_or(RenderError::NoMark)?;
        self.visit(&mut |text, kind| {
            let places = controls.breaks(text, kind);
            if !places.is_empty() {
                *text = with_marks(text, &places, mark);
            }
        });
        Ok(Some(mark))
    }

    fn visit(&mut self, see: &mut impl FnMut(&mut String, Kind)) {
        for message in &mut self.messages {
            let said = message["role"] == "assistant";
            for (key, value) in message.as_object_mut().into_iter().flatten() {
                let is_said = said && key == "content";
                let kind = if is_said { Kind::Said } else { kind_of(key) };
                visit(value, kind, KeyAccess::Fields, see);
            }
        }
        if let Some(tools) = &mut self.tools {
            visit(tools, Kind::Text, KeyAccess::Fields, see);
        }
        for value in self.extra.values_mut() {
            visit(value, Kind::Word, KeyAccess::Fields, see);
        }
    }
}

/// Templates compare roles and types with their own words.
fn kind_of(key: &str) -> Kind {
    match key {
        "role" | "type" => Kind::Word,
        _ => Kind::Text,
    }
}

fn with_marks(text: &str, places: &[usize], mark: char) -> String {
    let mut marked = String::with_capacity(text.len() + places.len() * mark.len_utf8());
    let mut done = 0;
    for &place in places {
        marked.push_str(&text[done..place]);
        marked.push(mark);
        done = place;
    }
    marked.push_str(&text[done..]);
    marked
}

fn visit(value: &mut Value, kind: Kind, keys: KeyAccess, see: &mut impl FnMut(&mut String, Kind)) {
    match value {
        Value::String(text) => see(text, kind),
        Value::Array(list) => {
            for value in list {
                visit(value, kind, keys, see);
            }
        }
        Value::Object(map) => {
            // Keys cannot be changed in place, so the map is rebuilt in the same order.
            for (mut key, mut value) in std::mem::take(map) {
                let named = keys == KeyAccess::Names;
                let within = match key.as_str() {
                    "arguments" | "properties" if !named => KeyAccess::Names,
                    _ => KeyAccess::Fields,
                };
                let inner = if named { Kind::Text } else { kind_of(&key) };
                visit(&mut value, inner, within, see);
                let is_field = key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                let is_word = is_field && !named;
                let kind = if is_word { Kind::Word } else { Kind::Text };
                see(&mut key, kind);
                map.insert(key, value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
