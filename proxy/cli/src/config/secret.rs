//! Keys: carried in full, shown in part.

use std::fmt;

use serde::Deserialize;

/// A key that no log, message or listing shows in full.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(String);

// === impl Secret ===

impl Secret {
    /// The key itself, for the one place that sends or compares it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(key: String) -> Self {
        Self(key)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&mask(&self.0))
    }
}

/// `sk-…abcd`: enough to tell one from another, not enough to use.
pub(crate) fn mask(key: &str) -> String {
    let n_chars = key.chars().count();
    if n_chars < 12 {
        return "…".to_owned();
    }
    let head: String = key.chars().take(3).collect();
    let tail: String = key.chars().skip(n_chars - 4).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_shows_its_ends_only() {
        assert_eq!(mask("sk-0123456789abcd"), "sk-…abcd");
        assert_eq!(mask("short"), "…");
        let secret = Secret::from("sk-0123456789abcd".to_owned());
        assert_eq!(format!("{secret:?}"), "sk-…abcd");
    }
}
