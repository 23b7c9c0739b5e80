//! Short messages that requests repeat: what the log makes of them is made once.
//!
//! A long one is known again where the request is read (`scan`), which is quicker than to read it. A short
//! one is not; but its text and its two hashes take several times as long as to look them up, and most of
//! what an agent says again with every request is a line or two.

use std::sync::{Mutex, MutexGuard, PoisonError};

use metaclaw_chat::SaidHash;
use metaclaw_turns::JsonText;

use crate::{recent::Recent, threads::PerThread};

/// How many are kept for a thread, about.
const BOUND: usize = 1_024;
/// The longest that is kept.
const LONGEST: usize = 1 << 10;

/// The short messages of late, on each thread.
#[derive(Debug)]
pub(super) struct Shorts(PerThread<Mutex<Recent<u64, Short>>>);

/// This thread's.
#[derive(Debug)]
pub(super) struct Known<'a>(MutexGuard<'a, Recent<u64, Short>>);

/// What the log makes of a message.
#[derive(Debug, Clone)]
pub(super) struct Short {
    pub text: JsonText,
    /// What it adds to the hash of its conversation.
    pub said: Option<SaidHash>,
}

// === impl Shorts ===

impl Shorts {
    pub(super) fn new(n_threads: usize) -> Self {
        Self(PerThread::new(n_threads, || Mutex::new(Recent::new(BOUND))))
    }

    pub(super) fn known(&self) -> Known<'_> {
        Known(self.0.get().lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Known ===

impl Known<'_> {
    /// What `make` makes of a message, now or before; and whether it was before.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn of<E>(
        &mut self,
        raw: &[u8],
        make: impl FnOnce() -> Result<Short, E>,
    ) -> Result<(Short, bool), E> {
        if raw.len() > LONGEST {
            return Ok((make()?, false));
        }
        let key = key(raw);
        // Nearly always what stands there is the text; else there is nothing to compare it with.
        let is_it = |known: &&mut Short| known.text.as_str().as_bytes() == raw;
        if let Some(known) = self.0.get_mut(&key).filter(is_it) {
            return Ok((known.clone(), true));
        }
        let short = make()?;
        if short.text.as_str().as_bytes() == raw {
            self.0.insert(key, short.clone());
        }
        Ok((short, false))
    }
}

/// Nearly always another one for another message; one that has the same takes its place.
fn key(raw: &[u8]) -> u64 {
    /// The golden ratio: odd, and half of its bits are set.
    const RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = raw.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]);
    let add = |key: u64, word: u64| (key.rotate_left(29) ^ word).wrapping_mul(RATIO);
    let words = words.map(|word| u64::from_le_bytes(*word));
    words.fold(raw.len() as u64, add)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn a_message_is_made_once_and_only_what_stands_as_the_log_has_it_is_kept() {
        let shorts = Shorts::new(1);
        let mut n_made = 0;
        let mut is_known = |raw: &str| {
            let make = || {
                n_made += 1;
                let text = JsonText::new(raw.as_bytes()).unwrap();
                let said = SaidHash::of(metaclaw_chat::Role::Tool, raw);
                Ok::<_, Infallible>(Short { text, said })
            };
            let (short, is_known) = shorts.known().of(raw.as_bytes(), make).unwrap();
            assert_eq!(short.text, JsonText::new(raw.as_bytes()).unwrap());
            assert_eq!(short.said, SaidHash::of(metaclaw_chat::Role::Tool, raw));
            is_known
        };
        let long = format!("\"{}\"", "x".repeat(LONGEST));
        let kept = [
            r#"{"role":"user"}"#,
            r#"{"role":"tool"}"#,
            "[]",
            "\"1234567\"",
        ];
        let not_kept = [r#"{"role": "user"}"#, long.as_str()];
        for raw in kept.iter().chain(&not_kept) {
            assert!(!is_known(raw), "{raw}");
        }
        assert!(kept.iter().all(|raw| is_known(raw)));
        assert!(!not_kept.iter().any(|raw| is_known(raw)));
        assert_eq!(n_made, kept.len() + 2 * not_kept.len());
    }
}
