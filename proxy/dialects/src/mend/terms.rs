//! Types for the mending of a history.

use metaclaw_chat::Message;

/// A reply of this session in the log.
#[derive(Debug, Clone, Copy)]
pub struct PastReply<'a> {
    /// Whether the upstream that is used now made it.
    pub is_own: bool,
    /// Whether a part of it was masked, so that signatures do not match any more.
    pub is_masked: bool,
    /// The original reply in the form of chat completions.
    pub reply: &'a Message,
}

/// An upstream's known requirements for a history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "none of them says anything of another"
)]
pub struct Demands {
    /// Whether each call needs a signature, as for Gemini 3.
    pub signed_calls: bool,
    /// Whether each reply needs its thinking as `reasoning_content`, as for DeepSeek and Moonshot.
    pub reasoning: bool,
    /// Whether each reply needs its thinking as a block, as for DeepSeek in Anthropic's API.
    pub thinking: bool,
    /// Whether only OpenAI's fields are allowed.
    pub standard_fields: bool,
    /// Whether only its own thinking is allowed.
    pub own_thinking: bool,
    /// Whether each call needs a unique id, and a result after it.
    pub paired_calls: bool,
    /// The ids that a call may have.
    pub ids: CallIds,
}

/// The ids of calls that an upstream accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallIds {
    /// Any id, as far as is known.
    #[default]
    Any,
    /// At most 40 characters, as for OpenAI.
    Bounded,
    /// Nine letters and digits, as for Mistral.
    Nine,
}

/// How much was changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, derive_more::Display)]
#[display("{put_back} put back, {taken_out} taken out")]
pub struct Mended {
    /// Number of fields and blocks that were put back.
    pub put_back: usize,
    /// Number of fields, blocks and ids that were removed or changed.
    pub taken_out: usize,
}

// === impl Demands ===

impl Demands {
    /// Combines these requirements with `more`.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self {
            signed_calls: self.signed_calls || more.signed_calls,
            reasoning: (self.reasoning || more.reasoning) && !more.standard_fields,
            standard_fields: (self.standard_fields || more.standard_fields) && !more.reasoning,
            thinking: (self.thinking || more.thinking) && !more.own_thinking,
            own_thinking: self.own_thinking || more.own_thinking,
            paired_calls: self.paired_calls || more.paired_calls,
            ids: match more.ids {
                CallIds::Any => self.ids,
                CallIds::Bounded | CallIds::Nine => more.ids,
            },
        }
    }

    /// Returns the requirements of this server for every history.
    #[must_use]
    pub fn of_server(self) -> Self {
        Self {
            own_thinking: false,
            paired_calls: false,
            ..self
        }
    }

    /// Returns whether there are requirements that concern only this history.
    pub fn has_of_history(self) -> bool {
        self != self.of_server()
    }
}

// === impl Mended ===

impl Mended {
    /// Returns whether nothing was changed.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}
