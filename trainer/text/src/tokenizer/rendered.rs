//! A rendered conversation, in which a control token differs from text that spells it.

use crate::content::{ControlTokens, Part};

/// The byte before the four bytes of a control token's id. It never occurs in UTF-8.
const CONTROL: u8 = 0xFF;
const ID_BYTES: usize = size_of::<u32>();
pub(crate) const CONTROL_BYTES: usize = 1 + ID_BYTES;

/// A conversation as the chat template writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    text: String,
    /// The text with control tokens as ids. Two keys are equal if a model reads the same.
    pub(crate) key: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyPart<'a> {
    Text(&'a str),
    Control(u32),
}

impl Rendered {
    /// Makes it from a text that a template wrote. `mark` breaks control tokens that are not its own.
    pub(super) fn new(text: String, mark: Option<char>, controls: &ControlTokens) -> Self {
        let mut key = Vec::with_capacity(text.len());
        for part in controls.split(&text) {
            match (part, mark) {
                (Part::Control(id), _) => push_control(&mut key, id),
                (Part::Text(text), None) => key.extend_from_slice(text.as_bytes()),
                (Part::Text(text), Some(mark)) => {
                    let pieces = text.split(mark);
                    pieces.for_each(|piece| key.extend_from_slice(piece.as_bytes()));
                }
            }
        }
        let text = match mark {
            Some(mark) => text.replace(mark, ""),
            None => text,
        };
        Self { text, key }
    }

    /// Returns the text. A control token in it may be the template's or data.
    pub fn text(&self) -> &str {
        &self.text
    }
}

pub(crate) fn push_control(key: &mut Vec<u8>, id: u32) {
    key.push(CONTROL);
    key.extend_from_slice(&id.to_le_bytes());
}

/// Returns the parts of a key, or of the end of one that begins at a part or within a text.
pub(crate) fn parts(key: &[u8]) -> impl Iterator<Item = KeyPart<'_>> {
    let mut rest = key;
    std::iter::from_fn(move || {
        if let Some(after) = rest.strip_prefix(&[CONTROL]) {
            let (id, next) = after.split_first_chunk::<ID_BYTES>()?;
            rest = next;
            return Some(KeyPart::Control(u32::from_le_bytes(*id)));
        }
        let end = rest.iter().position(|&byte| byte == CONTROL);
        let (text, next) = rest.split_at(end.unwrap_or(rest.len()));
        rest = next;
        // A key consists of text and is cut between its characters.
        let text = std::str::from_utf8(text).ok()?;
        (!text.is_empty()).then_some(KeyPart::Text(text))
    })
}
