//! Compares the shape of a session's turns, which reveals side turns without their text.
//!
//! An owner's turn has the agent's tools and system prompt. A request in the same session with fewer tools and one more
//! difference is the agent's own. A single difference may be the owner's: a switch that turns the tools off, or a mode
//! with another system prompt. Therefore two differences are required, and an unknown session has none.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroUsize,
    sync::Mutex,
};

use lru::LruCache;
use metaclaw_chat::{AgentId, Role, SessionId};
use metaclaw_dialects::{Api, request::ChatRequest};
use serde_json::Value;

use crate::lock::lock;

/// The number of sessions that are remembered, about 300 bytes each.
const BOUND: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
/// The part of a system prompt that is compared, in bytes and lines.
const HEAD: usize = 4_096;
const LINES: usize = 24;
/// A line with fewer letters is ignored, such as a mark or a heading.
const LEAST_OF_LINE: usize = 12;
/// Two system prompts count as the same if they share at least one in so many lines, because dates and files in them
/// change.
const SAME: usize = 4;

/// The shape of a request.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    /// Hashes of the first lines of the system prompt.
    system: Vec<u64>,
    /// Bytes of its tools, or 0 without tools.
    tools: usize,
    /// Whether the reply must follow a schema.
    has_schema: bool,
    is_streamed: bool,
    /// Whether it has no message of the model yet.
    begins: bool,
}

/// The shape of the owner's last turn of each session.
#[derive(Debug)]
pub(super) struct Shapes {
    known: Mutex<LruCache<(AgentId, SessionId), Shape>>,
}

// === impl Shape ===

impl Shape {
    pub(super) fn of(chat: &ChatRequest) -> Self {
        let opening = chat
            .messages()
            .take_while(|message| message.role() == Role::System);
        let heads: Vec<_> = opening.flat_map(|message| message.heads(HEAD)).collect();
        let lines = heads.iter().flat_map(|head| head.lines());
        let tools = chat
            .field_json("tools")
            .filter(|tools| tools.starts_with('['));
        Self {
            system: lines.filter_map(line_hash).take(LINES).collect(),
            tools: tools.map_or(0, |tools| tools[1..].trim_matches([']', ' ', '\n']).len()),
            has_schema: has_schema(chat),
            is_streamed: chat.field_json("stream") == Some("true"),
            begins: begins(chat),
        }
    }

    /// Returns whether the reply must follow a schema and no tool is offered.
    pub(super) fn is_form(&self) -> bool {
        self.tools == 0 && self.has_schema
    }

    /// Returns whether it is a side turn, if the owner's turns look like `owners`.
    fn is_errand_among(&self, owners: &Self) -> bool {
        let is_bare = self.tools == 0 && owners.tools > 0;
        let is_unlike = self.has_schema && !owners.has_schema
            || !self.is_streamed && owners.is_streamed
            || self.begins && self.is_other_system(owners);
        let has_fewer = self.tools < owners.tools;
        is_bare && is_unlike || has_fewer && self.begins && self.is_other_system(owners)
    }

    fn is_other_system(&self, owners: &Self) -> bool {
        let n_same = self
            .system
            .iter()
            .filter(|line| owners.system.contains(line));
        let n_lines = self.system.len().min(owners.system.len());
        n_same.count() * SAME < n_lines || self.system.is_empty() && !owners.system.is_empty()
    }
}

// === impl Shapes ===

impl Shapes {
    pub(super) fn new() -> Self {
        Self {
            known: Mutex::new(LruCache::new(BOUND)),
        }
    }

    /// Returns whether a request is a side turn, compared with the turns of its session.
    pub(super) fn is_errand(&self, agent: &AgentId, session: &SessionId, shape: &Shape) -> bool {
        let mut known = lock(&self.known);
        let owners = known.get(&(agent.clone(), session.clone()));
        owners.is_some_and(|owners| shape.is_errand_among(owners))
    }

    /// Remembers a turn of the owner.
    pub(super) fn note(&self, agent: &AgentId, session: &SessionId, shape: Shape) {
        lock(&self.known).put((agent.clone(), session.clone()), shape);
    }
}

