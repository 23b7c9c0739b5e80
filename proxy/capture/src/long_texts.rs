//! Long texts of the last turns. Most turns share the system prompt and the tools of the turn before.
//!
//! Turns wait for the log when its disk is slow, some hundred of them under load. With requests of 61 KB and 128
//! connections, up to 42 MB of turns waited before this sharing, and up to 8 MB now.

use std::{borrow::Cow, hash::BuildHasher as _};

use bytestring::ByteString;
use foldhash::quality::RandomState;
use lru::LruCache;
use metaclaw_chat::work::looks_at;
use metaclaw_dialects::{Api, json, request::ValueMark};
use metaclaw_turns::JsonText;

/// Shorter texts are not kept.
const LONG: usize = 1 << 10;
const KEPT: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct LongTexts {
    last: LruCache<TextKey, JsonText>,
    hasher: RandomState,
    n_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TextKey {
    /// A value of a request. The request's own mark saves another hash of its text.
    OfRequest(ValueMark),
    /// Tools of a request that are not in chat form, by the mark that they have there.
    Tools(Api, ValueMark),
    Converted(usize, u64),
}

// === impl LongTexts ===

impl LongTexts {
    pub(crate) fn new() -> Self {
        Self {
            last: LruCache::unbounded(),
            hasher: RandomState::default(),
            n_bytes: 0,
        }
    }

    /// Returns a value's text in memory of its own, and the additional bytes that it takes. A text that a turn before
    /// had too is neither copied nor hashed for the log again. `mark` is its mark in the request.
    ///
    /// Half of a surrogate pair (a broken emoji) is replaced. The log parses texts that it does not have yet, and
    /// refuses those that no value can hold.
    pub(crate) fn own(&mut self, json: &str, mark: Option<ValueMark>) -> (JsonText, usize) {
        let n_bytes = json.len();
        let converted = || {
            looks_at(n_bytes);
            TextKey::Converted(n_bytes, self.hasher.hash_one(json))
        };
        let key = (n_bytes >= LONG).then(|| mark.map_or_else(converted, TextKey::OfRequest));
        if let Some(kept) = key.and_then(|key| self.last.get(&key)) {
            return (kept.clone(), 0);
        }
        self.keep(key, json)
    }

    /// Returns tools in chat form, and the additional bytes that they take. Those that a turn before had too are not
    /// parsed again. Returns `None` if no value can hold them.
    pub(crate) fn tools(
        &mut self,
        api: Api,
        json: &str,
        mark: Option<ValueMark>,
    ) -> Option<(JsonText, usize)> {
        if api == Api::Chat {
            return Some(self.own(json, mark));
        }
        let key = mark.map(|mark| TextKey::Tools(api, mark));
        if let Some(kept) = key.and_then(|key| self.last.get(&key)) {
            return Some((kept.clone(), 0));
        }
        let converted = api.tools(&json::value(json.as_bytes())?).to_string();
        Some(self.keep(key, &converted))
    }

    fn keep(&mut self, key: Option<TextKey>, json: &str) -> (JsonText, usize) {
        let n_bytes = json.len();
        looks_at(n_bytes);
        let own = match json::mended(json) {
            Cow::Owned(mended) => return (JsonText::new(mended), n_bytes),
            Cow::Borrowed(json) => ByteString::from(json),
        };
        let text = JsonText::new(own);
        if let Some(key) = key {
            self.n_bytes += n_bytes;
            self.last.put(key, text.clone());
        }
        while self.n_bytes > KEPT
            && let Some((_, oldest)) = self.last.pop_lru()
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
        let long = |n: usize| n.to_string().repeat(1_000_000);
        let (first, n_bytes) = texts.own(&long(1), None);
        assert_eq!(n_bytes, 1_000_000);
        let (second, n_bytes) = texts.own(&long(1), None);
        assert_eq!(n_bytes, 0);
        assert!(std::ptr::eq(first.as_str(), second.as_str()));
        assert_eq!(texts.own("7", None).1, 1);
        assert_eq!(texts.own("7", None).1, 1);
        for n in 2..9 {
            texts.own(&long(n), None);
        }
        assert!(texts.n_bytes <= KEPT && texts.last.len() == 4);
        assert_eq!(texts.own(&long(1), None).1, 1_000_000);
    }
}
