//! Texts that come again and again, kept so that they are read, hashed and held once.

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher as _},
};

use crate::{blobs::INLINE, text::JsonText};

/// The longest text that is kept; a longer one would push out all others.
const LONGEST: usize = 256 << 10;
/// Bytes in one generation; there are two.
const GENERATION: usize = 2 << 20;
/// How much of either end tells texts of one length apart, before they are compared.
const END: usize = 64;

/// The texts of late. Sessions say the same system text and the same tools with every request: 37 KB
/// of 40. `K` tells apart what is made of the same bytes in different ways.
#[derive(Debug)]
pub struct Texts<K> {
    young: HashMap<u64, Known<K>>,
    old: HashMap<u64, Known<K>>,
    n_bytes: usize,
}

/// A text as it stood in a request, and as it is stored.
#[derive(Debug)]
struct Known<K> {
    kind: K,
    raw: Box<[u8]>,
    text: JsonText,
}

// === impl Texts ===

impl<K> Default for Texts<K> {
    fn default() -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            n_bytes: 0,
        }
    }
}

impl<K: Copy + Eq + Hash> Texts<K> {
    /// What `make` makes of `raw`, now or before; and whether it was before, so that it takes no
    /// memory of its own.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get_or_make<E>(
        &mut self,
        kind: K,
        raw: &[u8],
        make: impl FnOnce(&[u8]) -> Result<JsonText, E>,
    ) -> Result<(JsonText, bool), E> {
        if !(INLINE..LONGEST).contains(&raw.len()) {
            return Ok((make(raw)?, false));
        }
        let key = key(kind, raw);
        if let Some((key, known)) = self.old.remove_entry(&key) {
            self.keep(key, known);
        }
        let is_it = |known: &&Known<K>| known.kind == kind && *known.raw == *raw;
        if let Some(known) = self.young.get(&key).filter(is_it) {
            return Ok((known.text.clone(), true));
        }
        let text = make(raw)?;
        let known = Known {
            kind,
            raw: raw.into(),
            text: text.clone(),
        };
        self.keep(key, known);
        Ok((text, false))
    }

    fn keep(&mut self, key: u64, known: Known<K>) {
        let n_bytes = known.raw.len() + known.text.as_str().len();
        if self.n_bytes + n_bytes > GENERATION {
            self.old = std::mem::take(&mut self.young);
            self.n_bytes = 0;
        }
        self.n_bytes += n_bytes;
        self.young.insert(key, known);
    }
}

/// Nearly always another one for another text.
fn key(kind: impl Hash, raw: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    kind.hash(&mut hasher);
    raw.len().hash(&mut hasher);
    raw[..END.min(raw.len())].hash(&mut hasher);
    raw[raw.len().saturating_sub(END)..].hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(texts: &mut Texts<u8>, raw: &[u8]) -> (JsonText, bool) {
        texts.get_or_make(0, raw, JsonText::new).unwrap()
    }

    fn long(n: usize) -> Vec<u8> {
        format!("[\"{n:05}\",\"{}\"]", "x".repeat(2_000)).into_bytes()
    }

    #[test]
    fn a_text_that_comes_again_is_known_and_the_same() {
        let mut texts = Texts::<u8>::default();
        let spaced = [&long(1)[..], b" "].concat();
        for raw in [long(1), long(2), spaced] {
            let (first, was_known) = text(&mut texts, &raw);
            assert!(!was_known);
            assert_eq!(text(&mut texts, &raw), (first.clone(), true));
            assert_eq!(first, JsonText::new(&raw).unwrap());
            let other = texts.get_or_make(1, &raw, |_| JsonText::new(b"7"));
            assert_eq!(other.unwrap().0.as_str(), "7", "made in another way");
        }
        for _ in 0..2 {
            assert!(!text(&mut texts, b"\"short\"").1);
        }
        let failed = texts.get_or_make(2, &long(1), |_| Err("no"));
        assert_eq!(failed, Err("no"));
    }

    #[test]
    fn texts_alike_at_both_ends_are_told_apart() {
        let mut texts = Texts::<u8>::default();
        let [one, other] = ["1", "2"].map(|middle| {
            let end = "x".repeat(1_000);
            format!("\"{end}{middle}{end}\"").into_bytes()
        });
        for raw in [&one, &other, &one, &other] {
            let (text, _) = text(&mut texts, raw);
            assert_eq!(text.as_str().as_bytes(), raw);
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_used_stays() {
        let mut texts = Texts::<u8>::default();
        for n in 1..5_000 {
            text(&mut texts, &long(n));
            assert!(text(&mut texts, &long(0)).1 || n == 1, "forgot 0 at {n}");
        }
        let kept = texts.young.values().chain(texts.old.values());
        let n_bytes: usize = kept.map(|known| known.raw.len()).sum();
        assert!(n_bytes < 2 * GENERATION, "{n_bytes}");
    }
}
