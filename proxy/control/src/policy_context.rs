//! The context length of the policy model, and whether it is enough for OpenClaw.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tracing::warn;

/// The shortest context that OpenClaw works with; its first request alone uses most of it.
const OPENCLAW_TOKENS: u64 = 16_000;

/// The policy model's context in tokens, once its server has reported it.
#[derive(Debug, Clone, Default)]
pub struct PolicyContext(Arc<AtomicU64>);

// === impl PolicyContext ===

impl PolicyContext {
    /// Records what the server reports; warns if it has changed and is too little for OpenClaw.
    pub fn note(&self, tokens: Option<u64>) {
        let tokens = tokens.unwrap_or_default();
        let before = self.0.swap(tokens, Ordering::Relaxed);
        if before != tokens
            && let Some(short) = too_short(tokens)
        {
            warn!("{short}");
        }
    }

    /// It is `None` until it is reported.
    pub fn tokens(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|it| *it > 0)
    }
}

/// Returns the warning about a context that is too short for OpenClaw; 0 means unknown and gives none.
pub fn too_short(tokens: u64) -> Option<String> {
    (1..OPENCLAW_TOKENS).contains(&tokens).then(|| {
        format!(
            "your own model reads at most {tokens} tokens at once, and OpenClaw needs {OPENCLAW_TOKENS}: it can chat, but choose a model with a longer context for OpenClaw"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_known_context_below_openclaws_is_too_short() {
        let said = too_short(8_192).unwrap();
        for part in [
            "at most 8192 tokens",
            "OpenClaw needs 16000",
            "choose a model",
        ] {
            assert!(said.contains(part), "{said}");
        }
        for enough in [0, 16_000, 32_768] {
            assert_eq!(too_short(enough), None, "{enough}");
        }
    }
}
