//! Recognises requests that an agent makes for itself, such as heartbeats, titles and compactions. They have the words
//! of known clients, or a form that differs from the owner's turns in the same session.
//!
//! An owner's turn has the agent's tools and system prompt. A request in the same session with fewer tools and one more
//! difference is the agent's own. A single difference may be the owner's: a switch that turns the tools off, or a mode
//! with another system prompt. Therefore two differences are required, and an unknown session has none.

use std::{num::NonZeroUsize, sync::Mutex};

use lru::LruCache;
use metaclaw_chat::{AgentId, SessionId, Speaker, Utterance};
use metaclaw_dialects::{
    Api,
    request::{ChatRequest, MessageRef},
};
use regex::{Regex, RegexSet};

use super::{
    clients::{CLIENTS, begins_with},
    system_texts::{SHAPE_LINES, SystemTexts},
};
use crate::{config::ConfigError, lock::lock, session_key::SessionKey};

/// How much of a text is looked at, in bytes. Such requests say what they are in their first words.
const USER_HEAD: usize = 1_000;

/// OpenClaw got an unusable reply, and asks again, perhaps after a time stamp. If that fails too, this text comes
/// before the owner's next message.
const ASKS_AGAIN: &str = r"(?i)^\s*(\[[^\]]{0,200}\]\s*)?the previous (attempt|assistant turn (recorded reasoning|completed its tool calls) but) did not produce a user-visible answer";
/// The number of sessions that are remembered, about 300 bytes each.
const SESSIONS: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
/// Two system prompts count as the same if they share at least one in so many lines, because dates and files in them
/// change.
const SAME: usize = 4;

#[derive(Debug, Clone)]
pub(crate) struct SidePatterns {
    user: RegexSet,
    asks_again: Regex,
}

#[derive(Debug, Clone)]
pub(super) struct Shape {
    system: Vec<u64>,
    /// Bytes of its tools, or 0 without tools.
    tools: usize,
    has_schema: bool,
    is_streamed: bool,
    begins: bool,
}

#[derive(Debug)]
pub(super) struct Shapes {
    known: Mutex<LruCache<SessionKey, Shape>>,
}

// === impl SidePatterns ===

impl SidePatterns {
    /// Compiles the built-in patterns and `more`. They are matched against the last text in the user's role.
    pub(crate) fn new(more: &[String]) -> Result<Self, ConfigError> {
        let more = more.iter().map(String::as_str);
        let known = CLIENTS.user_patterns.iter().copied();
        let user = RegexSet::new(known.chain(more))
            .map_err(|error| ConfigError::invalid("compat.side_patterns", &error))?;
        let asks_again =
            Regex::new(ASKS_AGAIN).map_err(|error| ConfigError::invalid("built in", &error))?;
        Ok(Self { user, asks_again })
    }

    pub(super) fn is_side(&self, chat: &ChatRequest, system: &SystemTexts) -> bool {
        let is_errand = |message: MessageRef<'_>| {
            let is_typed = |said: Utterance<'_>| said.speaker != Speaker::Client;
            let has_words = || message.utterance().is_some_and(is_typed);
            message
                .heads(USER_HEAD)
                .iter()
                .any(|head| self.is_errand(head) || self.asks_again.is_match(head) && !has_words())
        };
        let mut opening = system.opening();
        chat.last_said().is_some_and(is_errand) || opening.any(|text| text.is_errands)
    }

    #[cfg(test)]
    fn is_side_alone(&self, chat: &ChatRequest) -> bool {
        self.is_side(chat, &SystemTexts::unknown(chat))
    }

    /// Returns whether a text in the user's role is that of a side turn, even if the client writes the time or events
    /// of the system around it.
    fn is_errand(&self, said: &str) -> bool {
        let is_known = |said: &str| {
            self.user.is_match(said) || CLIENTS.users.iter().any(|phrase| begins_with(said, phrase))
        };
        is_known(said) || is_known(&Utterance::undecorated(said))
    }
}

// === impl Shape ===

impl Shape {
    pub(super) fn read(chat: &ChatRequest, system: &SystemTexts) -> Self {
        let lines = system.opening().flat_map(|text| &text.shape).copied();
        let tools = chat
            .field_json("tools")
            .filter(|tools| tools.starts_with('['));
        Self {
            system: lines.take(SHAPE_LINES).collect(),
            tools: tools.map_or(0, |tools| tools[1..].trim_matches([']', ' ', '\n']).len()),
            has_schema: has_schema(chat),
            is_streamed: chat.field_json("stream") == Some("true"),
            begins: begins(chat),
        }
    }

    pub(super) fn is_form(&self) -> bool {
        self.tools == 0 && self.has_schema
    }

    fn is_errand_among(&self, owners: &Self) -> bool {
        let is_bare = self.tools == 0 && owners.tools > 0;
        let is_unlike = self.has_schema && !owners.has_schema
            || !self.is_streamed && owners.is_streamed
            || self.begins && self.is_other_system(owners);
        let has_fewer = self.tools < owners.tools;
        is_bare && is_unlike || has_fewer && self.begins && self.is_other_system(owners)
    }

    fn is_other_system(&self, owners: &Self) -> bool {
        let lines = self.system.iter();
        let n_same = lines.filter(|line| owners.system.contains(line));
        let n_lines = self.system.len().min(owners.system.len());
        n_same.count() * SAME < n_lines || self.system.is_empty() && !owners.system.is_empty()
    }
}

// === impl Shapes ===

impl Shapes {
    pub(super) fn new() -> Self {
        Self {
            known: Mutex::new(LruCache::new(SESSIONS)),
        }
    }

    pub(super) fn is_errand(&self, agent: &AgentId, session: &SessionId, shape: &Shape) -> bool {
        let mut known = lock(&self.known);
        let owners = known.get(&SessionKey::new(agent, session));
        owners.is_some_and(|owners| shape.is_errand_among(owners))
    }

