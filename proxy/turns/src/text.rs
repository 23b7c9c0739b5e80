//! JSON texts with their hashes: what turns are compared and stored by.

use std::hash::{Hash as StdHash, Hasher};

use bytestring::ByteString;
use serde::Serialize;

/// The first 16 bytes of a BLAKE3 hash.
pub(crate) type Hash = [u8; 16];

/// A JSON value as text, known by the hash of its bytes.
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

/// What a text is known by.
pub(crate) fn hash(text: &[u8]) -> Hash {
    let mut hash = [0; 16];
    hash.copy_from_slice(&blake3::hash(text).as_bytes()[..16]);
    hash
}

// === impl JsonText ===

impl JsonText {
    /// A value as it stands in a request. Only a text that is new to its session is read: one that fits
    /// in no value is refused then ([`crate::LogError::Unreadable`]). Part of a request, it keeps that in memory.
    pub fn new(text: impl Into<ByteString>) -> Self {
        let text = text.into();
        Self {
            hash: hash(text.as_bytes()),
            text,
        }
    }

    /// The text of a value.
    ///
    /// # Errors
    /// What JSON cannot say: a map whose keys are no strings.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(Self::new)
    }

    /// The same in memory of its own.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            hash: self.hash,
            text: ByteString::from(&*self.text),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Reads the value.
    ///
    /// # Errors
    /// What fits in no value: a number beyond f64, half a surrogate pair.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.text)
    }
}
