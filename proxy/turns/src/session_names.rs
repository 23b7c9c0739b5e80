//! Which sessions the log has, for questions that must not wait for the log's thread: each session's first request asks
//! for the replies of an earlier process, and while turns come fast the answer would take 60 ms.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    sync::Mutex,
};

use metaclaw_chat::lock;

use crate::store::{Store, StoreResult, Table};

/// Beyond this number, every session may be there. A session takes 10 bytes.
const MOST: usize = 1 << 20;

/// The hashes of the names of all sessions. A forgotten session may stay.
#[derive(Debug, Default)]
pub(crate) struct SessionNames {
    hasher: RandomState,
    /// `None` until the log was read, and if there are too many.
    known: Mutex<Option<HashSet<u64>>>,
}

// === impl SessionNames ===

impl SessionNames {
    /// Reads all names. Until then, every session may be there.
    pub(crate) fn load(&self, store: &Store) -> StoreResult<()> {
        let names = store.range(Table::Names, ..).take(MOST + 1);
        let hash = |(name, _)| self.hasher.hash_one::<&[u8]>(AsRef::as_ref(&name));
        let names = names.map(|pair| pair.map(hash));
        let names: HashSet<u64> = names.collect::<StoreResult<_>>()?;
        *lock(&self.known) = (names.len() <= MOST).then_some(names);
        Ok(())
    }

    pub(crate) fn add(&self, name: &[u8]) {
        let mut known = lock(&self.known);
        if let Some(names) = &mut *known {
            names.insert(self.hasher.hash_one(name));
        }
        known.take_if(|names| names.len() > MOST);
    }

    pub(crate) fn may_have(&self, name: &[u8]) -> bool {
        let hash = self.hasher.hash_one(name);
        let known = lock(&self.known);
        known.as_ref().is_none_or(|names| names.contains(&hash))
    }
}
