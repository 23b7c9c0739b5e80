//! Recognises long values that earlier requests had too, because an agent's request is its last one and a few messages.
//! They are hashed instead of walked again. With tools and a system prompt of 52 KB, that halves the time of reading a
//! request.

use std::{hash::BuildHasher as _, sync::Mutex};

use foldhash::quality::RandomState;
use lru::LruCache;
use metaclaw_chat::{lock, work::looks_at};

use super::{
    spans::{ItemSpans, ValueMark},
    walk::{NotJson, Walk},
};

/// Shorter values are walked each time.
const LONG: usize = 512;
/// A value is looked up by its first bytes.
const START: usize = 128;
/// The number of different beginnings that are remembered, and of values with the same one. A value takes 200 bytes.
const STARTS: usize = 8_192;
const ALIKE: usize = 4;

/// The long values of earlier requests. No text is kept.
#[derive(Debug)]
pub struct KnownValues {
    hasher: RandomState,
    by_start: Mutex<LruCache<u64, Vec<ItemSpans>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ValueKind {
    Field,
    Message,
}

// === impl KnownValues ===

impl Default for KnownValues {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            by_start: Mutex::new(LruCache::unbounded()),
        }
    }
}

impl KnownValues {
    /// Reads the next value, and returns its position and those of its parts. Walks over it only if it is known as a
    /// value of this kind, because a field's parts are not noted.
    pub(super) fn read(
        &self,
        walk: &mut Walk<'_>,
        text: &str,
        kind: ValueKind,
        read: impl FnOnce(&mut Walk<'_>) -> Result<ItemSpans, NotJson>,
    ) -> Result<ItemSpans, NotJson> {
        walk.peek();
        let start = walk.at;
        if let Some(known) = self.find(&text.as_bytes()[start..], kind, &mut walk.in_vain) {
            walk.at += known.whole.len();
            return Ok(known.with_start(start));
        }
        let mut value = read(walk)?;
        looks_at(value.whole.len());
        value.mark = self.note(&text[value.whole.clone()], kind, &value);
        Ok(value)
    }

    /// `in_vain` is how many more bytes of the request may be hashed for values that turn out to be others. Without this
    /// limit, a request of many messages with the same beginning would take time quadratic in its length.
    fn find(&self, rest: &[u8], kind: ValueKind, in_vain: &mut usize) -> Option<ItemSpans> {
        let start = self.start(rest, kind)?;
        let alike = lock(&self.by_start).get(&start)?.clone();
        let mut hashed: Option<ValueMark> = None;
        alike.into_iter().find(|known| {
            let n_bytes = known.whole.len();
            // Values that begin alike often have the same length, such as two with another time of day.
            if hashed.is_none_or(|mark| mark.n_bytes != n_bytes) {
                let Some(left) = in_vain.checked_sub(n_bytes) else {
                    return false;
                };
                hashed = rest.get(..n_bytes).map(|value| self.mark(value));
                if hashed != known.mark {
                    *in_vain = left;
                }
            }
            hashed.is_some() && hashed == known.mark
        })
    }

    /// Returns `None` if the value is short.
    fn note(&self, value: &str, kind: ValueKind, item: &ItemSpans) -> Option<ValueMark> {
        let start = self.start(value.as_bytes(), kind)?;
        let mark = Some(self.mark(value.as_bytes()));
        let mut known = lock(&self.by_start);
        let alike = known.get_or_insert_mut(start, Vec::new);
        alike.insert(
            0,
            ItemSpans {
                mark,
                ..item.clone()
            },
        );
        alike.truncate(ALIKE);
        if known.len() > STARTS {
            known.pop_lru();
        }
        mark
    }

    fn start(&self, bytes: &[u8], kind: ValueKind) -> Option<u64> {
        // Only these show by themselves where they end.
        let is_closed = matches!(bytes.first(), Some(b'{' | b'[' | b'"'));
        let is_long = is_closed && bytes.len() >= LONG;
        is_long.then(|| self.hasher.hash_one((kind, &bytes[..START])))
    }

    fn mark(&self, value: &[u8]) -> ValueMark {
        looks_at(value.len());
        ValueMark {
            n_bytes: value.len(),
            hash: self.hasher.hash_one(value),
        }
    }
}

#[cfg(test)]
mod tests;
