//! Prints the remaining fields of a turn's record, so that `turns show` prints all.

use metaclaw_chat::{JudgedBy, Message, Verdict};
use metaclaw_turns::{Turn, TurnKind};
use serde_json::{Map, Value};

use super::outcome::score;

/// Prints the other facts, one on each line.
pub(super) fn rest(turn: &Turn) -> Vec<String> {
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
    lines.extend(turn.verdict.iter().flat_map(|it| votes("votes", it)));
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

/// Prints a message's fields that its text and calls do not show: parts that are not text, names, ids.
pub(super) fn fields(message: &Message) -> Option<String> {
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
    let of_all = format!(
        "{} by {by}{at_end}, weight {}",
        score(verdict.score),
        verdict.weight
    );
    let hint = |hint: &Option<String>| hint.as_deref().unwrap_or("no hint").to_owned();
    let mut lines = vec![fact(name, format!("{of_all}: {}", hint(&verdict.hint)))];
    let further = verdict.judge_hints.iter();
    let further = further.filter(|it| verdict.hint.as_ref() != Some(*it));
    lines.extend(further.map(|it| fact("", format!("hint {it}"))));
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
    let version = tokens
        .version
        .map(|n| format!(" in version {n}"))
        .unwrap_or_default();
    format!(
        "{} of the prompt, {} sampled with log-probabilities, by {by}{version} on {} (--json has them)",
        tokens.prompt_ids.len(),
        tokens.ids.len(),
        tokens.base
    )
}
