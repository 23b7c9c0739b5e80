//! Recognises conversations that a model started. A sub-agent's first message is what the model wrote in the arguments
//! of a call, whatever the tool's name is, and whether or not a header says so.
//!
//! A call counts for an hour, for the same caller. If the model repeats a message of the owner in a call, the message
//! stays the owner's.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use lru::LruCache;
use metaclaw_chat::{AgentId, CallTexts, Message, Role, SessionId, Utterance, head};
use metaclaw_dialects::request::ChatRequest;
use metaclaw_turns::{Turn, TurnKind};
use serde_json::{Map, Value};

use super::errands::begins;
use crate::{auth::caller::Caller, lock::lock};

/// How long after a call a conversation may begin with its text.
const RECENT_MS: u64 = 60 * 60 * 1_000;
/// The number of callers whose calls are remembered, of replies with calls for each, and of bytes of their arguments.
const CALLERS: NonZeroUsize = NonZeroUsize::new(64).unwrap();
const REPLIES: usize = 64;
const BYTES: usize = 512 << 10;
const CONVERSATIONS: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
/// The share of a first message's words that the model must have written. Clients write a frame around the text.
const MOST: f64 = 0.5;
/// The number of the owner's last messages before a call that stay the owner's, because a model may pass them on.
const LAST_SAID: usize = 8;
/// How much of a message is compared, in bytes.
const HEAD: usize = 16 << 10;
/// Names of arguments that only summarise another one. An owner may use the same words.
const LABELS: [&str; 6] = ["description", "label", "name", "reason", "summary", "title"];

#[derive(Debug)]
pub(crate) struct Delegations {
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    calls: LruCache<CallScope, VecDeque<ReplyCalls>>,
    conversations: LruCache<ConversationKey, SessionId>,
}

/// Whose calls they are. For calls that were read from the log, only the agent is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum CallScope {
    Caller(Caller),
    Agent(AgentId),
}

#[derive(Debug)]
struct ReplyCalls {
    at_ms: u64,
    session: SessionId,
    n_bytes: usize,
    texts: Arc<CallContext>,
}

#[derive(Debug)]
struct CallContext {
    texts: CallTexts,
    said: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct CallingRequest<'a> {
    pub(super) caller: &'a Caller,
    pub(super) session: &'a SessionId,
    pub(super) kind: TurnKind,
    pub(super) chat: &'a ChatRequest,
}

type Handed = (SessionId, Arc<CallContext>);

type ConversationKey = (AgentId, u64);

// === impl Delegations ===

impl Delegations {
    /// Remembers the turns that the log has of the last hour, given the newest first.
    pub(crate) fn new(log: &[Turn]) -> Self {
        let delegations = Self {
            known: Mutex::new(Known {
                calls: LruCache::new(CALLERS),
                conversations: LruCache::new(CONVERSATIONS),
            }),
        };
        for turn in log.iter().rev() {
            delegations.restore(turn);
        }
        delegations
    }

    fn restore(&self, turn: &Turn) {
        let mut known = lock(&self.known);
        let scope = CallScope::Agent(turn.agent.clone());
        let messages = &turn.request.messages;
        let first = first(messages.iter().filter_map(Message::utterance));
        if turn.meta.kind == TurnKind::Side
            && let Some(first) = first
        {
            let recent = known.recent(std::slice::from_ref(&scope), turn.meta.started_ms);
            if let Some(session) = caller_of(&recent, &first.text) {
                let opening = opening(&turn.agent, &first.text);
                known.conversations.put(opening, session);
            }
        }
        let calls = turn.reply.as_ref().map(Message::tool_calls);
        let arguments = calls.iter().flatten().map(|call| call.arguments.as_str());
        let users = messages.iter().rev().filter_map(Message::utterance);
        let said = hash_owners_last(turn.meta.kind, users);
        let at_ms = turn.meta.ended_ms;
        if let Some(call) = ReplyCalls::new(&turn.session, at_ms, arguments, said) {
            known.note(scope, call);
        }
    }

