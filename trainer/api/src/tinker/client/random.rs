//! Texts that no two calls share.

use std::hash::{BuildHasher, Hasher, RandomState};

/// 16 hexadecimal digits.
pub(super) fn digits() -> String {
    // Random keys are what std has of randomness; these only have to differ.
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// A key that a server may know a request again by.
pub(super) fn idempotency_key() -> String {
    format!("metaclaw-retry-{}{}", digits(), digits())
}
