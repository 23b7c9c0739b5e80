//! What tests of several files need.

use metaclaw_chat::{AgentId, Message};
use metaclaw_turns::{NewMessage, NewTurn, Served, StreamEnd, TurnKind, TurnMeta};

/// A turn of an agent that ended whole at a time.
pub(crate) fn turn(agent: &AgentId, session: &str, ended_ms: u64) -> NewTurn {
    let messages = NewMessage::all(agent, &[Message::user(session)]).unwrap();
    NewTurn {
        session: session.parse().unwrap(),
        meta: TurnMeta {
            kind: TurnKind::Main,
            chain: messages[0].chain,
            reply_id: None,
            finish_reason: None,
            usage: None,
            end: StreamEnd::Complete,
            started_ms: ended_ms,
            first_byte_ms: None,
            ended_ms,
            is_last: false,
            masked: false,
        },
        messages,
        continues: None,
        tools: None,
        params: serde_json::Map::new(),
        reply: Some(Message::assistant("Hi.")),
        served: Served::default(),
        tokens: None,
        agent: agent.clone(),
    }
}
