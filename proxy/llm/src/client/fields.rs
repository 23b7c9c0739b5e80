//! Which fields of a question a server takes: learned from its refusals, and remembered.
//!
//! Newer models of OpenAI take `max_completion_tokens` alone, and no temperature but their own.

use std::sync::atomic::{AtomicBool, Ordering};

/// What a server has refused so far.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    no_max_tokens: AtomicBool,
    no_temperature: AtomicBool,
}

/// The fields that one question is asked with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields {
    /// The limit is called `max_tokens`.
    pub(super) max_tokens: bool,
    pub(super) temperature: bool,
}

// === impl Accepted ===

impl Accepted {
    /// The fields to ask with now.
    pub(super) fn now(&self) -> Fields {
        Fields {
            max_tokens: !self.no_max_tokens.load(Ordering::Relaxed),
            temperature: !self.no_temperature.load(Ordering::Relaxed),
        }
    }

    /// Notes what a refusal says of the fields that were `asked` with; whether asking without them is worth it.
    /// Of several questions at once each one learns it for itself.
    pub(super) fn learns_from(&self, refusal: &str, asked: Fields) -> bool {
        let refused = [
            (
                asked.max_tokens,
                "max_completion_tokens",
                &self.no_max_tokens,
            ),
            (asked.temperature, "temperature", &self.no_temperature),
        ];
        let mut refused = refused.into_iter();
        let found = refused.find(|(was_asked, field, _)| *was_asked && refusal.contains(field));
        if let Some((_, field, is_known)) = found {
            is_known.store(true, Ordering::Relaxed);
            tracing::debug!(field, "a model was asked in a way that it refuses");
        }
        found.is_some()
    }
}
