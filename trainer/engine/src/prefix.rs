//! Finished caches, kept for the next turn of the same conversation.
//!
//! Exact in ids: what is reused are keys and values of the very same tokens under the very same
//! adapter, so a reply is what it would have been without.

use std::collections::VecDeque;

use tch::TchError;

use crate::cache::KvCache;

/// Which weights keys and values were made with: 0 is the base, an adapter is known by its content.
pub(crate) type WeightsKey = u64;

/// Fewer common ids than this are not worth a copy.
const WORTH_COPYING: usize = 32;

#[derive(Debug)]
struct Entry {
    key: WeightsKey,
    /// As many as the cache holds.
    ids: Vec<u32>,
    cache: KvCache,
}

/// Caches of finished replies; the least recently used goes first.
#[derive(Debug, Default)]
pub(crate) struct PrefixCache {
    /// The most recently used last.
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl PrefixCache {
    /// Memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a finished cache; whose ids begin it are forgotten, they are contained.
    pub(crate) fn put(&mut self, key: WeightsKey, ids: Vec<u32>, cache: KvCache) {
        if ids.is_empty() || ids.len() != cache.len() {
            return;
        }
        while let Some(at) = self
            .entries
            .iter()
            .position(|e| e.key == key && ids.starts_with(&e.ids))
        {
            self.remove(at);
        }
        self.bytes += cache.bytes();
        self.entries.push_back(Entry { key, ids, cache });
    }

    /// A cache that holds as much of the beginning of `prompt` as is known, at most all but its last id:
    /// that one is run to get logits.
    ///
    /// A conversation that goes on takes its cache with it; one that shares a beginning gets a copy.
    ///
    /// # Errors
    /// What libtorch reports while copying.
    pub(crate) fn take(
        &mut self,
        key: WeightsKey,
        prompt: &[u32],
    ) -> Result<Option<KvCache>, TchError> {
        let usable = &prompt[..prompt.len().saturating_sub(1)];
        let common = |e: &Entry| e.ids.iter().zip(usable).take_while(|(a, b)| a == b).count();
        let known = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, e)| e.key == key);
        let Some((at, n)) = known.map(|(at, e)| (at, common(e))).max_by_key(|&(_, n)| n) else {
            return Ok(None);
        };
        if n == self.entries[at].ids.len() {
            return Ok(self.remove(at));
        }
        if n < WORTH_COPYING {
            return Ok(None);
        }
        let copy = self.entries[at].cache.prefix(n)?;
        if let Some(used) = self.entries.remove(at) {
            self.entries.push_back(used);
        }
        Ok(Some(copy))
    }

    /// Forgets the least recently used; false when nothing is left.
    pub(crate) fn evict(&mut self) -> bool {
        self.remove(0).is_some()
    }

    fn remove(&mut self, at: usize) -> Option<KvCache> {
        let entry = self.entries.remove(at)?;
        self.bytes -= entry.cache.bytes();
        Some(entry.cache)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tiny_family;
    use tch::{Device, Kind};

    fn cache(n: usize) -> KvCache {
        let mut cache = KvCache::new(&tiny_family(), n, Kind::Float, Device::Cpu).unwrap();
        cache.advance(n);
        cache
    }

    fn ids(range: std::ops::Range<u32>) -> Vec<u32> {
        range.collect()
    }

    #[test]
    fn a_conversation_takes_its_cache_along_and_a_sibling_gets_a_copy() {
        let mut prefixes = PrefixCache::default();
        prefixes.put(0, ids(0..100), cache(100));
        let held = prefixes.bytes();
        let mut sibling = ids(0..50);
        sibling.extend([900, 901]);
        assert_eq!(prefixes.take(0, &sibling).unwrap().unwrap().len(), 50);
        assert_eq!(prefixes.bytes(), held, "copied");
        assert_eq!(prefixes.take(0, &ids(0..120)).unwrap().unwrap().len(), 100);
        assert_eq!(prefixes.bytes(), 0, "moved");
    }

    #[test]
    fn other_weights_and_short_beginnings_are_not_used() {
        let mut prefixes = PrefixCache::default();
        prefixes.put(7, ids(0..100), cache(100));
        assert!(prefixes.take(0, &ids(0..120)).unwrap().is_none());
        let mut other = ids(0..10);
        other.push(999);
        assert!(prefixes.take(7, &other).unwrap().is_none());
        assert!(prefixes.take(7, &[]).unwrap().is_none());
    }

    #[test]
    fn the_last_id_of_a_prompt_is_always_run() {
        let mut prefixes = PrefixCache::default();
        prefixes.put(0, ids(0..100), cache(100));
        assert_eq!(prefixes.take(0, &ids(0..100)).unwrap().unwrap().len(), 99);
    }

    #[test]
    fn what_is_contained_is_forgotten_and_eviction_frees() {
        let mut prefixes = PrefixCache::default();
        prefixes.put(0, ids(0..50), cache(50));
        let one = prefixes.bytes();
        prefixes.put(0, ids(0..60), cache(60));
        assert_eq!(prefixes.bytes(), one);
        assert!(prefixes.evict());
        assert!(!prefixes.evict());
        assert_eq!(prefixes.bytes(), 0);
    }
}
