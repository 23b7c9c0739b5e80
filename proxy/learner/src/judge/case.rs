//! What is put to a judge.

use std::borrow::Cow;

use metaclaw_chat::{AgentId, Message};
use metaclaw_reward::Evidence;
use metaclaw_turns::{StreamEnd, Turn};
use serde_json::{Value, json};

/// What a question of ours has for a turn's id, and for a session's.
const PROBE: &str = "gate";

/// A reply to a turn's request, or to a question of ours, and what is known of it.
#[derive(Debug, Clone)]
pub(crate) struct Case<'a> {
    id: Cow<'a, str>,
    agent: &'a AgentId,
    session: &'a str,
    messages: Cow<'a, [Message]>,
    pub(super) evidence: Evidence,
    /// What the owner wishes of every reply, where it is judged alone.
    pub(super) wishes: Vec<String>,
}

// === impl Case ===

impl<'a> Case<'a> {
    /// A turn, and what followed it; none if its reply is not whole.
    pub(crate) fn followed(turn: &'a Turn, following: &[Message]) -> Option<Self> {
        let reply = whole_reply(turn)?;
        Some(Self::new(turn, reply, following, &[]))
    }

    /// A turn that nothing followed; none if its reply is not whole.
    pub(crate) fn ended(turn: &'a Turn, wishes: &[String]) -> Option<Self> {
        Some(Self::new(turn, whole_reply(turn)?, &[], wishes))
    }

    /// Another reply to a turn's request.
    pub(super) fn of_reply(turn: &'a Turn, reply: &Message, wishes: &[String]) -> Self {
        Self::new(turn, reply, &[], wishes)
    }

    /// A reply to a question that no turn asked.
    pub(super) fn of_probe(
        agent: &'a AgentId,
        question: &str,
        reply: &str,
        wishes: &[String],
    ) -> Self {
        let messages = vec![Message::user(question)];
        Self {
            evidence: Evidence::new(&messages, Message::assistant(reply), &[]),
            id: Cow::Borrowed(PROBE),
            agent,
            session: PROBE,
            messages: Cow::Owned(messages),
            wishes: wishes.to_vec(),
        }
    }

    fn new(turn: &'a Turn, reply: &Message, following: &[Message], wishes: &[String]) -> Self {
        Self {
            evidence: Evidence::new(&turn.request.messages, reply.clone(), following),
            id: Cow::Owned(turn.id.to_string()),
            agent: &turn.agent,
            session: turn.session.as_str(),
            messages: Cow::Borrowed(&turn.request.messages),
            wishes: wishes.to_vec(),
        }
    }

    /// As a reward function is shown it: docs/extending/reward-functions.md.
    pub(super) fn to_json(&self) -> Value {
        let Evidence { reply, next, .. } = &self.evidence;
        json!({
            "id": self.id,
            "agent": self.agent,
            "session": self.session,
            "request": {"messages": self.messages},
            "reply": reply,
            "next": next,
            "wishes": self.wishes,
        })
    }
}

fn whole_reply(turn: &Turn) -> Option<&Message> {
    let reply = turn.reply.as_ref();
    reply.filter(|_| turn.meta.end == StreamEnd::Complete)
}
