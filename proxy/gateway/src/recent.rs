//! A bounded map that forgets what was not used for longest, about.

use std::{collections::HashMap, hash::Hash};

/// Keeps at least the `bound` entries that were used last, and at most twice as many.
///
/// Two generations: what is used moves to the young one; when that is full, the old one is dropped.
/// So each operation is one or two hash look-ups, and no list has to be kept in order.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    bound: usize,
}

// === impl Recent ===

impl<K: Eq + Hash, V> Recent<K, V> {
    /// An empty map.
    pub(crate) fn new(bound: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            bound: bound.max(1),
        }
    }

    /// The entry, which becomes the one used last.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        // Where nothing is old, nothing is looked for: to hash a key takes most of the time.
        if !self.old.is_empty()
            && let Some((key, value)) = self.old.remove_entry(key)
        {
            self.insert(key, value);
        }
        self.young.get_mut(key)
    }

    /// Puts an entry, which becomes the one used last.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if !self.old.is_empty() {
            self.old.remove(&key);
        }
        if self.young.len() >= self.bound && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// Drops an entry.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    /// Drops all entries but those that `keep` says.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) {
        self.young.retain(|_, value| keep(value));
        self.old.retain(|_, value| keep(value));
    }

    /// How many entries there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_is_bounded() {
        let mut recent = Recent::new(10);
        for n in 0..1_000 {
            recent.insert(n, n);
            assert!(recent.get_mut(&0).is_some(), "forgot 0 at {n}");
            assert!(recent.len() <= 20);
        }
        assert!((990..1_000).all(|n| recent.get_mut(&n) == Some(&mut { n })));
        assert!(recent.get_mut(&500).is_none());
    }
}
