//! The proof that the program that ends a sign-in also began it.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

/// The secret of one sign-in, and its hash, which the provider gets first. It has no `Debug`, so that no log shows it.
pub(crate) struct Pkce {
    pub(crate) verifier: String,
    /// The SHA-256 of the verifier.
    pub(crate) challenge: String,
}

// === impl Pkce ===

impl Pkce {
    pub(crate) fn new() -> Self {
        Self::of(BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()))
    }

    fn of(verifier: String) -> Self {
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        Self {
            verifier,
            challenge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7636, appendix B.
    #[test]
    fn the_challenge_is_that_of_the_standard() {
        let pkce = Pkce::of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned());
        let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        assert_eq!(pkce.challenge, challenge);
        let (one, other) = (Pkce::new(), Pkce::new());
        assert_ne!(one.verifier, other.verifier);
        assert_eq!(one.verifier.len(), 43);
    }
}
