//! What is known of a history, and what became of it.

use std::fmt;

use metaclaw_chat::Message;

/// A reply of this session, as the log has it.
#[derive(Debug, Clone, Copy)]
pub struct PastReply<'a> {
    /// The upstream that is asked now made it.
    pub is_own: bool,
    /// Some of it was masked: what was signed is no longer what was signed.
    pub is_masked: bool,
    /// As it came, in the shape of chat completions.
    pub reply: &'a Message,
}

/// What an upstream has said that it wants in a history, or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "none of them says anything of another"
)]
pub struct Demands {
    /// A signature at each call, as Gemini 3 does.
    pub signed_calls: bool,
    /// The thinking behind each call as `reasoning_content`.
    pub reasoning: bool,
    /// No field that OpenAI does not have.
    pub standard_fields: bool,
    /// No thinking but what is known to be its own.
    pub own_thinking: bool,
    /// Ids of calls of nine letters and digits, as Mistral does.
    pub short_ids: bool,
}

/// How much was changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mended {
    /// Fields and blocks that were put back.
    pub put_back: usize,
    /// Fields, blocks and ids that were taken out or written in another way.
    pub taken_out: usize,
}

// === impl Demands ===

impl Demands {
    /// These and `more`.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self {
            signed_calls: self.signed_calls || more.signed_calls,
            reasoning: (self.reasoning || more.reasoning) && !more.standard_fields,
            standard_fields: (self.standard_fields || more.standard_fields) && !more.reasoning,
            own_thinking: self.own_thinking || more.own_thinking,
            short_ids: self.short_ids || more.short_ids,
        }
    }
}

// === impl Mended ===

impl fmt::Display for Mended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} put back, {} taken out",
            self.put_back, self.taken_out
        )
    }
}

impl Mended {
    /// Whether nothing was changed.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}