    pub(super) fn note(&self, request: &CallingRequest<'_>, reply: &Message, at_ms: u64) {
        let calls = reply.tool_calls();
        if calls.is_empty() {
            return;
        }
        let last_first = request.chat.messages().rev();
        let users = last_first.filter(|message| message.role() == Role::User);
        let utterances = users.map(|message| Utterance::of_parts(message.heads(HEAD)));
        let said = hash_owners_last(request.kind, utterances);
        let arguments = calls.iter().map(|call| call.arguments.as_str());
        if let Some(call) = ReplyCalls::new(request.session, at_ms, arguments, said) {
            lock(&self.known).note(CallScope::Caller(request.caller.clone()), call);
        }
    }

    /// Returns the session in which a model started this conversation, or `None` if an owner started it.
    pub(super) fn session(
        &self,
        caller: &Caller,
        agent: &AgentId,
        chat: &ChatRequest,
        at_ms: u64,
    ) -> Option<SessionId> {
        let may_begin = begins(chat);
        let recent = {
            let mut known = lock(&self.known);
            if known.conversations.is_empty() && (!may_begin || known.calls.is_empty()) {
                return None;
            }
            let scopes = [
                CallScope::Caller(caller.clone()),
                CallScope::Agent(agent.clone()),
            ];
            if may_begin {
                known.recent(&scopes, at_ms)
            } else {
                Vec::new()
            }
        };
        let first = first(chat.messages().filter_map(|message| message.utterance()))?;
        let opening = opening(agent, &first.text);
        if let Some(session) = lock(&self.known).conversations.get(&opening) {
            return Some(session.clone());
        }
        let session = caller_of(&recent, &first.text)?;
        let mut known = lock(&self.known);
        known.conversations.put(opening, session.clone());
        Some(session)
    }
}

// === impl Known ===

impl Known {
    /// Returns the calls of the last hour, the latest first.
    fn recent(&mut self, scopes: &[CallScope], at_ms: u64) -> Vec<Handed> {
        let mut recent = Vec::new();
        for scope in scopes {
            let calls = self.calls.get(scope).into_iter().flatten().rev();
            let calls = calls.take_while(|call| call.at_ms + RECENT_MS > at_ms);
            recent.extend(calls.map(|call| (call.session.clone(), Arc::clone(&call.texts))));
        }
        recent
    }

    fn note(&mut self, scope: CallScope, call: ReplyCalls) {
        let calls = self.calls.get_or_insert_mut(scope, VecDeque::new);
        calls.push_back(call);
        let all: usize = calls.iter().map(|call| call.n_bytes).sum();
        let mut over = all.saturating_sub(BYTES);
        while calls.len() > REPLIES || over > 0 && calls.len() > 1 {
            let oldest = calls.pop_front().map_or(0, |call| call.n_bytes);
            over = over.saturating_sub(oldest);
        }
    }
}

// === impl ReplyCalls ===

impl ReplyCalls {
    /// Reads these arguments, or returns `None` if they contain only everyday text.
    fn new<'a>(
        session: &SessionId,
        at_ms: u64,
        arguments: impl Iterator<Item = &'a str>,
        said: Vec<u64>,
    ) -> Option<Self> {
        let mut texts = CallTexts::default();
        let mut n_bytes = 0;
        for arguments in arguments {
            n_bytes += arguments.len();
            let mut value = match serde_json::from_str(arguments) {
                Ok(value @ (Value::Object(_) | Value::Array(_) | Value::String(_))) => value,
                _ => Value::from(arguments),
            };
            drop_labels(&mut value);
            texts.note_value_unless(&value, |_| false);
        }
        (!texts.is_empty()).then(|| Self {
            at_ms,
            session: session.clone(),
            n_bytes,
            texts: Arc::new(CallContext { texts, said }),
        })
    }
}

/// Returns the first text of a conversation. A client may write messages of its own before it.
fn first<'a>(mut utterances: impl Iterator<Item = Utterance<'a>>) -> Option<Utterance<'a>> {
    utterances.find(|utterance| !utterance.text.is_empty())
}

