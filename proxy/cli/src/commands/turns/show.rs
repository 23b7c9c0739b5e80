//! `metaclaw turns show`: one turn, the facts first.

use std::fmt::Write as _;

use metaclaw_chat::{JudgedBy, Message, Role, Speaker, Verdict, utterance_at};
use metaclaw_learner::POLICY_UPSTREAM;
use metaclaw_turns::{RolloutMark, Served, Turn, TurnKind};
use serde_json::{Map, Value};

use super::outcome::{outcome, score};
use crate::out;

/// The number of characters of a text that are shown without `--full`.
const EXCERPT: usize = 600;

/// Prints a turn. Without `full`, long texts are cut and the messages of earlier turns are left out.
pub(super) fn text(turn: &Turn, full: bool) -> String {
    let mut lines = facts(turn);
    if full {
        lines.extend(rest(turn));
    }
    let from = if full { 0 } else { turn.new_from };
    if from > 0 {
        lines.push(format!(
            "          {from} messages of earlier turns (--full shows them)"
        ));
    }
    let messages = &turn.request.messages;
    lines.extend((from..messages.len()).map(|at| message_text(messages, at, full)));
    match &turn.reply {
        Some(reply) => lines.push(format!("[reply] {}", shortened(&reply.text(), full))),
        None => lines.push("[no reply]".to_owned()),
    }
    let fields = turn.reply.as_ref().filter(|_| full).and_then(fields);
    lines.extend(fields.map(|fields| format!("[fields] {fields}")));
    for call in turn.reply.iter().flat_map(Message::tool_calls) {
        let arguments = shortened(&call.arguments, full);
        lines.push(format!("[calls] {} {arguments}", call.name));
    }
    lines.join("\n")
}

fn facts(turn: &Turn) -> Vec<String> {
    let (meta, served) = (&turn.meta, &turn.served);
    let age = out::since(meta.ended_ms);
    let took = match meta.ended_ms.saturating_sub(meta.started_ms) {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms => out::span(ms),
    };
    let mut lines = vec![
        format!(
            "turn      {}, {age} ago, took {took}: {}",
            turn.id,
            outcome(meta.end, &turn.state)
        ),
        format!("session   {} of agent {}", turn.session, turn.agent),
    ];
    lines.push(format!("served    {}", by_whom(served)));
    if let Some(file) = &served.imported {
        lines.push(format!("origin    imported from {file}"));
    }
    if let Some(rollout) = &served.rollout {
        let RolloutMark {
            id,
            task,
            group,
            attempt,
        } = rollout;
        lines.push(format!(
            "rollout   {id}: task {task}, try {attempt} in group {group}"
        ));
    }
    lines.extend(tokens(turn));
    let skills: Vec<&str> = served.skills.iter().map(|one| one.name.as_str()).collect();
    if !skills.is_empty() {
        lines.push(format!("skills    {}", skills.join(", ")));
    }
    let lessons = [&served.system_block, &served.user_line];
    let lessons = lessons.into_iter().flatten();
    for lesson in lessons.chain(served.sender_lines.values()) {
        lines.push(format!(
            "added     {}",
            lesson.replace('\n', "\n          ")
        ));
    }
    if let Some(verdict) = &turn.verdict {
        let hint = verdict.hint.as_deref().unwrap_or_default();
        let reward = verdict.reward.map(|reward| format!("reward {reward} "));
        let reward = reward.unwrap_or_default();
        let line = format!("verdict   {} {reward}{hint}", score(verdict.score));
        lines.push(line.trim_end().to_owned());
    }
    lines
}

fn by_whom(served: &Served) -> String {
    match (&served.adapter, served.upstream == POLICY_UPSTREAM) {
        (Some(adapter), _) => format!("the policy model with adapter {adapter}"),
        (None, true) => "the policy model, without an adapter".to_owned(),
        (None, false) => format!("{} by {}", served.model, served.upstream),
    }
}

/// Returns the cost as the upstream reported it, else from the number of sampled tokens.
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

/// Prints one message; of a user's message, only what was typed unless everything is requested.
fn message_text(messages: &[Message], at: usize, full: bool) -> String {
    let message = &messages[at];
    let text = message.text();
    let role = match message.role() {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::Other => "other",
    };
    let mut line = match utterance_at(messages, at) {
        Some(typed) if typed.speaker == Speaker::Client => {
            format!("[client] {}", shortened(&text, full))
        }
        Some(typed) if !full => format!("[{role}] {}", shortened(&typed.text, full)),
        Some(_) | None => format!("[{role}] {}", shortened(&text, full)),
    };
    for call in message.tool_calls() {
        let _ = write!(
            line,
            "\n[calls] {} {}",
            call.name,
            shortened(&call.arguments, full)
        );
    }
    if let Some(fields) = fields(message).filter(|_| full) {
        let _ = write!(line, "\n[fields] {fields}");
    }
    line
}

