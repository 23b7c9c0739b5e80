//! What tests of several files need.

use metaclaw_chat::{AgentId, Message};
use metaclaw_turns::{NewMessage, NewTurn, Served, TurnMeta};

pub(crate) fn turn(agent: &AgentId, session: &str, ended_ms: u64) -> NewTurn {
    let messages = NewMessage::all(agent, &[Message::user(session)]).unwrap();
    NewTurn {
        session: session.parse().unwrap(),
        meta: TurnMeta::whole(messages[0].chain, ended_ms),
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