/// Returns the session of the first of these calls that contains a text, unless the owner has said the same.
fn caller_of(recent: &[Handed], text: &str) -> Option<SessionId> {
    if !CallTexts::may_have(text) {
        return None;
    }
    let text = head(text, HEAD);
    let said = hash_of_words(text);
    if recent.iter().any(|(_, call)| call.said.contains(&said)) {
        return None;
    }
    let mut recent = recent.iter();
    let (session, _) = recent.find(|(_, call)| call.texts.share(text) > MOST)?;
    Some(session.clone())
}

fn hash_owners_last<'a>(
    kind: TurnKind,
    last_first: impl Iterator<Item = Utterance<'a>>,
) -> Vec<u64> {
    last_first
        .filter(|utterance| kind == TurnKind::Main && utterance.is_owners())
        .take(LAST_SAID)
        .map(|utterance| hash_of_words(head(&utterance.text, HEAD)))
        .collect()
}

fn drop_labels(arguments: &mut Value) {
    match arguments {
        Value::Object(fields) => {
            let longest = longest(fields);
            fields.retain(|name, value| {
                let is_short = value.as_str().is_some_and(|text| text.len() < longest);
                !(is_short && LABELS.contains(&name.as_str()))
            });
            fields.values_mut().for_each(drop_labels);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_labels),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn longest(fields: &Map<String, Value>) -> usize {
    let texts = fields.values().filter_map(Value::as_str);
    texts.map(str::len).max().unwrap_or_default()
}

fn opening(agent: &AgentId, first: &str) -> ConversationKey {
    (agent.clone(), hash_of_words(first))
}

fn hash_of_words(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for word in text.split_whitespace() {
        word.hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::identity::testing::request;

    fn reply(task: &str) -> Message {
        let arguments = json!({ "task": task }).to_string();
        let function = json!({"name": "spawn", "arguments": arguments});
        let call = json!({"id": "1", "type": "function", "function": function});
        let reply = json!({"role": "assistant", "tool_calls": [call]});
        reply.try_into().unwrap()
    }

    fn note(delegations: &Delegations, session: &str, task: &str, at_ms: u64) {
        let session = session.parse().unwrap();
        let chat = request(&[Message::user("Go on.")]);
        let request = CallingRequest {
            caller: &Caller::Any,
            session: &session,
            kind: TurnKind::Main,
            chat: &chat,
        };
        delegations.note(&request, &reply(task), at_ms);
    }

    fn session(delegations: &Delegations, task: &str, at_ms: u64) -> Option<String> {
        let agent = AgentId::default_agent();
        let chat = request(&[Message::user(task)]);
        let session = delegations.session(&Caller::Any, &agent, &chat, at_ms);
        session.map(|session| session.to_string())
    }

    #[test]
    fn a_call_counts_for_an_hour_and_what_it_began_goes_on() {
        let delegations = Delegations::new(&[]);
        let count = "Count the words of the letters.";
        let look = "Look for the key in the garden.";
        note(&delegations, "a", count, 0);
        note(&delegations, "b", look, 0);
        // It begins in time, and goes on.
        for at_ms in [RECENT_MS - 1, RECENT_MS + 1] {
            let session = session(&delegations, count, at_ms);
            assert_eq!(session.as_deref(), Some("a"));
        }
        assert_eq!(session(&delegations, look, RECENT_MS + 1), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let delegations = Delegations::new(&[]);
        let task = |n: usize| format!("Look into drawer number {n} of the cupboard.");
        for n in 0..3 * REPLIES {
            note(&delegations, "a", &task(n), 0);
        }
        let long = "word ".repeat(BYTES / 5);
        note(&delegations, "b", &long, 0);
        let known = lock(&delegations.known);
        let calls: Vec<usize> = known.calls.iter().map(|(_, calls)| calls.len()).collect();
        assert_eq!(calls, [1]);
    }
}