    pub(super) fn note(&self, agent: &AgentId, session: &SessionId, shape: Shape) {
        lock(&self.known).put(SessionKey::new(agent, session), shape);
    }
}

/// Returns whether a request begins a conversation: it contains no reply and continues none.
pub(crate) fn begins(chat: &ChatRequest) -> bool {
    let goes_on = |name| chat.field_json(name).is_some_and(|json| json != "null");
    !chat.has_reply() && !goes_on("previous_response_id") && !goes_on("conversation")
}

fn has_schema(chat: &ChatRequest) -> bool {
    let places: &[(&str, &str)] = match chat.api() {
        Api::Chat => &[("response_format", "/type")],
        Api::Responses => &[("text", "/format/type")],
        Api::Messages => &[
            ("output_config", "/format/type"),
            ("output_format", "/type"),
        ],
    };
    places.iter().any(|(field, place)| {
        let value = chat.field(field);
        value.is_some_and(|value| {
            value
                .pointer(place)
                .is_some_and(|kind| kind == "json_schema")
        })
    })
}

#[cfg(test)]
mod openclaw;

#[cfg(test)]
mod tests {
    use metaclaw_chat::Message;
    use serde_json::{Value, json};

    use super::*;
    use crate::identity::testing::request;

    /// Each case has whether it is an errand, and its messages: those of known clients as captured, or as their
    /// packages have them, and what owners say of errands.
    const CASES: &str = include_str!("errands/cases.json");

    #[test]
    fn errands_are_told_from_what_an_owner_asks() {
        let patterns = SidePatterns::new(&["^ping$".into()]).unwrap();
        let is_side = |messages: &[Message]| patterns.is_side_alone(&request(messages));
        let cases: Vec<(bool, Vec<Message>)> = serde_json::from_str(CASES).unwrap();
        for (is_errand, messages) in &cases {
            assert_eq!(is_side(messages), *is_errand, "{messages:?}");
        }
        assert!(is_side(&[Message::user("ping")]));
        // Not the first words: Hermes tells a sub-agent 4 KB down.
        let kind = "Be kind to all that live.\n".repeat(200);
        let end = "You are a focused subagent working on a specific delegated task.";
        let deep = Message::system(format!("You are Hermes.\n{kind}\n\n{end}"));
        assert!(is_side(&[deep, Message::user("Look around.")]));
    }

    #[test]
    fn a_pattern_that_is_none_is_refused_in_words() {
        let error = SidePatterns::new(&["(".into()]).unwrap_err().to_string();
        assert!(error.starts_with("compat.side_patterns: "), "{error}");
        assert!(error.contains("unclosed group"), "{error}");
    }

    #[test]
    fn a_phrase_is_known_however_its_blanks_are_written_and_only_as_a_whole() {
        let phrase = "# Subagent You are a subagent";
        for (text, phrase, begins) in [
            ("\n# Subagent\n\nyou are a subagent, spawned", phrase, true),
            ("# Subagents You are a subagent", phrase, false),
            ("# Subagent You are", phrase, false),
            ("a", "é", false),
            ("使用四到五个字", "使用", true),
        ] {
            assert_eq!(begins_with(text, phrase), begins, "{text}");
        }
    }

    const AGENT: &str = "You are a helpful agent of the house.\nToday is 2026-11-25, a Wednesday.\nBe brief and to the point.\nUse your tools.";

    fn turn(system: &str, said: &[&str], more: &Value) -> Shape {
        let roles = ["user", "assistant"].into_iter().cycle();
        let said = said.iter().zip(roles);
        let said = said.map(|(text, role)| json!({"role": role, "content": text}));
        let system = json!({"role": "system", "content": system});
        let messages: Vec<Value> = [system].into_iter().chain(said).collect();
        let mut body = json!({ "messages": messages });
        let more = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(more);
        let chat = ChatRequest::parse(Api::Chat, body.to_string().into()).unwrap();
        Shape::read(&chat, &SystemTexts::unknown(&chat))
    }

    fn tools(n: usize) -> Value {
        json!({"stream": true, "tools": vec![json!({"type": "function"}); n]})
    }

    #[test]
    fn an_errand_differs_in_two_things_from_the_owners_turns() {
        let owners = turn(AGENT, &["hi", "hello", "go on"], &tools(9));
        let title = "Give the conversation a name of three words at most.";
        let schema = json!({"stream": true, "response_format": {"type": "json_schema"}});
        let said = ["hi", "hello", "sum it up"];
        for (what, errand) in [
            ("a title", turn(title, &["hi"], &json!({"stream": true}))),
            ("a schema for it", turn(AGENT, &["hi"], &schema)),
            (
                "a summary that nobody watches",
                turn(AGENT, &said, &json!({})),
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
        let plan = "You plan, and change nothing at all.";
        let streamed = json!({"stream": true});
        #[rustfmt::skip]
        let cases = [
            ("goes on", turn(AGENT, &said, &tools(9))),
            ("begins again the day after", turn(&tomorrow, &["hi"], &tools(8))),
            ("turned the tools off", turn(AGENT, &said, &streamed)),
            ("chose another mode", turn(plan, &said, &tools(4))),
            ("got more tools", turn("Now you are another agent.", &["hi"], &tools(12))),
        ];
        for (what, turn) in cases {
            assert!(!turn.is_errand_among(&owners), "{what}");
        }
        let rhymes = "You answer in rhymes, whatever is asked.";
        let plain = turn(rhymes, &["hi"], &json!({}));
        let bare = turn(AGENT, &["hi"], &json!({}));
        assert!(!bare.is_errand_among(&plain), "no tools anywhere");
    }
}