fn shortened(text: &str, full: bool) -> String {
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) if !full => {
            let more = text[end..].chars().count();
            format!("{} … ({more} characters more: --full)", &text[..end])
        }
        _ => text.to_owned(),
    }
}

fn rest(turn: &Turn) -> Vec<String> {
    let (meta, served) = (&turn.meta, &turn.served);
    let kind = match meta.kind {
        TurnKind::Main => "main",
        TurnKind::Side => "side: an errand of the agent",
        TurnKind::Rollout => "rollout: a step of a task",
    };
    let mut lines = vec![
        fact("kind", kind),
        fact(
            "chain",
            serde_json::json!(meta.chain).as_str().unwrap_or_default(),
        ),
        fact(
            "times",
            format!(
                "began {}, first byte {}, ended {} (ms since 1970)",
                meta.started_ms,
                meta.first_byte_ms
                    .map_or_else(|| "none".to_owned(), |ms| ms.to_string()),
                meta.ended_ms
            ),
        ),
    ];
    let texts = [
        ("reply id", &meta.reply_id),
        ("finish", &meta.finish_reason),
        ("api", &served.api),
        ("wishes", &served.wishes),
    ];
    lines.extend(
        texts
            .map(|(name, text)| Some(fact(name, text.as_ref()?)))
            .into_iter()
            .flatten(),
    );
    if let Some(parent) = turn.parent {
        let new_from = turn.new_from;
        lines.push(fact(
            "goes on",
            format!("from turn {parent}; new from message {new_from} on"),
        ));
    }
    if meta.is_last {
        lines.push(fact("last", "the client ended the session with it"));
    }
    if meta.masked {
        lines.push(fact(
            "masked",
            "a secret in it, or before it in its session: no token ids are kept",
        ));
    }
    for skill in &served.skills {
        lines.push(fact(
            "skill",
            format!("{} in version {}", skill.name, skill.version),
        ));
    }
    for (name, tree) in [
        ("params", params(turn)),
        ("tools", turn.request.tools.as_deref().cloned()),
    ] {
        lines.extend(tree.map(|tree| fact(name, tree.to_string())));
    }
    lines.extend(turn.verdict.iter().flat_map(|one| votes("votes", one)));
    lines.extend(turn.overruled.iter().flat_map(|it| votes("overruled", it)));
    for used in &turn.uses {
        lines.push(fact(
            "used",
            format!("in step {} of {}", used.n, used.lineage),
        ));
    }
    lines.push(fact("ids", ids(turn)));
    lines
}

fn fields(message: &Message) -> Option<String> {
    let is_shown = |(name, value): (&String, &Value)| match name.as_str() {
        "role" | "tool_calls" => true,
        "content" => value.is_string() || value.is_null(),
        _ => false,
    };
    let fields = message.as_map();
    let others = fields.iter().filter(|field| !is_shown(*field));
    let others: Map<String, Value> = others
        .map(|(name, it)| (name.clone(), it.clone()))
        .collect();
    (!others.is_empty()).then(|| Value::Object(others).to_string())
}

fn fact(name: &str, text: impl AsRef<str>) -> String {
    let text = text.as_ref().replace('\n', "\n          ");
    format!("{name:<9} {text}")
}

fn params(turn: &Turn) -> Option<Value> {
    let params = &turn.request.params;
    (!params.is_empty()).then(|| Value::Object(params.clone()))
}

fn votes(name: &str, verdict: &Verdict) -> Vec<String> {
    let by = match verdict.by {
        JudgedBy::Rules => "a rule",
        JudgedBy::Llm => "a model",
        JudgedBy::Base => "the base model",
        JudgedBy::Http => "your reward function",
        JudgedBy::Owner => "the owner",
        JudgedBy::Import => "the file that it is from",
        JudgedBy::Rollout => "the outcome of its rollout",
    };
    let at_end = if verdict.at_session_end {
        " at the session's end"
    } else {
        ""
    };
    let (score_of_all, weight) = (score(verdict.score), verdict.weight);
    let of_all = format!("{score_of_all} by {by}{at_end}, weight {weight}");
    let hint = |hint: &Option<String>| hint.as_deref().unwrap_or("no hint").to_owned();
    let mut lines = vec![fact(name, format!("{of_all}: {}", hint(&verdict.hint)))];
    let further = verdict.judge_hints.iter();
    let further = further.filter(|note| verdict.hint.as_ref() != Some(*note));
    lines.extend(further.map(|note| fact("", format!("hint {note}"))));
    for vote in &verdict.votes {
        let by = vote.model.as_ref();
        let by = by.map_or_else(String::new, |model| format!(" by {model}"));
        lines.push(fact(
            "",
            format!("{}{by} {}", score(vote.score), hint(&vote.hint)),
        ));
    }
    lines
}