/// Returns whether a request begins a conversation: it contains no reply and continues none.
pub(super) fn begins(chat: &ChatRequest) -> bool {
    let goes_on = |name| chat.field_json(name).is_some_and(|json| json != "null");
    !chat.has_reply() && !goes_on("previous_response_id") && !goes_on("conversation")
}

/// Returns whether the reply must follow a schema.
fn has_schema(chat: &ChatRequest) -> bool {
    let is_schema = |format: &Value| format["type"] == "json_schema";
    match chat.api() {
        Api::Chat => chat
            .field("response_format")
            .is_some_and(|it| is_schema(&it)),
        Api::Responses => chat
            .field("text")
            .is_some_and(|it| is_schema(&it["format"])),
        Api::Messages => {
            let config = chat.field("output_config");
            config.is_some_and(|it| is_schema(&it["format"]))
                || chat.field("output_format").is_some_and(|it| is_schema(&it))
        }
    }
}

/// Returns the hash of a line without digits, because times and versions change.
fn line_hash(line: &str) -> Option<u64> {
    let letters = || line.chars().filter(|c| c.is_alphabetic());
    letters().nth(LEAST_OF_LINE - 1)?;
    let mut hasher = DefaultHasher::new();
    letters().for_each(|c| c.hash(&mut hasher));
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const AGENT: &str = "You are a helpful agent of the house.\nToday is 2026-11-25, a Wednesday.\nBe brief and to the point.\nUse your tools.";

    fn shape(body: &Value) -> Shape {
        Shape::of(&ChatRequest::parse(Api::Chat, body.to_string().into()).unwrap())
    }

    fn turn(system: &str, said: &[&str], more: &Value) -> Shape {
        let roles = ["user", "assistant"].into_iter().cycle();
        let said = said
            .iter()
            .zip(roles)
            .map(|(text, role)| json!({"role": role, "content": text}));
        let system = json!({"role": "system", "content": system});
        let messages: Vec<Value> = [system].into_iter().chain(said).collect();
        let mut body = json!({ "messages": messages });
        let more = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(more);
        shape(&body)
    }

    fn tools(n: usize) -> Value {
        json!({"stream": true, "tools": vec![json!({"type": "function"}); n]})
    }

    #[test]
    fn an_errand_differs_in_two_things_from_the_owners_turns() {
        let owners = turn(AGENT, &["hi", "hello", "go on"], &tools(9));
        let title = "Give the conversation a name of three words at most.";
        let schema = json!({"stream": true, "response_format": {"type": "json_schema"}});
        for (what, errand) in [
            ("a title", turn(title, &["hi"], &json!({"stream": true}))),
            ("a schema for it", turn(AGENT, &["hi"], &schema)),
            (
                "a summary that nobody watches",
                turn(AGENT, &["hi", "hello", "sum it up"], &json!({})),
            ),
            ("a sub-agent", turn(title, &["look around"], &tools(4))),
        ] {
            assert!(errand.is_errand_among(&owners), "{what}");
        }
    }

    #[test]
    fn an_owner_who_changes_one_thing_is_none() {
        let owners = turn(AGENT, &["hi"], &tools(9));
        let tomorrow = AGENT.replace("25, a Wednesday", "26, a Thursday");
        let said = ["hi", "hello", "go on"];
        for (what, turn) in [
            ("goes on", turn(AGENT, &said, &tools(9))),
            (
                "begins again the day after",
                turn(&tomorrow, &["hi"], &tools(8)),
            ),
            (
                "turned the tools off",
                turn(AGENT, &said, &json!({"stream": true})),
            ),
            (
                "chose another mode",
                turn("You plan, and change nothing at all.", &said, &tools(4)),
            ),
            (
                "got more tools",
                turn("Now you are another agent.", &["hi"], &tools(12)),
            ),
        ] {
            assert!(!turn.is_errand_among(&owners), "{what}");
        }
        let plain = turn(
            "You answer in rhymes, whatever is asked.",
            &["hi"],
            &json!({}),
        );
        assert!(
            !turn(AGENT, &["hi"], &json!({})).is_errand_among(&plain),
            "no tools anywhere"
        );
    }
}
