//! `metaclaw turns show`: one turn, the facts first.

use std::fmt::Write as _;

use metaclaw_chat::{Message, Role, Utterance, now_ms};
use metaclaw_learner::POLICY_UPSTREAM;
use metaclaw_turns::{Served, Turn};

use super::outcome::{outcome, score};
use crate::out;

/// Characters of a text that are shown without `--full`.
const EXCERPT: usize = 600;

/// A turn in lines. Without `full`, long texts are cut and the messages of earlier turns are left out.
pub(super) fn text(turn: &Turn, full: bool) -> String {
    let mut lines = facts(turn);
    let from = if full { 0 } else { turn.new_from };
    if from > 0 {
        lines.push(format!(
            "          {from} messages of earlier turns (--full shows them)"
        ));
    }
    for message in turn.request.messages.iter().skip(from) {
        lines.push(said(message, full));
    }
    match &turn.reply {
        Some(reply) => lines.push(format!("[reply] {}", shortened(&reply.text(), full))),
        None => lines.push("[no reply]".to_owned()),
    }
    for call in turn.reply.iter().flat_map(Message::tool_calls) {
        let arguments = shortened(&call.arguments, full);
        lines.push(format!("[calls] {} {arguments}", call.name));
    }
    lines.join("\n")
}

fn facts(turn: &Turn) -> Vec<String> {
    let (meta, served) = (&turn.meta, &turn.served);
    let age = out::span(now_ms().saturating_sub(meta.ended_ms));
    let took = out::span(meta.ended_ms.saturating_sub(meta.started_ms));
    let mut lines = vec![
        format!(
            "turn      {}, {age} ago, took {took}: {}",
            turn.id,
            outcome(meta.end, &turn.state)
        ),
        format!("session   {} of agent {}", turn.session, turn.agent),
    ];
    lines.push(format!("served    {}", by_whom(served)));
    lines.extend(tokens(turn));
    let skills: Vec<&str> = served.skills.iter().map(|it| it.name.as_str()).collect();
    if !skills.is_empty() {
        lines.push(format!("skills    {}", skills.join(", ")));
    }
    let lessons = [&served.system_block, &served.user_line];
    for lesson in lessons.into_iter().flatten() {
        lines.push(format!(
            "added     {}",
            lesson.replace('\n', "\n          ")
        ));
    }
    if let Some(verdict) = &turn.verdict {
        let hint = verdict.hint.as_deref().unwrap_or_default();
        let line = format!("verdict   {} {hint}", score(verdict.score));
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// Who answered: a model of an upstream's, or our own with or without an adapter.
fn by_whom(served: &Served) -> String {
    match (&served.adapter, served.upstream == POLICY_UPSTREAM) {
        (Some(adapter), _) => format!("the policy model with adapter {adapter}"),
        (None, true) => "the policy model, without an adapter".to_owned(),
        (None, false) => format!("{} by {}", served.model, served.upstream),
    }
}

/// What it cost: as the upstream said, else as the sampled tokens were counted.
fn tokens(turn: &Turn) -> Option<String> {
    match (&turn.meta.usage, &turn.tokens) {
        (Some(usage), _) => Some(format!(
            "tokens    {} in ({} from the cache), {} out",
            usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
        )),
        (None, Some(tokens)) => Some(format!(
            "tokens    {} in, {} out",
            tokens.prompt_ids.len(),
            tokens.ids.len()
        )),
        (None, None) => None,
    }
}

/// One message; of a user's what was typed, unless all is to be seen.
fn said(message: &Message, full: bool) -> String {
    let text = message.text();
    let role = match message.role() {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::Other => "other",
    };
    let mut line = match message.role() {
        Role::User if !full => {
            let typed = Utterance::parse(&text);
            format!("[{role}] {}", shortened(&typed.text, full))
        }
        _ => format!("[{role}] {}", shortened(&text, full)),
    };
    for call in message.tool_calls() {
        let _ = write!(
            line,
            "\n[calls] {} {}",
            call.name,
            shortened(&call.arguments, full)
        );
    }
    line
}

/// The beginning of a text, and how much more there is.
fn shortened(text: &str, full: bool) -> String {
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) if !full => {
            let more = text[end..].chars().count();
            format!("{} … ({more} characters more: --full)", &text[..end])
        }
        _ => text.to_owned(),
    }
}
