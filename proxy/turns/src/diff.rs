//! Which messages of a request an earlier turn has already.
//!
//! Mostly a request repeats the one before, its reply, and adds something. But clients also rewrite
//! the reply, change the system text, and drop the middle when the context is full; so runs are
//! looked for anywhere, and what comes back is exact in every case.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::record::Part;

/// The first half of a text's hash: enough to tell messages of one session apart.
pub(crate) type Short = [u8; 16];

/// Takes what is a hash already for the hash of it.
pub(crate) type AsItIs = BuildHasherDefault<FirstHalf>;

/// A hasher for [`Short`]s.
#[derive(Default)]
pub(crate) struct FirstHalf(u64);

impl Hasher for FirstHalf {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 ^= u64::from_le_bytes(*first);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Shortens a hash.
pub(crate) fn short(hash: &[u8; 32]) -> Short {
    let mut short = Short::default();
    short.copy_from_slice(&hash[..16]);
    short
}

/// Some of whose bits are set for each hash: hashes that have none in common are not the same.
pub(crate) type Mask = u128;

/// The mask of hashes.
pub(crate) fn mask<'a>(hashes: impl IntoIterator<Item = &'a Short>) -> Mask {
    let bit = |hash: &Short| 1 << (hash[0] & 0x7f);
    hashes
        .into_iter()
        .map(bit)
        .fold(0, |mask, bit: Mask| mask | bit)
}

/// `new` as runs of `base` and messages of its own, in order.
pub(crate) fn parts(base: &[Short], new: &[Short]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let n_common = n_common(base, new);
    if n_common > 0 {
        parts.push(Part::Copy([0, index(n_common)]));
    }
    let new = &new[n_common..];
    let places = places(base, new);
    for hash in new {
        let after = parts.last().and_then(|part| match part {
            Part::Copy([at, n]) => Some((at + n) as usize),
            Part::New(_) => None,
        });
        let goes_on = after.is_some_and(|place| base.get(place) == Some(hash));
        let place = places.get(hash).copied().flatten();
        match (parts.last_mut(), place) {
            (Some(Part::Copy([_, n])), _) if goes_on => *n += 1,
            (Some(Part::New(n)), None) => *n += 1,
            (_, Some(place)) => parts.push(Part::Copy([index(place), 1])),
            (_, None) => parts.push(Part::New(1)),
        }
    }
    parts
}

/// How many messages two conversations begin with in common.
pub(crate) fn n_common(a: &[Short], b: &[Short]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Where each of `new` stands first in `base`. By what is new, which mostly is little.
fn places<'a>(base: &[Short], new: &'a [Short]) -> HashMap<&'a Short, Option<usize>, AsItIs> {
    let mut places: HashMap<_, _, AsItIs> = new.iter().map(|hash| (hash, None)).collect();
    if places.is_empty() {
        return places;
    }
    for (at, hash) in base.iter().enumerate() {
        if let Some(place) = places.get_mut(hash) {
            place.get_or_insert(at);
        }
    }
    places
}

/// For each message of a request, whether it is a line of its own record.
pub(crate) fn own(parts: &[Part]) -> impl Iterator<Item = bool> + '_ {
    parts.iter().flat_map(|part| match part {
        Part::Copy([_, n]) => std::iter::repeat_n(false, *n as usize),
        Part::New(n) => std::iter::repeat_n(true, *n as usize),
    })
}

/// A request has fewer than 2^32 messages: each takes more than one of its 128 MiB.
fn index(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<Short> {
        text.bytes().map(|byte| [byte; 16]).collect()
    }

    fn rebuilt(base: &str, new: &str) -> String {
        let (base_hashes, new_hashes) = (texts(base), texts(new));
        let mut own = new.bytes();
        let mut out = String::new();
        for part in parts(&base_hashes, &new_hashes) {
            match part {
                Part::Copy([at, n]) => {
                    out.push_str(&base[at as usize..(at + n) as usize]);
                    own.by_ref().take(n as usize).for_each(drop);
                }
                Part::New(n) => out.extend(own.by_ref().take(n as usize).map(char::from)),
            }
        }
        out
    }

    #[test]
    fn a_request_that_goes_on_is_one_run_and_what_is_new() {
        assert_eq!(
            parts(&texts("sua"), &texts("suab")),
            [Part::Copy([0, 3]), Part::New(1)]
        );
    }

    #[test]
    fn changed_front_rewritten_reply_and_dropped_middle_are_found() {
        for (base, new) in [
            ("sua", "Suab"),
            ("sua", "suAb"),
            ("suabcdefg", "sfgh"),
            ("", "abc"),
            ("aaa", "aaaaa"),
            ("abab", "ababab"),
            ("sua", ""),
        ] {
            assert_eq!(rebuilt(base, new), new, "{base} -> {new}");
        }
        let own: Vec<bool> = own(&parts(&texts("suabcdefg"), &texts("sfgh"))).collect();
        assert_eq!(own, [false, false, false, true]);
    }
}
