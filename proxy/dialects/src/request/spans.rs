//! The positions of the parts of a message.

use metaclaw_chat::OF_ANOTHER;

use super::walk::{ByteSpan, NotJson, Walk};
use crate::json;

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
    /// Set if it is long.
    pub mark: Option<ValueMark>,
}

/// Identifies a long value of a request by its length and keyed hash. It holds within one [`super::KnownValues`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ValueMark {
    pub n_bytes: usize,
    pub(super) hash: u64,
}

// === impl ItemSpans ===

impl ItemSpans {
    /// Walks over an element, and notes its parts.
    pub(super) fn walk(walk: &mut Walk<'_>, text: &str) -> Result<Self, NotJson> {
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

    pub(super) fn with_start(self, start: usize) -> Self {
        let from = self.whole.start;
        let moved = |span: ByteSpan| span.start - from + start..span.end - from + start;
        Self {
            whole: moved(self.whole),
            role: self.role.map(moved),
            content: self.content.map(moved),
            kind: self.kind.map(moved),
            output: self.output.map(moved),
            ..self
        }
    }
}
