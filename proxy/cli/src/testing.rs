//! What tests of several files need.

use std::path::Path;

use metaclaw_chat::{AgentId, Message};
use metaclaw_turns::{NewMessage, NewTurn, Served, TurnMeta};

use crate::environment::Environment;

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

/// A file of the repository that is made from the program: compared, or written anew with `METACLAW_WRITE_EXAMPLE=1`.
pub(crate) fn check_made(path: &Path, wanted: &str) {
    let environment = Environment::from_process();
    if environment.get("METACLAW_WRITE_EXAMPLE").is_some() {
        let written = std::fs::write(path, wanted);
        assert!(written.is_ok(), "{}: {written:?}", path.display());
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        text == wanted,
        "{} is not what it is made of",
        path.display()
    );
}
