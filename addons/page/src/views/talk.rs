//! What was said, drawn: the owner's words, tool calls with their outcomes, and replies.

use maud::{Markup, html};
use metaclaw_chat::{Message, Role, Verdict, excerpt, one_line, owners_words};
use metaclaw_control::replies::{Turn, TurnMeta};

use crate::{
    elements::{distance, number, outcome},
    markdown,
};

/// What the owner said last, and of an agent's step the calls whose results it answers.
pub(crate) fn asked(turn: &Turn) -> Markup {
    let messages = &turn.request.messages;
    let newest = turn.new_words().map(|said| said.text);
    let is_step = newest.is_none()
        && messages
            .last()
            .is_some_and(|last| last.role() == Role::Tool);
    let earlier = || owners_words(messages).next().map(|(_, said)| said.text);
    let calling = messages
        .iter()
        .rfind(|message| !message.tool_calls().is_empty());
    html! {
        @if let Some(text) = newest { (owner("You", &text, &format!("said-{}", turn.id))) }
        @if is_step {
            @if let Some(text) = earlier() { (owner("You, before this step", &text, &format!("said-{}", turn.id))) }
            @if let Some(calling) = calling {
                div.agent { span.who { "The step before" } (calls(calling, messages, &format!("before-{}", turn.id))) }
            }
        }
    }
}

pub(crate) fn owner(who: &str, text: &str, id: &str) -> Markup {
    html! { div.owner { span.who { (who) } (markdown::plain(text, id)) } }
}

/// A reply with its calls, whose results are among `later`.
pub(crate) fn reply(turn: &Turn, later: &[Message]) -> Markup {
    let id = turn.id;
    html! {
        @match &turn.reply {
            Some(reply) => {
                (markdown::rendered(&reply.text(), &format!("all-{id}")))
                (calls(reply, later, &format!("call-{id}")))
            }
            None => { p.soft { "No reply was kept: " (outcome(turn.meta.end, &turn.state)) "." } }
        }
    }
}

/// The calls of a message, each folded, with the first words of its result.
pub(crate) fn calls(message: &Message, later: &[Message], id: &str) -> Markup {
    let result = |call: &str| {
        let answered = |message: &Message| message.get("tool_call_id")?.as_str().map(str::to_owned);
        let mut results = later.iter().filter(|message| message.role() == Role::Tool);
        let found = results.rfind(|message| answered(message).as_deref() == Some(call));
        found.map(Message::text)
    };
    html! {
        @for (at, call) in message.tool_calls().iter().enumerate() {
            @let result = result(&call.id);
            details.call #{ (id) "-" (at) } {
                summary {
                    "calls " code { (call.name) } " "
                    span.soft { (result.as_deref().map_or_else(|| "no result was kept".to_owned(), |text| excerpt(&one_line(text)).into_owned())) }
                }
                pre { (call.arguments) }
                @if let Some(text) = &result { pre { (text) } }
            }
        }
    }
}

/// The times of a reply, to the millisecond where that matters.
pub(crate) fn times(meta: &TurnMeta) -> String {
    let since = |at_ms: u64| took(at_ms.saturating_sub(meta.started_ms));
    match meta.first_byte_ms {
        Some(first_ms) => format!(
            "first words after {}, all after {}",
            since(first_ms),
            since(meta.ended_ms)
        ),
        None => since(meta.ended_ms),
    }
}

pub(crate) fn took(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{} ms", number(ms)),
        10_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => distance(ms),
    }
}

/// Who wrote the hint of a verdict.
pub(crate) fn hint_source(verdict: &Verdict) -> &'static str {
    match &verdict.hint {
        Some(hint) if verdict.judge_hints.contains(hint) => "The judge’s advice",
        _ => "Your complaint",
    }
}

/// What was put into the prompt of a turn.
pub(crate) fn added(turn: &Turn) -> Vec<&String> {
    let served = &turn.served;
    let whole = [&served.system_block, &served.user_line];
    let of_all = whole.into_iter().flatten();
    of_all.chain(served.sender_lines.values()).collect()
}
