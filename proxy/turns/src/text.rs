//! JSON texts with their hashes, by which turns are compared and stored.

use std::hash::{Hash as StdHash, Hasher};

use bytestring::ByteString;
use metaclaw_chat::work::looks_at;
use serde::Serialize;

/// The first 16 bytes of a BLAKE3 hash.
pub(crate) type Hash = [u8; 16];

/// A JSON value as text, identified by the hash of its bytes.
///
/// Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText {
    pub(crate) hash: Hash,
    text: ByteString,
}

impl StdHash for JsonText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

pub(crate) fn hash(text: &[u8]) -> Hash {
    looks_at(text.len());
    let mut hash = [0; 16];
    hash.copy_from_slice(&blake3::hash(text).as_bytes()[..16]);
    hash
}

// === impl JsonText ===

impl JsonText {
    /// Takes a value as it is in a request. A text is parsed only if it is new to its session. If it fits in no value,
    /// it is refused then ([`crate::LogError::Unreadable`]). As a part of a request, it keeps the request in memory.
    pub fn new(text: impl Into<ByteString>) -> Self {
        let text = text.into();
        Self {
            hash: hash(text.as_bytes()),
            text,
        }
    }

    /// Returns the text of a value.
    ///
    /// # Errors
    /// Fails for a value that JSON cannot express: a map whose keys are not strings.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(Self::new)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Parses the value.
    ///
    /// # Errors
    /// Fails for a text that fits in no value: a number beyond f64, half a surrogate pair.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.text)
    }
}
