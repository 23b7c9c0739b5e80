//! Which rows of a batch are whose.

use super::Lora;

/// Rows of a batch that go through the same adapter.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    pub start: i64,
    pub len: i64,
    pub lora: &'a Lora,
}

// === impl Segment ===

impl<'a> Segment<'a> {
    /// A selection of all `len` rows, if there is an adapter.
    pub fn whole(len: i64, lora: Option<&'a Lora>) -> Option<Self> {
        let start = 0;
        lora.map(|lora| Self { start, len, lora })
    }
}
