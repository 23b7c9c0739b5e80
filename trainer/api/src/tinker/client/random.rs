//! Unique texts for calls.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns 16 hexadecimal digits.
pub(super) fn digits() -> String {
    // Random hash keys are the only randomness in std, and these texts only have to differ.
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// Returns a key by which a server may recognise a repeated request.
pub(super) fn idempotency_key() -> String {
    format!("metaclaw-retry-{}{}", digits(), digits())
}
