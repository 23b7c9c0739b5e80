//! Remembers what was read of messages, because nearly every request repeats those of the request before.

use std::{
    hash::{BuildHasher as _, Hash},
    num::NonZeroUsize,
    sync::Mutex,
};

use foldhash::quality::RandomState;
use lru::LruCache;

use crate::lock::lock;

/// A cache of values derived from messages. A key is a keyed hash, so the keys contain no text.
#[derive(Debug)]
pub(super) struct Remembered<T> {
    read: Mutex<LruCache<u64, T>>,
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

    /// Returns what `read` returned for the same message.
    pub(super) fn of(&self, message: impl Hash, read: impl FnOnce() -> T) -> T {
        let key = self.hasher.hash_one(message);
        if let Some(known) = lock(&self.read).get(&key) {
            return known.clone();
        }
        let value = read();
        lock(&self.read).put(key, value.clone());
        value
    }
}