fn ids(turn: &Turn) -> String {
    let Some(tokens) = &turn.tokens else {
        return "none".to_owned();
    };
    let by = tokens.adapter.as_deref().unwrap_or("no adapter");
    let number = tokens.version.map(|n| format!(" in version {n}"));
    let version = number.unwrap_or_default();
    format!(
        "{} of the prompt, {} sampled with log-probabilities, by {by}{version} on {} (--json has them)",
        tokens.prompt_ids.len(),
        tokens.ids.len(),
        tokens.base
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn turn() -> Turn {
        let verdict = |score: i8, hint: &str| {
            json!({"score": score, "by": "llm", "weight": 0.5, "hint": hint,
                "votes": [{"score": score, "hint": format!("vote {hint}")}]})
        };
        let turn = json!({
            "id": "12-3", "agent": "main", "session": "s-1", "kind": "main",
            "chain": "01".repeat(32), "reply_id": "chatcmpl-9", "finish_reason": "stop",
            "usage": {"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 1},
            "end": {"how": "complete"}, "started_ms": 101, "first_byte_ms": 102, "ended_ms": 103,
            "is_last": true, "masked": true, "parent": "12-2", "new_from": 1,
            "request": {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": "data:1"}]},
                    {"role": "tool", "tool_call_id": "call_7", "content": "result"},
                ],
                "tools": [{"type": "function", "function": {"name": "exec"}}],
                "params": {"temperature": 0.7},
            },
            "reply": {"role": "assistant", "content": "ok", "reasoning_content": "thought"},
            "served": {"api": "/v1/messages", "upstream": "policy", "model": "demo", "adapter": "main-3",
                "skills": [{"name": "brief", "version": "9f2c"}], "wishes": "77ab",
                "system_block": "block text", "user_line": "line text", "imported": "rollouts.jsonl",
                "rollout": {"id": "0199a0b1c2d3deadbeef", "task": "t-1", "group": "g-1", "attempt": 2}},
            "state": {"is": "trained", "n": 4},
            "verdict": verdict(1, "good hint"), "overruled": [verdict(-1, "old hint")],
            "uses": [{"lineage": "main-a", "n": 4}],
            "tokens": {"prompt_ids": [1, 2], "ids": [3], "logprobs": [-0.5], "sampling_logprobs": [],
                "adapter": "main-3", "version": 5, "base": "demo-base"},
        });
        serde_json::from_value(turn).unwrap()
    }

    #[test]
    fn full_shows_every_field_that_is_kept() {
        let turn = turn();
        let shown = text(&turn, true);
        // Every text or number of the record must be printed, except single ids, of which the count is.
        let mut kept = serde_json::to_value(&turn).unwrap();
        kept["tokens"] = json!([2, 1, "main-3", 5, "demo-base"]);
        // These fields are printed as words: kind, ending, judge.
        for field in ["kind", "end", "state"] {
            kept[field] = json!(null);
        }
        let mut missing = Vec::new();
        collect(&kept, &mut |leaf| {
            if !shown.contains(leaf) && !["llm", "assistant"].contains(&leaf) {
                missing.push(leaf.to_owned());
            }
        });
        assert_eq!(missing, Vec::<String>::new(), "{shown}");
        for words in [
            "kind      main",
            "trained in step 4",
            "by a model",
            "no token ids are kept",
        ] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        let short = text(&turn, false);
        assert!(
            !short.contains("old hint") && !short.contains("call_7"),
            "{short}"
        );
    }

    fn collect(value: &serde_json::Value, leaf: &mut impl FnMut(&str)) {
        match value {
            serde_json::Value::Object(fields) => fields.values().for_each(|one| collect(one, leaf)),
            serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, leaf)),
            serde_json::Value::Null | serde_json::Value::Bool(_) => {}
            serde_json::Value::Number(n) => leaf(&n.to_string()),
            serde_json::Value::String(text) => leaf(text),
        }
    }
}
