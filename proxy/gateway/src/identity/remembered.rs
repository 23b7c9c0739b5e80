//! Remembers what was read of texts, because nearly every request repeats those of the request before.

use std::{
    hash::{BuildHasher as _, Hash},
    num::NonZeroUsize,
    sync::Mutex,
};

use foldhash::quality::RandomState;
use lru::LruCache;
use metaclaw_chat::work::looks_at;

use crate::lock::lock;

/// A cache of values derived from texts. A key is a text's length and keyed hash, so the keys contain no text.
#[derive(Debug)]
pub(super) struct Remembered<T> {
    read: Mutex<LruCache<(usize, u64), T>>,
    hasher: RandomState,
}

// === impl Remembered ===

impl<T: Clone> Remembered<T> {
    pub(super) fn new(most: NonZeroUsize) -> Self {
        Self {
            read: Mutex::new(LruCache::new(most)),
            hasher: RandomState::default(),
        }
    }

    /// Returns what `read` returned for the same text as the same `kind`.
    pub(super) fn of(&self, kind: impl Hash, text: &str, read: impl FnOnce() -> T) -> T {
        looks_at(text.len());
        let key = (text.len(), self.hasher.hash_one((kind, text)));
        if let Some(known) = lock(&self.read).get(&key) {
            return known.clone();
        }
        let value = read();
        lock(&self.read).put(key, value.clone());
        value
    }
}
