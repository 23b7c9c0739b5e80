//! What is put to a judge.

use metaclaw_chat::Message;
use metaclaw_reward::Evidence;
use metaclaw_turns::{StreamEnd, Turn};
use serde_json::{Value, json};

/// A turn's reply, or another reply to the same request, and what is known of it.
#[derive(Debug, Clone)]
pub(crate) struct Case<'a> {
    turn: &'a Turn,
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

    fn new(turn: &'a Turn, reply: &Message, following: &[Message], wishes: &[String]) -> Self {
        Self {
            evidence: Evidence::new(&turn.request.messages, reply.clone(), following),
            turn,
            wishes: wishes.to_vec(),
        }
    }

    /// As a reward function is shown it: docs/judging.md.
    pub(super) fn to_json(&self) -> Value {
        let Turn {
            id, agent, session, ..
        } = self.turn;
        let Evidence { reply, next, .. } = &self.evidence;
        json!({
            "id": id,
            "agent": agent,
            "session": session,
            "request": {"messages": self.turn.request.messages},
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
