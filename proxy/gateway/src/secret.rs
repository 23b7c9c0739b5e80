//! Keys: carried in full, compared in constant time, shown in part.

use std::fmt;

use serde::Deserialize;
use subtle::ConstantTimeEq;

/// A key that no log line, message or listing shows in full.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

// === impl Secret ===

impl Secret {
    /// The key itself, for the one place that sends it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `given` is this key, in a time that tells nothing but its length.
    pub(crate) fn matches(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl From<String> for Secret {
    fn from(key: String) -> Self {
        Self(key)
    }
}

impl From<&str> for Secret {
    fn from(key: &str) -> Self {
        Self(key.to_owned())
    }
}

impl fmt::Debug for Secret {
    /// `sk-…abcd`: enough to tell one from another, not enough to use.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chars: Vec<char> = self.0.chars().collect();
        if chars.len() < 12 {
            return f.write_str("…");
        }
        let ends = [&chars[..3], &['…'], &chars[chars.len() - 4..]].concat();
        f.write_str(&ends.into_iter().collect::<String>())
    }
}
