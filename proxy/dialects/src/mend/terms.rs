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
    /// The thinking behind each reply as `reasoning_content`, as DeepSeek and Moonshot do.
    pub reasoning: bool,
    /// The thinking of each reply as a block, as DeepSeek does in Anthropic's API.
    pub thinking: bool,
    /// No field that OpenAI does not have.
    pub standard_fields: bool,
    /// No thinking but what is known to be its own.
    pub own_thinking: bool,
    /// An id of its own for each call, and a result behind it.
    pub paired_calls: bool,
    /// Which ids a call may have.
    pub ids: CallIds,
}

/// Which ids of calls an upstream takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallIds {
    /// Any, as far as is known.
    #[default]
    Any,
    /// Of 40 characters at most, as OpenAI does.
    Bounded,
    /// Of nine letters and digits, as Mistral does.
    Nine,
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
            thinking: (self.thinking || more.thinking) && !more.own_thinking,
            own_thinking: self.own_thinking || more.own_thinking,
            paired_calls: self.paired_calls || more.paired_calls,
            ids: match more.ids {
                CallIds::Any => self.ids,
                CallIds::Bounded | CallIds::Nine => more.ids,
            },
        }
    }

    /// What this server wants of every history.
    #[must_use]
    pub fn of_server(self) -> Self {
        Self {
            own_thinking: false,
            paired_calls: false,
            ..self
        }
    }

    /// Whether it wants anything that is the fault of this one history.
    pub fn has_of_history(self) -> bool {
        self != self.of_server()
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
