//! Turns whose prompts broke with an earlier one of their session, in words. The words are read from both turns when
//! they are asked for, so they are gone with the turns, and masked like them.

use std::collections::BTreeSet;

use metaclaw_chat::{AgentId, Message, Role, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    counts::BreakCounts,
    keys,
    log::{LogFuture, TurnLog},
    prompt::{comparable, first_change},
    read,
    record::Record,
    store::Store,
    turn::{BreakCause, Served, Turn},
    values::{self, TxnResult},
};

/// A turn whose prompt a provider's cache could serve only in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenPrompt {
    pub turn: TurnId,
    pub agent: AgentId,
    pub session: SessionId,
    /// When the request had been read, in Unix milliseconds.
    pub started_ms: u64,
    /// Tokens of the prompt, if the upstream reported them.
    pub prompt_tokens: Option<u64>,
    /// Tokens that came from the provider's cache nevertheless.
    pub cached_tokens: Option<u64>,
    pub cause: BreakCause,
    /// The part of the prompt that changed: `a wish was added`, `the client's system prompt`, `the client's
    /// message 4 of 9 (tool)`.
    pub what: String,
    /// The earlier prompt from the first changed word on. It is empty if that prompt is no longer in the log.
    pub before: String,
    /// This prompt from the first changed word on.
    pub now: String,
}

struct ChangedPart {
    what: String,
    before: String,
    now: String,
}

// === impl TurnLog ===

impl TurnLog {
    /// Returns how many prompts broke since the log was opened.
    pub fn break_counts(&self) -> BreakCounts {
        self.inner.state.break_counts()
    }

    /// Returns up to eight latest turns whose prompts broke since the log was opened, the newest first.
    ///
    /// # Errors
    /// Returns the store's error.
    pub fn latest_breaks(&self) -> LogFuture<'_, Vec<BrokenPrompt>> {
        self.broken_prompts(self.inner.state.latest_breaks())
    }

    /// Returns those of some turns whose prompts broke. Turns that are gone or damaged are left out.
    ///
    /// # Errors
    /// Returns the store's error.
    pub fn broken_prompts(&self, ids: Vec<TurnId>) -> LogFuture<'_, Vec<BrokenPrompt>> {
        Box::pin(async move {
            let mut found = Vec::new();
            for id in ids {
                let read = move |store: &Store| Ok(values::readable(broken(store, id))?.flatten());
                found.extend(self.read(read).await?);
            }
            Ok(found)
        })
    }
}

fn broken(store: &Store, id: TurnId) -> TxnResult<Option<BrokenPrompt>> {
    let Some(prefix) = Record::get(store, id)?.and_then(|record| record.prefix) else {
        return Ok(None);
    };
    let Some(turn) = read::turn(store, id)? else {
        return Ok(None);
    };
    let earlier = keys::id(id.session, prefix.before);
    let before = values::readable(read::turn(store, earlier))?.flatten();
    let changed = changed(prefix.cause, before.as_ref(), &turn);
    let usage = turn.meta.usage;
    Ok(Some(BrokenPrompt {
        turn: id,
        agent: turn.agent,
        session: turn.session,
        started_ms: turn.meta.started_ms,
        prompt_tokens: usage.map(|usage| usage.prompt_tokens),
        cached_tokens: usage.map(|usage| usage.cached_tokens),
        cause: prefix.cause,
        what: changed.what,
        before: changed.before,
        now: changed.now,
    }))
}

fn changed(cause: BreakCause, before: Option<&Turn>, turn: &Turn) -> ChangedPart {
    let served = before.map(|turn| &turn.served);
    let words = |of: &dyn Fn(&Turn) -> String| {
        before.map_or_else(Default::default, |before| {
            first_change(&of(before), &of(turn))
        })
    };
    let (what, (before, now)) = match cause {
        BreakCause::Lesson => (
            lesson_change(served, &turn.served),
            words(&|turn| lessons(&turn.served)),
        ),
        BreakCause::Adapter => (
            "another adapter answered".to_owned(),
            words(&|turn| turn.served.adapter.as_deref().unwrap_or("none").to_owned()),
        ),
        BreakCause::Upstream => (
            "another upstream or model answered".to_owned(),
            words(&|turn| format!("{} by {}", turn.served.model, turn.served.upstream)),
        ),
        BreakCause::Tools => ("the client's tools".to_owned(), words(&tools)),
        BreakCause::System => ("the client's system prompt".to_owned(), words(&system)),
        BreakCause::History => message_change(before, turn),
    };
    ChangedPart { what, before, now }
}

fn lesson_change(before: Option<&Served>, now: &Served) -> String {
    let Some(before) = before else {
        return "the lessons".to_owned();
    };
    let mut parts = Vec::new();
    let wishes = |served: &Served| served.wish_ids.iter().cloned().collect::<BTreeSet<_>>();
    let (old, new) = (wishes(before), wishes(now));
    parts.extend(of_wishes(new.difference(&old).count(), "added"));
    parts.extend(of_wishes(old.difference(&new).count(), "removed"));
    let version = |served: &Served, name: &str| {
        let skill = served.skills.iter().find(|skill| skill.name == name);
        skill.map(|skill| skill.version.clone())
    };
    let skills = before.skills.iter().chain(&now.skills);
    let names: BTreeSet<&str> = skills.map(|skill| skill.name.as_str()).collect();
    for name in names {
        let how = match (version(before, name), version(now, name)) {
            (None, _) => "added",
            (_, None) => "removed",
            (old, new) if old != new => "changed",
            _ => continue,
        };
        parts.push(format!("the skill {name} was {how}"));
    }
    if parts.is_empty() {
        return "the text of the lessons".to_owned();
    }
    parts.join(", ")
}

fn of_wishes(n: usize, how: &str) -> Option<String> {
    match n {
        0 => None,
        1 => Some(format!("a wish was {how}")),
        n => Some(format!("{n} wishes were {how}")),
    }
}

fn lessons(served: &Served) -> String {
    let blocks = [&served.system_block, &served.user_line]
        .into_iter()
        .flatten();
    let texts: Vec<&str> = blocks
        .chain(served.sender_lines.values())
        .map(String::as_str)
        .collect();
    texts.join("\n")
}

fn tools(turn: &Turn) -> String {
    let tools = turn.request.tools.as_deref().cloned();
    tools.map_or_else(String::new, |tools| comparable(tools).to_string())
}

fn system(turn: &Turn) -> String {
    let messages = turn.request.messages.iter();
    let opening = messages.take_while(|message| message.role() == Role::System);
    let texts: Vec<_> = opening.map(Message::text).collect();
    texts.join("\n")
}

fn message_change(before: Option<&Turn>, turn: &Turn) -> (String, (String, String)) {
    let messages = &turn.request.messages;
    let unknown = || {
        (
            "an earlier message of the client".to_owned(),
            Default::default(),
        )
    };
    let Some(before) = before else {
        return unknown();
    };
    let value = |message: &Message| comparable(Value::Object(message.as_map().clone()));
    let mut pairs = (1..).zip(before.request.messages.iter().zip(messages));
    let Some((at, (old, new))) = pairs.find(|(_, (old, new))| value(old) != value(new)) else {
        return unknown();
    };
    let role = new
        .as_map()
        .get("role")
        .and_then(Value::as_str)
        .unwrap_or("?");
    let what = format!("the client's message {at} of {} ({role})", messages.len());
    let is_text = old.role() == new.role() && old.text() != new.text();
    let words = if is_text {
        first_change(&old.text(), &new.text())
    } else {
        first_change(&value(old).to_string(), &value(new).to_string())
    };
    (what, words)
}
