//! A history as the upstream that is asked takes it: what a client lost of its replies is put back, and what another
//! upstream made is taken out.
//!
//! Providers attach to a reply what they want to read again: Anthropic signs thinking, Gemini signs calls, DeepSeek and
//! Moonshot want the thinking behind each call, OpenRouter has `reasoning_details`. They refuse a history without it, and
//! one with another's. A client that drops such fields, and a fail-over, end a session for good. All of it belongs to
//! calls, so that a call's id and its place find the reply in our log.

mod chat;
mod messages;
mod pair;
mod refusal;

use std::fmt;

use metaclaw_chat::Message;
use serde_json::Value;

use crate::Api;

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

/// Whether the log's reply has anything that only its maker reads.
pub fn has_own_fields(reply: &Message) -> bool {
    pair::calls(reply.as_map().get("tool_calls"))
        .next()
        .is_some()
        && (chat::REASONING
            .iter()
            .any(|name| reply.get(name).is_some_and(|it| !it.is_null()))
            || reply.get(chat::THINKING_BLOCKS).is_some()
            || pair::calls(reply.get("tool_calls")).any(|call| chat::extra(call).next().is_some()))
}

/// Mends a request of `api` that goes to an upstream of `target`, before it is translated where the two are not the
/// same. `past` are the session's replies with calls, the oldest first.
pub fn mend(
    (api, target): (Api, Api),
    request: &mut Value,
    past: &[PastReply<'_>],
    demands: Demands,
) -> Mended {
    match (api, target) {
        (Api::Chat, Api::Chat) => chat::mend(request, past, demands),
        (Api::Chat, Api::Messages) => chat::mend_thinking(request, past, demands),
        (Api::Messages, Api::Messages) => messages::mend(request, past, demands),
        // The items that OpenAI's clients give back whole, and what is mended once it is translated.
        _ => Mended::default(),
    }
}

// === impl Demands ===

impl Demands {
    /// What a refusal of a request with calls in its history says that this upstream wants.
    pub fn of_refusal(status: u16, body: &[u8]) -> Self {
        refusal::demands(status, body)
    }

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

#[cfg(test)]
mod tests;
