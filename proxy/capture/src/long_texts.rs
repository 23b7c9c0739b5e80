//! Long texts of the last turns. Most turns share the system prompt and the tools of the turn before.
//!
//! Turns wait for the log when its disk is slow, some hundred of them under load. With requests of 61 KB and 128
//! connections, up to 42 MB of turns waited before this sharing, and up to 8 MB now.

use lru::LruCache;
use metaclaw_turns::JsonText;

/// Shorter texts are copied.
const LONG: usize = 1 << 10;
const KEPT: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct LongTexts {
    last: LruCache<JsonText, ()>,
    n_bytes: usize,
}

// === impl LongTexts ===

impl LongTexts {
    pub(crate) fn new() -> Self {
        Self {
            last: LruCache::unbounded(),
            n_bytes: 0,
        }
    }

    /// Returns a copy of the text that keeps no request in memory, and the additional bytes that it takes.
    pub(crate) fn own(&mut self, text: &JsonText) -> (JsonText, usize) {
        if let Some((kept, ())) = self.last.get_key_value(text) {
            return (kept.clone(), 0);
        }
        let (text, n_bytes) = (text.detached(), text.as_str().len());
        if n_bytes >= LONG {
            self.n_bytes += n_bytes;
            self.last.put(text.clone(), ());
        }
        while self.n_bytes > KEPT
            && let Some((oldest, ())) = self.last.pop_lru()
        {
            self.n_bytes -= oldest.as_str().len();
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
        let long = |n: usize| JsonText::new(n.to_string().repeat(1_000_000));
        let (first, n_bytes) = texts.own(&long(1));
        assert_eq!(n_bytes, 1_000_000);
        let (second, n_bytes) = texts.own(&long(1));
        assert_eq!(n_bytes, 0);
        assert!(std::ptr::eq(first.as_str(), second.as_str()));
        assert_eq!(texts.own(&JsonText::new("7")).1, 1);
        assert_eq!(texts.own(&JsonText::new("7")).1, 1);
        for n in 2..9 {
            texts.own(&long(n));
        }
        assert!(texts.n_bytes <= KEPT && texts.last.len() == 4);
        assert_eq!(texts.own(&long(1)).1, 1_000_000);
    }
}
