//! Learns from refusals which fields a server accepts, and remembers it.
//!
//! Newer models of OpenAI accept only `max_completion_tokens`, and no temperature except their default.

use std::sync::atomic::{AtomicBool, Ordering};

/// Fields that a server has refused so far.
#[derive(Debug, Default)]
pub(super) struct Accepted {
    no_max_tokens: AtomicBool,
    no_temperature: AtomicBool,
}

/// The fields of one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuestionFields {
    /// Whether the limit is called `max_tokens`.
    pub(super) max_tokens: bool,
    pub(super) temperature: bool,
}

// === impl Accepted ===

impl Accepted {
    /// Returns the fields to send now.
    pub(super) fn now(&self) -> QuestionFields {
        QuestionFields {
            max_tokens: !self.no_max_tokens.load(Ordering::Relaxed),
            temperature: !self.no_temperature.load(Ordering::Relaxed),
        }
    }

    /// Learns from a refusal of a request with the fields `asked`. Returns whether a request without them is worth
    /// trying. If several requests are in flight, each of them learns it separately.
    pub(super) fn learns_from(&self, refusal: &str, asked: QuestionFields) -> bool {
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
