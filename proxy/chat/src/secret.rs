//! Keys: stored in full, compared in constant time, shown in part.
//!
//! The crate `secrecy` does not fit: its secrets cannot be compared (settings are), and all look the same in a message.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use subtle::ConstantTimeEq as _;

/// A key that no log line, message or listing shows in full. It cannot be serialised.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema, derive_more::From)]
#[serde(transparent)]
#[schemars(extend("format" = "secret"))]
#[debug("{self}")]
#[from(String, &str)]
pub struct Secret(String);

// === impl Secret ===

impl Secret {
    /// Returns the key itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns whether `given` is this key. The time it takes reveals only the key's length.
    pub fn matches(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl fmt::Display for Secret {
    /// Writes `sk-…abcd`, which is enough to distinguish keys. A key that is too short shows nothing of itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0.chars().count();
        if n < 12 {
            return f.write_str("…");
        }
        let prefix = if self.0.starts_with("sk-") { "sk-" } else { "" };
        let end: String = self.0.chars().skip(n - 4).collect();
        write!(f, "{prefix}…{end}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_shown_in_full() {
        for (key, shown) in [
            ("sk-proj-0123456789abcd", "sk-…abcd"),
            ("0123456789-wxyz", "…wxyz"),
            ("short", "…"),
            ("", "…"),
            ("ключ-ключ-ключ", "…ключ"),
        ] {
            let secret: Secret = serde_json::from_value(key.into()).unwrap();
            assert_eq!(secret.expose(), key);
            assert_eq!(secret.to_string(), shown);
            assert_eq!(format!("{secret:?}"), shown);
            assert!(secret.matches(key) && !secret.matches("another"));
        }
    }
}
