//! A history as the upstream that is asked takes it: what a client lost of its replies is put back, and what another
//! upstream made is taken out.
//!
//! Providers attach to a reply what they want to read again: Anthropic signs thinking, Gemini signs calls, DeepSeek and
//! Moonshot want the thinking behind each call, OpenRouter has `reasoning_details`. They refuse a history without it, and
//! one with another's. A client that drops such fields, and a fail-over, end a session for good. What is put back belongs to
//! calls, so that a call's id and its place find the reply in our log; what is taken out may stand in any reply.

mod chat;
mod messages;
mod pair;
mod refusal;
mod responses;
mod terms;

use metaclaw_chat::Message;
use serde_json::Value;

pub use self::terms::{CallIds, Demands, Mended, PastReply};
use crate::Api;

/// Whether the log's reply has anything that only its maker reads.
pub fn has_own_fields(reply: &Message) -> bool {
    pair::calls(reply.as_map().get("tool_calls"))
        .next()
        .is_some()
        && (chat::REASONING
            .iter()
            .chain(&[chat::THINKING_BLOCKS, responses::ITEMS])
            .any(|name| reply.get(name).is_some_and(|value| !value.is_null()))
            || pair::calls(reply.get("tool_calls")).any(|call| chat::extra(call).next().is_some()))
}

/// Mends a request of `api` that goes to an upstream of `target`, before it is translated where the two are not the
/// same. `past` are the session's replies with calls, the oldest first.
pub fn mend(
    api: Api,
    target: Api,
    request: &mut Value,
    past: &[PastReply<'_>],
    demands: Demands,
) -> Mended {
    match (api, target) {
        (Api::Chat, Api::Chat) => chat::mend(request, past, demands),
        (Api::Chat, Api::Messages) => chat::mend_thinking(request, past, demands),
        (Api::Messages, Api::Messages) => messages::mend(request, past, demands),
        (Api::Responses, Api::Responses) => responses::mend(request, past, demands),
        // What is mended once it is translated.
        _ => Mended::default(),
    }
}

#[cfg(test)]
mod tests;
