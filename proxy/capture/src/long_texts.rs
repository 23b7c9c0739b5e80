//! Long texts of the last turns. Most turns share the system prompt and the tools of the turn before.
//!
//! Turns wait for the log when its disk is slow, some hundred of them under load. With requests of 61 KB and 128
//! connections, up to 42 MB of turns waited before this sharing, and up to 8 MB now.

use std::borrow::Cow;

use bytestring::ByteString;
use foldhash::fast::RandomState;
use lru::LruCache;
use metaclaw_chat::work::looks_at;
use metaclaw_dialects::json;
use metaclaw_turns::JsonText;

/// Shorter texts are not kept.
const LONG: usize = 1 << 10;
const KEPT: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct LongTexts {
    /// Hashed by foldhash, because the standard hash of 54 KB takes 30 us.
    last: LruCache<ByteString, JsonText, RandomState>,
    n_bytes: usize,
}

// === impl LongTexts ===

impl LongTexts {
    pub(crate) fn new() -> Self {
        Self {
            last: LruCache::unbounded_with_hasher(RandomState::default()),
            n_bytes: 0,
        }
    }

    /// Returns a value's text in memory of its own, and the additional bytes that it takes. A text that a turn before
    /// had too is neither copied nor hashed for the log again.
    ///
    /// Half of a surrogate pair (a broken emoji) is replaced. The log parses texts that it does not have yet, and
    /// refuses those that no value can hold.
    pub(crate) fn own(&mut self, json: &str) -> (JsonText, usize) {
        looks_at(json.len());
        if let Some(kept) = self.last.get(json) {
            return (kept.clone(), 0);
        }
        let n_bytes = json.len();
        looks_at(n_bytes);
        let own = match json::mended(json) {
            Cow::Owned(mended) => return (JsonText::new(mended), n_bytes),
            Cow::Borrowed(json) => ByteString::from(json),
        };
        let text = JsonText::new(own.clone());
        if n_bytes >= LONG {
            self.n_bytes += n_bytes;
            self.last.put(own, text.clone());
        }
        while self.n_bytes > KEPT
            && let Some((oldest, _)) = self.last.pop_lru()
        {
            self.n_bytes -= oldest.len();
        }
        (text, n_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_turn_before_had_too_is_shared_and_the_bound_holds() {
        let mut texts = LongTexts::new();
        let long = |n: usize| n.to_string().repeat(1_000_000);
        let (first, n_bytes) = texts.own(&long(1));
        assert_eq!(n_bytes, 1_000_000);
        let (second, n_bytes) = texts.own(&long(1));
        assert_eq!(n_bytes, 0);
        assert!(std::ptr::eq(first.as_str(), second.as_str()));
        assert_eq!(texts.own("7").1, 1);
        assert_eq!(texts.own("7").1, 1);
        for n in 2..9 {
            texts.own(&long(n));
        }
        assert!(texts.n_bytes <= KEPT && texts.last.len() == 4);
        assert_eq!(texts.own(&long(1)).1, 1_000_000);
    }
}
